"""A source file on a server: read in ranges to look at it, fetched to read it whole."""

from __future__ import annotations

import io
from collections import OrderedDict
from pathlib import Path
from typing import IO

from shoestring.core.interfaces import RemoteObject, RemoteSources
from shoestring.data.sources.remote.fetch import FetchFolder

BLOCK_BYTES = 1 << 20
KEPT_BLOCKS = 16


class RemoteFile:
    """One file. `fetched`: where it is fetched to when it is read whole; None: it is only read in ranges."""

    def __init__(
        self, found: RemoteObject, sources: RemoteSources, fetched: FetchFolder | None = None
    ) -> None:
        self.found, self._sources, self._fetched = found, sources, fetched
        self._blocks: OrderedDict[int, bytes] = OrderedDict()

    def whole(self) -> Path | IO[bytes]:
        """Return the local copy, which is made now if need be; a reader of ranges where nothing is fetched.

        Raises what RemoteSources raises, and DataError, StoreFull.
        """
        return self._fetched.fetch(self.found) if self._fetched else self.ranges()

    def ranges(self) -> IO[bytes]:
        """Return a reader that reads blocks of the file as they are needed."""
        return io.BufferedReader(RangeReader(self), BLOCK_BYTES)

    def block(self, number: int) -> bytes:
        """Return a block of BLOCK_BYTES, the last one shorter. A few blocks are kept."""
        if number not in self._blocks:
            start = number * BLOCK_BYTES
            end = min(start + BLOCK_BYTES, self.found.size_bytes)
            self._blocks[number] = self._sources.read(self.found, start, end)
            if len(self._blocks) > KEPT_BLOCKS:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end(number)
        return self._blocks[number]


class RangeReader(io.RawIOBase):
    """A remote file as Python's readers expect a file."""

    def __init__(self, file: RemoteFile) -> None:
        self._file, self._position = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.found.size_bytes}
        if base[whence] + offset < 0:
            raise ValueError(f"position {base[whence] + offset} is before the start")
        self._position = base[whence] + offset
        return self._position

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        if self._position >= self._file.found.size_bytes:
            return 0
        number, offset = divmod(self._position, BLOCK_BYTES)
        data = self._file.block(number)[offset : offset + len(buffer)]
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
