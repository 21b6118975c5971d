"""Read IDX files: arrays of numbers after a header of their shape, as the MNIST data sets have them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from shoestring.core.errors import DataError
from shoestring.data.sources.data_file import DataFile, open_unpacked

Array = np.ndarray[Any, np.dtype[Any]]

TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4"}
"""The types of whole numbers, by the third byte of the header; all numbers are big-endian."""

MAX_DIMENSIONS = 4


@dataclass(frozen=True, slots=True)
class IdxHeader:
    """The shape and the type of the numbers of an IDX file. `shape` begins with the rows."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * self.dtype.itemsize


def read_idx_header(file: DataFile) -> IdxHeader:
    """Return the header of a file. Raises DataError."""
    with open_unpacked(file, is_whole=False) as stream:
        return _header(file, stream)


def idx_rows(file: DataFile, batch_rows: int) -> Iterator[Array]:
    """Yield the rows of a file, at most `batch_rows` at a time: [rows, ...]. Raises DataError."""
    with open_unpacked(file) as stream:
        header = _header(file, stream)
        for start in range(0, header.shape[0], batch_rows):
            rows = min(batch_rows, header.shape[0] - start)
            data = stream.read(rows * header.row_bytes)
            if len(data) < rows * header.row_bytes:
                raise DataError(
                    f"{file.name} is truncated: its header promises {header.shape[0]:,} rows, and it ends "
                    f"after row {start + len(data) // max(header.row_bytes, 1):,}: copy it again"
                )
            yield np.frombuffer(data, header.dtype).reshape(rows, *header.shape[1:])
        if stream.read(1):
            raise DataError(
                f"{file.name} has more bytes after the {header.shape[0]:,} rows that its header promises"
            )


def _header(file: DataFile, stream: IO[bytes]) -> IdxHeader:
    magic = stream.read(4)
    dtype = TYPES.get(magic[2]) if len(magic) == 4 and magic[:2] == b"\0\0" else None
    if dtype is None or not 1 <= magic[3] <= MAX_DIMENSIONS:
        raise DataError(f"{file.name} is no IDX file of whole numbers: it begins with {magic.hex()}")
    sizes = stream.read(4 * magic[3])
    if len(sizes) < 4 * magic[3]:
        raise DataError(f"{file.name} is truncated: it ends within its header")
    return IdxHeader(tuple(map(int, np.frombuffer(sizes, ">u4"))), np.dtype(dtype))
