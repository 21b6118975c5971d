"""Write and read tables in four formats: Parquet (small), Arrow IPC (fast to scan), packed records (fast
to shuffle), shards (read from the store in blocks)."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shoestring.core.errors import DataError
from shoestring.core.types import Format
from shoestring.data.formats.packed import (
    Records,
    map_packed,
    pack,
    read_packed,
    record_type,
    write_packed,
)
from shoestring.data.formats.shards import index_of_file, read_shard, require_encoded, write_shard
from shoestring.pricing.format_speeds import MIN_FREE_BYTES

LOOKED_AT_ROWS, MAX_DISTINCT_SHARE = 4096, 0.8
"""The rows of a part that show whether a column's values repeat, and the most of them that may differ."""


def write_table(table: pa.Table, format: Format, path: Path) -> None:
    """Write a table of numbers, text, booleans, dates and times, all nullable. Equal tables give equal
    bytes."""
    match format:
        case Format.PARQUET:
            pq.write_table(table, path, compression="zstd", use_dictionary=_repeating(table))
        case Format.ARROW:
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table.combine_chunks())
        case Format.PACKED:
            write_packed(table, path)
        case Format.SHARDS:
            write_shard(table, path)


def _repeating(table: pa.Table) -> list[str]:
    """Return the columns whose values repeat, as the first of them show: only these are shorter and no slower
    to write with a dictionary."""
    head = table.slice(0, LOOKED_AT_ROWS)
    most = MAX_DISTINCT_SHARE * head.num_rows
    return [
        column.name
        for column in table.schema
        if not (pa.types.is_nested(column.type) or pa.types.is_null(column.type))
        and pc.count_distinct(head[column.name]).as_py() <= most
    ]


def read_table(path: Path, format: Format, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a table with its values, nulls and types: all columns, or these. Raises DataError for a damaged or
    truncated file."""
    try:
        match format:
            case Format.PARQUET:
                with pq.ParquetFile(path) as file:
                    return file.read(columns)
            case Format.ARROW:
                with pa.memory_map(str(path)) as source:
                    table = pa.ipc.open_file(source).read_all()
                    return table if columns is None else table.select(columns)
            case Format.PACKED:
                return read_packed(path, columns)
            case Format.SHARDS:
                return read_shard(path, columns)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as {format}: it is damaged or truncated ({error})") from None


def read_schema(path: Path, format: Format) -> pa.Schema:
    """Return the columns of a table with their types. Raises DataError for a damaged or truncated file."""
    match format:
        case Format.PARQUET:
            try:
                return pq.read_schema(path)
            except (pa.ArrowException, OSError) as error:
                raise DataError(f"{path} cannot be read as {format}: it is damaged ({error})") from None
        case Format.ARROW:
            return read_table(path, format).schema
        case Format.PACKED:
            return map_packed(path)[1]
        case Format.SHARDS:
            return index_of_file(path).schema


class EncodedRows:
    """The encoded rows of a split, one record a row, over all its parts, in memory or memory-mapped."""

    block_starts = None
    """A row is read alone: any order costs the same."""

    def __init__(self, parts: Sequence[Records]) -> None:
        if not parts:
            raise DataError("a split without parts has no rows to read")
        self.dtype: np.dtype[Any] = parts[0].dtype
        self._parts = tuple(parts)
        self._starts = np.cumsum([0, *(len(part) for part in parts)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def take(self, positions: np.ndarray[Any, np.dtype[np.int64]]) -> Records:
        """Return copies of the rows at `positions` (int64[B], any order, repeats allowed): records[B].

        Raises IndexError for a position outside the rows.
        """
        if len(positions) and not 0 <= positions.min() <= positions.max() < len(self):
            raise IndexError(
                f"positions from {positions.min()} to {positions.max()} are outside the {len(self)} rows"
            )
        if len(self._parts) == 1:
            return self._parts[0].take(positions)
        owners = np.searchsorted(self._starts, positions, side="right") - 1
        taken = np.empty(len(positions), self.dtype)
        for owner in np.unique(owners):
            mask = owners == owner
            taken[mask] = self._parts[owner].take(positions[mask] - self._starts[owner])
        return taken

    def scan(self, batch_rows: int) -> Iterator[Records]:
        """Yield all rows in order, at most `batch_rows` at a time, as views that must not be written to."""
        for part in self._parts:
            for start in range(0, len(part), batch_rows):
                yield part[start : start + batch_rows]


def open_rows(paths: Sequence[Path], format: Format, scratch: Path | None = None) -> EncodedRows:
    """Open the rows of an encoded data set, whose columns have a fixed width and no nulls. Raises DataError.

    Packed records are memory-mapped. The other formats are decoded once into packed records in memory,
    because a shuffled read of a column store costs 100 to 5,000 times as much as one of a record. With
    `scratch`, several parts become one mapped file there, where it has room: a shuffled read of 128 parts
    costs 10 times as much as one of a file.
    """
    parts = (_mapped(path) if format is Format.PACKED else _decoded(path, format) for path in paths)
    if scratch is None or len(paths) < 2:
        return EncodedRows([*parts])
    return EncodedRows(_joined(parts, scratch))


def _joined(parts: Iterator[Records], scratch: Path) -> list[Records]:
    """Return the records of all parts in one mapped file, and those parts for which there is no room."""
    rest: list[Records] = []
    dtype: np.dtype[Any] = np.dtype("u1")
    with tempfile.TemporaryFile(dir=scratch) as file:
        for part in parts:
            if rest or shutil.disk_usage(scratch).free < part.nbytes + MIN_FREE_BYTES:
                rest.append(part)
                continue
            dtype = part.dtype
            part.tofile(file)
        # The mapping keeps the file, which has no name, until it is dropped itself.
        rows = file.tell() // dtype.itemsize
        return [np.asarray(np.memmap(file, dtype, "r", 0, (rows,))), *rest] if rows else rest


def _mapped(path: Path) -> Records:
    records, _, header = map_packed(path)
    if found := [*header["null_columns"], *header["dictionaries"], *header["heap_bytes"]]:
        raise DataError(f"{path} is not encoded: {', '.join(found)} contain text, bytes or nulls")
    return records


def _decoded(path: Path, format: Format) -> Records:
    table = require_encoded(read_table(path, format), path)
    records = np.empty(table.num_rows, record_type(table.schema))
    pack(table, records)
    return records
