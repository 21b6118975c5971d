"""Measure the formats on one volume: write and read small tables, and derive the cost of a row and of a
byte."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from shoestring.core.interfaces import Clock
from shoestring.core.types import Format
from shoestring.data.formats.readers import open_rows, write_table
from shoestring.data.scratch.temporary_folders import remove_left_over, temporary_folder
from shoestring.pricing.format_speeds import FormatSpeed

ROWS = 8192
COLUMNS = (4, 48)
"""Two widths, which separate the cost of a row from the cost of its bytes."""

DISK_BYTES = 8 << 20
BATCH_ROWS = 1024
REPEATS = 3
FASTEST_BYTES_PER_S = 1 << 36
"""Recorded when the wider rows were not measurably slower: 64 GiB/s, more than the memory bandwidth of
one core."""


@dataclass(frozen=True, slots=True)
class FormatTiming:
    """Seconds for ROWS rows of one width, and the size of their file."""

    write_s: float
    scan_s: float
    take_s: float
    file_bytes: int


def measure_volume(folder: Path, clock: Clock) -> tuple[FormatSpeed, ...]:
    """Measure every format on the volume of `folder`, in a temporary subfolder that is removed afterwards.

    `write` includes the time in which the disk takes the file's bytes durably. `scan` opens and reads all
    rows in order, from the page cache. `take` is one pass over open rows in random order, in batches: a
    loader that shuffles pays one scan, then a take for each epoch.
    """
    rng = np.random.default_rng(0)
    tables = [_table(columns, rng) for columns in COLUMNS]
    positions = rng.permutation(ROWS)
    remove_left_over(folder)
    with temporary_folder(folder) as scratch:
        path = scratch / "table"
        disk_s_per_byte = _fastest_s(lambda: _write_and_sync(path, bytes(DISK_BYTES)), clock) / DISK_BYTES
        return tuple(
            _speed(
                format, [_timing(table, format, path, positions, clock) for table in tables], disk_s_per_byte
            )
            for format in Format
        )


def _table(columns: int, rng: np.random.Generator) -> pa.Table:
    """Return a table like an encoded one: a third codes, the rest measurements of three digits."""
    codes = {f"c{index}": pa.array(rng.integers(0, 50, ROWS), pa.int32()) for index in range(columns // 3)}
    numbers = {
        f"n{index}": pa.array(np.round(rng.normal(size=ROWS), 2), pa.float32())
        for index in range(columns - len(codes))
    }
    return pa.table(codes | numbers)


def _timing(
    table: pa.Table,
    format: Format,
    path: Path,
    positions: np.ndarray[tuple[int], np.dtype[np.int64]],
    clock: Clock,
) -> FormatTiming:
    def scan() -> None:
        for batch in open_rows([path], format).scan(BATCH_ROWS):
            batch.copy()

    write_s = _fastest_s(lambda: write_table(table, format, path), clock)
    scan_s = _fastest_s(scan, clock)
    rows = open_rows([path], format)
    take_s = _fastest_s(
        lambda: [rows.take(positions[start : start + BATCH_ROWS]) for start in range(0, ROWS, BATCH_ROWS)],
        clock,
    )
    return FormatTiming(write_s, scan_s, take_s, path.stat().st_size)


def _write_and_sync(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _fastest_s(action: Callable[[], object], clock: Clock) -> float:
    """Return the seconds of the fastest of `REPEATS` tries, since disturbances only ever add time."""
    found = []
    for _ in range(REPEATS):
        started_s = clock.monotonic_s()
        action()
        found.append(clock.monotonic_s() - started_s)
    return min(found)


def _speed(format: Format, timings: list[FormatTiming], disk_s_per_byte: float) -> FormatSpeed:
    narrow, wide = timings
    write = _fit_costs(*(timing.write_s + timing.file_bytes * disk_s_per_byte for timing in timings))
    scan = _fit_costs(narrow.scan_s, wide.scan_s)
    take = _fit_costs(narrow.take_s, wide.take_s)
    return FormatSpeed(
        format=format,
        write_ns_per_row=write[0],
        write_bytes_per_s=write[1],
        scan_ns_per_row=scan[0],
        scan_bytes_per_s=scan[1],
        take_ns_per_row=take[0],
        take_bytes_per_s=take[1],
        size_ratio=round(wide.file_bytes / (ROWS * 4 * COLUMNS[1]), 3),
    )


def _fit_costs(narrow_s: float, wide_s: float) -> tuple[int, int]:
    """Return nanoseconds a row and bytes a second: the line through both widths, with neither part
    negative."""
    narrow_bytes, wide_bytes = (ROWS * 4 * columns for columns in COLUMNS)
    bytes_per_s = min((wide_bytes - narrow_bytes) / max(wide_s - narrow_s, 1e-9), FASTEST_BYTES_PER_S)
    row_s = max(narrow_s - narrow_bytes / bytes_per_s, 0.0) / ROWS
    return round(row_s * 1e9), max(round(bytes_per_s), 1)
