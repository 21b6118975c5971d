"""Read a bounded sample of a table: the first part of some of its files, with rows spread evenly over it."""

from __future__ import annotations

import dataclasses
import io
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from shoestring.core.datasets import IMAGE_COLUMN
from shoestring.core.errors import DataError
from shoestring.core.interfaces import RemoteSources
from shoestring.data.increments.schema_version import NO_SCHEMA, SchemaVersion
from shoestring.data.inspect.tables.file_parts import (
    ROWS_COMPARED,
    content_bytes,
    file_parts,
    late_texts,
    part_text,
)
from shoestring.data.inspect.tables.table_sample import (
    MAX_SAMPLE_FILES,
    MAX_SAMPLE_ROWS,
    QUICK,
    SampleSize,
    TableSample,
    WholeTable,
)
from shoestring.data.recipe import Recipe
from shoestring.data.scratch.temporary_folders import temporary_folder
from shoestring.data.sources.check_columns import check_columns
from shoestring.data.sources.column_types import parse_column
from shoestring.data.sources.data_file import SAMPLE_BYTES, DataFile
from shoestring.data.sources.files import list_data_files
from shoestring.data.sources.images.image_bytes import ImageBytes
from shoestring.data.sources.images.image_tables import ImagePaths
from shoestring.data.sources.open_table import left_out_of, open_source, open_table
from shoestring.data.sources.parquet_reader import TypedTable
from shoestring.data.sources.quarantine import ColumnMisfits, Quarantine
from shoestring.data.sources.remote.no_remote import NO_REMOTE_SOURCES
from shoestring.data.sources.table import FilesTable, SourceTable, TypesChanged
from shoestring.data.sources.text.type_guess import ColumnReading
from shoestring.data.sources.untyped_table import UntypedTable


def read_samples(
    recipe: Recipe,
    remote: RemoteSources = NO_REMOTE_SOURCES,
    size: SampleSize = QUICK,
    known: SchemaVersion = NO_SCHEMA,
) -> dict[str, TableSample]:
    """Return a sample of each table of a recipe.

    `known`: the columns of the last version of the data.

    Raises:
        RecipeError: a file or a column that the recipe names does not exist.
        DataError: a file cannot be read, or a table has no rows.
        SourceUnreachable, UsageError: `remote` cannot read a URL.
    """
    files = {name: list_data_files(source, remote) for name, source in recipe.source.items()}
    tables = {
        name: open_source(recipe.source[name], found, known.fixed(recipe, name))
        for name, found in files.items()
    }
    check_columns(recipe, {name: table.names for name, table in tables.items()}, left_out_of(tables))
    # A join needs the row of every key.
    return {
        name: read_image_sample(name, files[name], table)
        if recipe.source[name].image is not None
        else read_sample(name, files[name], table, size, keeps_all=name != recipe.main)
        for name, table in tables.items()
    }


def read_image_sample(name: str, files: Sequence[DataFile], table: SourceTable) -> TableSample:
    """Return a sample of the other columns of a table of images. Raises DataError.

    The images decide the splits as well, so it never counts as the whole table.
    """
    if isinstance(table, ImagePaths):
        found = read_sample(name, [file for file in files if file.kind], table.table)
        rows = table.with_splits(found.rows)
        part_read = "" if isinstance(table, ImageBytes) else found.part_read
        return dataclasses.replace(
            found, rows=rows, table=table, is_whole=False, whole=None, part_read=part_read
        )
    rows = pa.concat_tables(table.peek([name for name in table.names if name != IMAGE_COLUMN]))
    return TableSample(_kept_rows(rows, MAX_SAMPLE_ROWS), rows.num_rows, 0, False, table)


def read_sample(
    name: str,
    files: Sequence[DataFile],
    table: SourceTable,
    size: SampleSize = QUICK,
    *,
    keeps_all: bool = False,
) -> TableSample:
    """Return a sample of the table `name` in `files`. `keeps_all`: keep all rows that were read.

    Raises DataError, also for a table without rows.
    """
    table_bytes = sum(map(content_bytes, files))
    if table_bytes <= size.whole_bytes:
        whole = _sample_of_whole(_whole_table(name, table), table, None if keeps_all else size.whole_rows)
        return dataclasses.replace(whole, files=files)
    with temporary_folder() as folder:
        found = _sample_of_parts(name, files, table, size.part_bytes, folder, keeps_all=keeps_all)
    part = "" if found.is_whole else part_text(found.files, files, size.part_bytes, table_bytes)
    return dataclasses.replace(found, files=files, part_read=part)


def _sample_of_parts(
    name: str,
    files: Sequence[DataFile],
    table: SourceTable,
    part_bytes: int,
    folder: Path,
    *,
    keeps_all: bool,
) -> TableSample:
    """Return the sample of a table that is too large to be read whole. Its `files` are those parts that were
    read, of which those of text are written to `folder`."""
    max_rows = None if keeps_all else MAX_SAMPLE_ROWS
    chosen = [files[index] for index in _spread(len(files), MAX_SAMPLE_FILES)]
    parts = [part for file in chosen for part in file_parts(file, part_bytes // len(chosen), folder)]
    blocks, starts, is_whole = _read_parts(parts, table, part_bytes / len(chosen))
    found = pa.concat_tables(blocks, promote_options="permissive") if blocks else None
    if found is None or not found.num_rows:
        raise _no_rows(name)
    rows = _kept_rows(found, max_rows)
    is_whole &= rows.num_rows == found.num_rows and list(files) == parts
    if not isinstance(table, UntypedTable):
        return TableSample(rows, found.num_rows, 0, is_whole, table, files=parts)
    read = rows.num_rows, found.num_rows
    typed, readings, values = _typed(rows, table, lambda index: _place(index, read, starts))
    unread = sum(each.total for each in values.values())
    ends = [*(row for row, _ in starts[1:]), found.num_rows]
    firsts = [
        (of_file.file_names[0], found.slice(row, min(ROWS_COMPARED, end - row)))
        for (row, of_file), end in zip(starts, ends, strict=True)
    ]
    late = tuple(late_texts(firsts, table)) if len(parts) > len(chosen) else ()
    return TableSample(
        typed, found.num_rows, 0, is_whole, table, readings, None, values, unread, parts, late=late
    )


def _read_parts(
    parts: Sequence[DataFile], table: SourceTable, most_bytes: float
) -> tuple[list[pa.Table], list[tuple[int, FilesTable]], bool]:
    """Return blocks of rows, up to `most_bytes` of each part; the first row of each part, with what reads it;
    and whether all rows were read."""
    blocks, is_whole, rows = list[pa.Table](), True, 0
    starts: list[tuple[int, FilesTable]] = []
    for file in parts:
        read_bytes = 0
        of_file = open_table([file])
        if isinstance(table, TypedTable):
            of_file.fix(table.columns)
        starts.append((rows, of_file))
        for block in _blocks(of_file):
            if read_bytes >= most_bytes:
                is_whole = False
                break
            blocks.append(block.select([each for each in block.column_names if each in table.names]))
            rows += block.num_rows
            read_bytes += block.nbytes
    return blocks, starts, is_whole


def _sample_of_whole(whole: WholeTable, table: SourceTable, max_rows: int | None) -> TableSample:
    rows, misfits = _kept_rows(whole.rows, max_rows), whole.quarantine.counts.total()
    return TableSample(
        rows,
        rows_read=whole.rows.num_rows + misfits,
        misfits=misfits,
        is_whole=rows.num_rows == whole.rows.num_rows,
        table=table,
        readings=table.readings if isinstance(table, UntypedTable) else {},
        whole=whole,
        misfit_values=whole.quarantine.misfits,
        unread=whole.quarantine.cells.total(),
    )


def _whole_table(name: str, table: SourceTable) -> WholeTable:
    while True:
        lines, file_rows = io.StringIO(), Counter[str]()
        quarantine, batches = Quarantine(name, lines), list[pa.Table]()
        try:
            for batch in table.batches(quarantine):
                batches.append(batch)
                if isinstance(table, UntypedTable | TypedTable):
                    file_rows[table.file] += batch.num_rows
        except TypesChanged:
            continue
        rows = pa.concat_tables(batches) if batches else None
        if rows is None or not rows.num_rows:
            quarantine.check(0)
            raise _no_rows(name)
        return WholeTable(rows, quarantine, lines.getvalue(), file_rows)


def _no_rows(name: str) -> DataError:
    return DataError(f"table {name} has no rows: there is nothing to learn from")


def _kept_rows(rows: pa.Table, most: int | None) -> pa.Table:
    """Return at most `most` of the rows, spread evenly; None: all."""
    return (
        rows if most is None or rows.num_rows <= most else rows.take(_indices(_spread(rows.num_rows, most)))
    )


def _place(index: int, read: tuple[int, int], starts: Sequence[tuple[int, FilesTable]]) -> tuple[str, int]:
    """Return the file and the row number of a row that was kept. `read`: how many rows were kept, and of how
    many. `starts`: the first row of each file.
    """
    kept, rows = read
    row = int(_spread(rows, kept)[index])
    first, table = next(start for start in reversed(starts) if start[0] <= row)
    assert isinstance(table, UntypedTable)
    return table.files[0].name, table.files[0].row_number(row - first)


def _blocks(table: SourceTable) -> Iterator[pa.Table]:
    """Yield the rows of one file: as text if it is a text file."""
    yield from table.texts(SAMPLE_BYTES) if isinstance(table, UntypedTable) else table.peek(table.names)


def _typed(
    rows: pa.Table, table: UntypedTable, place: Callable[[int], tuple[str, int]]
) -> tuple[pa.Table, dict[str, ColumnReading], dict[str, ColumnMisfits]]:
    """Return the rows as their inferred types; how the columns are read; and the values that do not fit.
    `place` returns the file and the row number of a row.
    """
    readings: dict[str, ColumnReading] = {}
    values_of: dict[str, ColumnMisfits] = {}
    columns: list[pa.Array] = []
    for name in rows.column_names:
        texts = rows[name].combine_chunks()
        guess = table.guess(name)
        guess.add(texts)
        readings[name] = guess.reading()
        values, misfit = parse_column(texts, readings[name].kind)
        columns.append(values)
        if misfit.any():
            first = int(misfit.argmax())
            values_of[name] = ColumnMisfits(int(misfit.sum()), texts[first].as_py(), *place(first))
    return pa.table(columns, names=rows.column_names), readings, values_of


def _spread(count: int, most: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return at most `most` of the indices below `count`, spread evenly: the first and the last are in it."""
    return np.linspace(0, count - 1, min(count, most)).astype(np.int64)


def _indices(numbers: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Array:
    """Return int64[rows]. `pa.array` would import pandas, which takes 0.3 s."""
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])
