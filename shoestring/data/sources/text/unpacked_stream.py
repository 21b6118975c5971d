"""The limit of how much a compressed text file may unpack to."""

from __future__ import annotations

import gzip
import io
from typing import IO

from shoestring.core.errors import DataError

MAX_UNPACK_RATIO = 200
"""Tables compress 3 to 50 times, and a gzip bomb 1,000 times."""

MIN_UNPACK_LIMIT_BYTES = 64 << 20
"""A file may unpack to this size at any ratio."""


class UnpackedStream(io.RawIOBase):
    """The bytes of a decompressing stream. Reading them raises DataError beyond the limit for a file of
    `packed_bytes`."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile, name: str, packed_bytes: int) -> None:
        self._stream, self._name, self._packed_bytes, self._read_bytes = stream, name, packed_bytes, 0
        self._limit_bytes = max(MIN_UNPACK_LIMIT_BYTES, MAX_UNPACK_RATIO * packed_bytes)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._stream.read(len(buffer))
        self._read_bytes += len(data)
        if self._read_bytes > self._limit_bytes:
            raise DataError(
                f"{self._name} has {self._packed_bytes / 1e6:.3g} MB and unpacks to more than "
                f"{self._limit_bytes / 1e6:.3g} MB, {MAX_UNPACK_RATIO} times as much or more: "
                "if that is right, unpack it yourself and name the unpacked file"
            )
        buffer[: len(data)] = data
        return len(data)
