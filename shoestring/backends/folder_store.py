"""A store that is a folder: each object is a file."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from shoestring.core.errors import NO_SPACE, NotInStore, StoreError, StoreFull
from shoestring.core.interfaces import ListedObject
from shoestring.core.store_layout import check_key, check_prefix
from shoestring.core.types import STANDARD_CLASS

MARKS = ".verified"
"""The folder of the marks of verified objects. Its name begins with a dot, so nothing in it is an object."""


class FolderStore:
    """A store whose objects are files below `root`.

    A write goes to a temporary file, which is flushed and then linked or renamed into place. An object is
    therefore complete or absent.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.place = str(root)

    def fetch(self, key: str) -> Path:
        path = self.root / check_key(key)
        if not path.is_file():
            raise NotInStore(key)
        return path

    def read(self, key: str, start: int, stop: int) -> bytes:
        with self.fetch(key).open("rb") as file:
            file.seek(start)
            return file.read(stop - start)

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = STANDARD_CLASS
    ) -> bool:
        path = self.root / check_key(key)
        if if_absent and path.exists():
            return False
        temporary = path.parent / f".{path.name}.{uuid.uuid4().hex}"
        try:
            self._make_folder(path.parent)
            self._write(temporary, data)
            if if_absent:
                try:
                    os.link(temporary, path)
                except FileExistsError:
                    return False
            else:
                temporary.replace(path)
            self._sync_folder(path.parent)
            return True
        except OSError as error:
            if error.errno in NO_SPACE:
                raise StoreFull(
                    f"no space left for {key} in {self.root}: nothing of the object was written; free some "
                    "space and run again"
                ) from error
            raise StoreError(f"cannot write {key} in {self.root}: {error.strerror or error}") from error
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()

    def _make_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            self._make_folder(folder.parent)
            folder.mkdir(exist_ok=True)
            self._sync_folder(folder.parent)

    @staticmethod
    def _sync_folder(folder: Path) -> None:
        """Flush the folder itself: a flushed file survives a power cut only if its name in the folder is
        flushed, too.
        """
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    @staticmethod
    def _write(path: Path, data: bytes | Path) -> None:
        with path.open("wb") as file:
            if isinstance(data, bytes):
                file.write(data)
            else:
                with data.open("rb") as source:
                    shutil.copyfileobj(source, file, 1 << 20)
            file.flush()
            os.fsync(file.fileno())

    def list(self, prefix: str) -> Iterator[str]:
        check_prefix(prefix)
        folder = self.root / (prefix if prefix.endswith("/") else prefix.rpartition("/")[0])
        found = list[str]()
        for place, folders, files in os.walk(folder, onerror=_raise_unless_gone):
            # A name that begins with a dot is temporary: of a write or a probe of the volume in progress, or
            # of a process that died meanwhile.
            folders[:] = [name for name in folders if not name.startswith(".")]
            inside = Path(place).relative_to(self.root)
            found += [(inside / name).as_posix() for name in files if not name.startswith(".")]
        yield from sorted(key for key in found if key.startswith(prefix))

    def objects(self, prefix: str) -> Mapping[str, ListedObject]:
        found = {}
        for key in self.list(prefix):
            # An object that is deleted meanwhile is left out.
            with contextlib.suppress(FileNotFoundError):
                found[key] = self._stat(key)
        return found

    def _stat(self, key: str) -> ListedObject:
        found = (self.root / key).stat()
        return ListedObject(found.st_size, datetime.fromtimestamp(found.st_mtime, UTC))

    def modified(self, prefix: str) -> Mapping[str, datetime]:
        return {key: found.modified_at for key, found in self.objects(prefix).items()}

    def delete(self, key: str, written_before: datetime | None = None) -> bool:
        path = self.root / check_key(key)
        try:
            if written_before is not None and self._stat(key).modified_at >= written_before:
                return False
            self.forget_verified(key)
            path.unlink()
            self._sync_folder(path.parent)
        except FileNotFoundError:
            return True
        except OSError as error:
            raise StoreError(f"cannot delete {key} in {self.root}: {error.strerror or error}") from error
        return True

    def verified_version(self, key: str) -> str:
        try:
            return self._mark(key).read_text()
        except OSError:
            return ""

    def mark_verified(self, key: str, version: str) -> None:
        mark = self._mark(key)
        temporary = mark.with_name(f"{mark.name}.{uuid.uuid4().hex}")
        # A mark that is lost costs one more look at the bytes, so it is not flushed.
        with contextlib.suppress(OSError):
            mark.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(version)
            temporary.replace(mark)

    def forget_verified(self, key: str) -> None:
        with contextlib.suppress(OSError):
            self._mark(key).unlink()

    def _mark(self, key: str) -> Path:
        return self.root / MARKS / check_key(key)


def _raise_unless_gone(error: OSError) -> None:
    """Raise the error of a folder that cannot be listed, unless it is gone, or may not be read."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError | PermissionError):
        raise error
