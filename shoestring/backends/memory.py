"""A store in the memory of one process, for simulations and tests."""

from __future__ import annotations

import shutil
import uuid
import weakref
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from itertools import count, islice, takewhile
from pathlib import Path, PosixPath
from threading import Lock

from shoestring.core.errors import NotInStore
from shoestring.core.interfaces import ListedObject
from shoestring.core.store_layout import check_key, check_prefix
from shoestring.core.types import STANDARD_CLASS
from shoestring.data.scratch.temporary_folders import folder_until_exit


@cache
def _folder_of_process() -> Path:
    return folder_until_exit()


class MemoryPath(PosixPath):
    """A path whose bytes are in memory.

    The file is written when its name is first asked for; most readers only want the bytes.
    """

    data: bytes | None = None

    def read_bytes(self) -> bytes:
        return super().read_bytes() if self.data is None else self.data

    def __str__(self) -> str:
        name = super().__str__()
        if self.data is not None:
            data, self.data = self.data, None
            Path(name).parent.mkdir(mode=0o700, exist_ok=True)
            Path(name).write_bytes(data)
        return name


class MemoryStore:
    """A store that all threads of one process share, and that is gone with the process."""

    place = "the memory of this process"

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}
        self._written: dict[str, datetime] = {}
        self._sorted: list[str] = []
        self._unsorted: list[str] = []
        self._fetch_count = count()
        self._lock = Lock()
        self._scratch = _folder_of_process() / uuid.uuid4().hex
        weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)

    def fetch(self, key: str) -> Path:
        try:
            data = self._objects[check_key(key)]
        except KeyError:
            raise NotInStore(key) from None
        # Each fetch has its own path: its content must not change when the object is replaced.
        path = MemoryPath(self._scratch, str(next(self._fetch_count)))
        path.data = data
        return path

    def read(self, key: str, start: int, stop: int) -> bytes:
        return self.fetch(key).read_bytes()[start:stop]

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = STANDARD_CLASS
    ) -> bool:
        check_key(key)
        content = data if isinstance(data, bytes) else data.read_bytes()
        with self._lock:
            if key not in self._objects:
                self._unsorted.append(key)
            elif if_absent:
                return False
            self._objects[key], self._written[key] = content, datetime.now(UTC)
        return True

    def list(self, prefix: str) -> Iterator[str]:
        check_prefix(prefix)
        with self._lock:
            if self._unsorted:
                # The list is nearly in order, which makes Python's sort fast.
                self._sorted.extend(sorted(self._unsorted))
                self._sorted.sort()
                self._unsorted.clear()
            first = bisect_left(self._sorted, prefix)
            found = list(takewhile(lambda key: key.startswith(prefix), islice(self._sorted, first, None)))
        yield from (key for key in found if "/." not in f"/{key}")

    def objects(self, prefix: str) -> Mapping[str, ListedObject]:
        keys = list(self.list(prefix))
        with self._lock:
            return {
                key: ListedObject(len(self._objects[key]), self._written[key])
                for key in keys
                if key in self._objects
            }

    def modified(self, prefix: str) -> Mapping[str, datetime]:
        return {key: found.modified_at for key, found in self.objects(prefix).items()}

    def delete(self, key: str, written_before: datetime | None = None) -> bool:
        check_key(key)
        with self._lock:
            if key not in self._objects:
                return True
            if written_before is not None and self._written[key] >= written_before:
                return False
            del self._objects[key], self._written[key]
            (self._unsorted if key in self._unsorted else self._sorted).remove(key)
        return True
