"""Limits and guesses for text files: how much a compressed one may unpack to, and which encoding it has."""

from __future__ import annotations

import codecs
import gzip
import io
from collections.abc import Iterable
from itertools import islice
from typing import IO

from shoestring.core.errors import DataError

MAX_UNPACK_RATIO = 200
"""Tables compress 3 to 50 times, and a gzip bomb 1,000 times."""

MIN_UNPACK_LIMIT_BYTES = 64 << 20
"""A file may unpack to this size at any ratio."""

GUESSED_LINES = 200
GUESSED_BYTES = 64 << 20
"""The encoding is guessed from the first lines that are not UTF-8 in this many bytes."""


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


def not_utf8_error(name: str, lines: Iterable[bytes], detail: str) -> DataError:
    """Return the error for a text file that is not UTF-8, with the encoding that its lines seem to have."""
    guess = guess_encoding(lines)
    convert = f", or convert it with `iconv -f {guess} -t utf-8`" if guess else ""
    seems = f", and seems to be {guess}" if guess else ""
    return DataError(f"{name} is not UTF-8 text ({detail}){seems}: save it as UTF-8{convert}")


def guess_encoding(lines: Iterable[bytes]) -> str:
    """Return the name of an encoding; empty if none is likely."""
    foreign = b"".join(islice((line for line in lines if not _is_utf8(line)), GUESSED_LINES))
    if foreign.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    from charset_normalizer import from_bytes

    best = from_bytes(foreign).best()
    return codecs.lookup(best.encoding).name if best is not None and foreign else ""


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
