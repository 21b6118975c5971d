"""Read a bounded sample of a table: the first part of some of its files, with rows spread evenly over it."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from shoestring.core.errors import DataError
from shoestring.core.interfaces import NO_REMOTE_SOURCES, RemoteSources
from shoestring.data.increments.schema_version import NO_SCHEMA, SchemaVersion
from shoestring.data.recipe import Recipe
from shoestring.data.sources.check_columns import check_columns
from shoestring.data.sources.column_types import parse_column
from shoestring.data.sources.data_file import SAMPLE_BYTES, DataFile, unpacked_bytes
from shoestring.data.sources.files import list_data_files
from shoestring.data.sources.images.image_tables import LABEL_COLUMN, PATH_COLUMN, ImagePaths
from shoestring.data.sources.quarantine import ColumnMisfits, Quarantine
from shoestring.data.sources.table import SourceTable, TypesChanged
from shoestring.data.sources.text.type_guess import ColumnReading
from shoestring.data.sources.untyped_table import UntypedTable
from shoestring.data.transforms.ingest import open_source, open_table

MAX_SAMPLE_BYTES = 8 << 20
"""The largest part of a table that is read, as decompressed bytes: about 0.2 s of one core."""

MAX_SAMPLE_FILES = 8
"""The files of a folder that are read: the first, the last, and some between them."""

MAX_SAMPLE_ROWS = 20_000
"""The rows of that part that are kept."""


WHOLE_BYTES = 2 << 20
"""A table of up to this size is read whole, as ingest reads it, in about a tenth of a second."""


@dataclass(frozen=True, slots=True)
class WholeTable:
    """All rows of a small table as ingest reads them, and those that it would quarantine."""

    rows: pa.Table
    quarantine: Quarantine


@dataclass(frozen=True, slots=True)
class TableSample:
    """Rows of one table, with the types that ingest would infer from them alone.

    `rows_read` counts the rows that these were chosen from, and `misfits` those among the chosen that do not
    fit the types. With `is_whole`, these are all rows of the table. `whole`: the table itself, if it is
    small. `table` reads on. `readings`: of the columns of text, how ingest would read them.
    `misfit_values`: by column, of those that have any.
    """

    rows: pa.Table
    rows_read: int
    misfits: int
    is_whole: bool
    table: SourceTable
    readings: Mapping[str, ColumnReading] = field(default_factory=dict)
    whole: WholeTable | None = None
    misfit_values: Mapping[str, ColumnMisfits] = field(default_factory=dict)


def read_samples(
    recipe: Recipe,
    remote: RemoteSources = NO_REMOTE_SOURCES,
    whole_bytes: int = WHOLE_BYTES,
    known: SchemaVersion = NO_SCHEMA,
) -> dict[str, TableSample]:
    """Return a sample of each table of a recipe; a table of at most `whole_bytes` is read whole.

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
    check_columns(recipe, {name: table.names for name, table in tables.items()})
    # A join needs the row of every key.
    return {
        name: read_image_sample(name, files[name], table)
        if recipe.source[name].image is not None
        else read_sample(
            name, files[name], table, MAX_SAMPLE_ROWS if name == recipe.main else None, whole_bytes
        )
        for name, table in tables.items()
    }


def read_image_sample(name: str, files: Sequence[DataFile], table: SourceTable) -> TableSample:
    """Return a sample of the other columns of a table of images. Raises DataError.

    The images decide the splits as well, so it never counts as the whole table.
    """
    if isinstance(table, ImagePaths):
        found = read_sample(name, [file for file in files if file.kind], table.table)
        return dataclasses.replace(found, table=table, is_whole=False, whole=None)
    rows = pa.concat_tables(table.peek([LABEL_COLUMN, PATH_COLUMN]))
    return TableSample(_kept_rows(rows, MAX_SAMPLE_ROWS), rows.num_rows, 0, False, table)


def read_sample(
    name: str,
    files: Sequence[DataFile],
    table: SourceTable,
    max_rows: int | None = MAX_SAMPLE_ROWS,
    whole_bytes: int = WHOLE_BYTES,
) -> TableSample:
    """Return a sample of at most `max_rows` rows of the table `name` in `files`; None: all that were read.

    Raises DataError, also for a table without rows.
    """
    if sum(map(unpacked_bytes, files)) <= whole_bytes:
        return _sample_of_whole(_whole_table(name, table), table, max_rows)
    chosen = [files[index] for index in _spread(len(files), MAX_SAMPLE_FILES)]
    blocks: list[pa.Table] = []
    starts: list[tuple[int, SourceTable]] = []
    is_whole = len(chosen) == len(files)
    for file in chosen:
        read_bytes = 0
        of_file = open_table([file])
        starts.append((sum(block.num_rows for block in blocks), of_file))
        for block in _blocks(of_file):
            if read_bytes >= MAX_SAMPLE_BYTES / len(chosen):
                is_whole = False
                break
            blocks.append(block)
            read_bytes += block.nbytes
    found = pa.concat_tables(blocks, promote_options="permissive") if blocks else None
    if found is None or not found.num_rows:
        raise _no_rows(name)
    rows = _kept_rows(found, max_rows)
    is_whole &= rows.num_rows == found.num_rows
    if not isinstance(table, UntypedTable):
        return TableSample(rows, found.num_rows, 0, is_whole, table)
    read = rows.num_rows, found.num_rows
    typed, misfits, readings, values = _typed(rows, table, lambda index: _place(index, read, starts))
    return TableSample(typed, found.num_rows, misfits, is_whole, table, readings, None, values)


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
    )


def _whole_table(name: str, table: SourceTable) -> WholeTable:
    while True:
        quarantine = Quarantine(name, io.StringIO())
        try:
            batches = list(table.batches(quarantine))
        except TypesChanged:
            continue
        rows = pa.concat_tables(batches) if batches else None
        if rows is None or not rows.num_rows:
            quarantine.check(0)
            raise _no_rows(name)
        return WholeTable(rows, quarantine)


def _no_rows(name: str) -> DataError:
    return DataError(f"table {name} has no rows: there is nothing to learn from")


def _kept_rows(rows: pa.Table, most: int | None) -> pa.Table:
    """Return at most `most` of the rows, spread evenly; None: all."""
    return (
        rows if most is None or rows.num_rows <= most else rows.take(_indices(_spread(rows.num_rows, most)))
    )


def _place(index: int, read: tuple[int, int], starts: Sequence[tuple[int, SourceTable]]) -> tuple[str, int]:
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
) -> tuple[pa.Table, int, dict[str, ColumnReading], dict[str, ColumnMisfits]]:
    """Return the rows that fit, as their inferred types; the number of the others; how the columns are read;
    and the values that do not fit. `place` returns the file and the row number of a row.
    """
    readings: dict[str, ColumnReading] = {}
    values_of: dict[str, ColumnMisfits] = {}
    columns: list[pa.Array] = []
    bad = np.zeros(rows.num_rows, bool)
    for name in rows.column_names:
        texts = rows[name].combine_chunks()
        guess = table.guess(name)
        guess.add(texts)
        readings[name] = guess.reading()
        values, misfit = parse_column(texts, readings[name].kind)
        columns.append(values)
        bad |= misfit
        if misfit.any():
            first = int(misfit.argmax())
            values_of[name] = ColumnMisfits(int(misfit.sum()), texts[first].as_py(), *place(first))
    typed = pa.table(columns, names=rows.column_names)
    fitting = typed.take(_indices(np.flatnonzero(~bad))) if bad.any() else typed
    return fitting, int(bad.sum()), readings, values_of


def _spread(count: int, most: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return at most `most` of the indices below `count`, spread evenly: the first and the last are in it."""
    return np.linspace(0, count - 1, min(count, most)).astype(np.int64)


def _indices(numbers: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Array:
    """Return int64[rows]. `pa.array` would import pandas, which takes 0.3 s."""
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])
