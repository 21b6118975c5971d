"""Fetch remote files whole: part by part into a folder that outlives a killed process, so that the next one
continues."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from shoestring.core.errors import NO_SPACE, DataError, StoreFull
from shoestring.core.interfaces import RemoteObject, RemoteSources, Store
from shoestring.data.sources.remote.known_digests import known_digest, remember_digest
from shoestring.data.storage.blobs import file_digest

PART_BYTES = 8 << 20
PARALLEL_PARTS = 4
KEPT_BYTES = 1 << 30
"""Copies that are read more than once stay while they fit in this; one file may be larger."""

ABANDONED_S = 86_400.0
"""A part of a file that no process has continued for this long is deleted."""

Report = Callable[[RemoteObject, int], object]
"""Receives a file and its bytes so far, after each part; it may raise to stop the fetch."""


def fetch_folder() -> Path:
    """Return this user's folder for files that are being fetched, which stays after a killed process.

    Raises DataError if another user has made it.
    """
    folder = Path(tempfile.gettempdir()) / f"shoestring-fetch-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise DataError(f"{folder} belongs to another user: remove it, or set TMPDIR to a folder of your own")
    return folder


class FetchFolder:
    """Local copies of remote files, each fetched when it is first read, and deleted at the end."""

    def __init__(
        self,
        sources: RemoteSources,
        store: Store,
        report: Report,
        folder: Path | None = None,
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        self._sources, self._store, self._report = sources, store, report
        self._folder, self._kept_bytes = folder, kept_bytes
        self._copies: OrderedDict[RemoteObject, tuple[Path, IO[bytes]]] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._copies:
            self._delete_oldest()

    def fetch(self, found: RemoteObject) -> Path:
        """Return the copy of a file, verified by size and version; the store remembers its digest.

        Raises what RemoteSources raises; DataError: the file changed or is truncated; StoreFull: the disk of
        the folder is full.
        """
        if found not in self._copies:
            kept = sum(each.size_bytes for each in self._copies)
            while self._copies and kept + found.size_bytes > self._kept_bytes:
                kept -= self._delete_oldest().size_bytes
            path, file = self._open_part(found)
            try:
                self._fill(found, file)
                self._verify(found, path)
            except DataError:
                # Of a version that is gone.
                path.unlink(missing_ok=True)
                file.close()
                raise
            except BaseException:
                # The parts stay, for the process that continues.
                file.close()
                raise
            self._copies[found] = path, file
        return self._copies[found][0]

    def _delete_oldest(self) -> RemoteObject:
        found, (path, file) = self._copies.popitem(last=False)
        path.unlink(missing_ok=True)
        file.close()
        return found

    def _open_part(self, found: RemoteObject) -> tuple[Path, IO[bytes]]:
        """Open and lock the file that holds the parts. A file of another process is not continued."""
        if self._folder is None:
            self._folder = fetch_folder()
            _delete_abandoned(self._folder)
        name = found.identity
        for path in (self._folder / f"{name}.part", self._folder / f"{name}-{os.getpid()}.part"):
            file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+b")
            if _is_locked(file, path):
                return path, file
            file.close()
        raise DataError(f"{found.url} is being fetched twice by one process")

    def _fill(self, found: RemoteObject, file: IO[bytes]) -> None:
        """Fetch the parts that are missing, in order. Raises DataError if a part has another length."""
        # After a crash of the machine, the last part may lack bytes that its length promises.
        there = os.fstat(file.fileno()).st_size
        done = min(there, found.size_bytes) // PART_BYTES * PART_BYTES
        file.truncate(done)
        file.seek(done)
        for part in self._parts(found, done):
            try:
                file.write(part)
                file.flush()
                os.fsync(file.fileno())
            except OSError as error:
                if error.errno not in NO_SPACE:
                    raise
                raise StoreFull(
                    f"{found.name} has {found.size_bytes:,} bytes, and the disk of {self._folder} is full at "
                    f"{done:,}: free some space, or set TMPDIR to a larger disk (a pod: ephemeral storage)"
                ) from None
            done += len(part)
            self._report(found, done)

    def _parts(self, found: RemoteObject, start: int) -> Iterator[bytes]:
        waiting: list[Future[bytes]] = []
        with ThreadPoolExecutor(PARALLEL_PARTS) as readers:
            try:
                for first in range(start, found.size_bytes, PART_BYTES):
                    end = min(first + PART_BYTES, found.size_bytes)
                    waiting.append(readers.submit(self._sources.read, found, first, end))
                    if len(waiting) == PARALLEL_PARTS:
                        yield waiting.pop(0).result()
                while waiting:
                    yield waiting.pop(0).result()
            finally:
                readers.shutdown(wait=False, cancel_futures=True)

    def _verify(self, found: RemoteObject, path: Path) -> None:
        sha256 = file_digest(path)
        known = known_digest(self._store, found)
        if known not in (None, sha256):
            raise DataError(
                f"{found.name} differs from what was read before under the same version {found.version}: run "
                "again to fetch it anew; if that fails as well, its server changed it without a new version: "
                "store it under another name"
            )
        if known is None:
            remember_digest(self._store, found, sha256)


def _is_locked(file: IO[bytes], path: Path) -> bool:
    """Lock an open file. Returns False if another process has it, or has deleted it meanwhile."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(file.fileno()).st_ino == path.stat().st_ino
    except (BlockingIOError, FileNotFoundError):
        return False


def _delete_abandoned(folder: Path) -> None:
    for path in folder.glob("*.part"):
        try:
            if time.time() - path.stat().st_mtime < ABANDONED_S:
                continue
            with path.open("r+b") as file:
                if _is_locked(file, path):
                    path.unlink(missing_ok=True)
        except FileNotFoundError:
            # Its own process has deleted it.
            continue
