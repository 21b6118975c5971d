"""Look at the target before anything is paid: what will be predicted, and what cannot be."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shoestring.core.errors import DataError, RecipeError
from shoestring.data.recipe import Recipe, Target
from shoestring.data.sources.check_columns import check_columns
from shoestring.data.sources.column_types import TypeGuess, parse_column
from shoestring.data.sources.csv_reader import CsvTable
from shoestring.data.sources.files import SAMPLE_BYTES, DataFile, list_data_files, unpacked_bytes
from shoestring.data.sources.parquet_reader import ParquetTable
from shoestring.data.sources.quarantine import Quarantine
from shoestring.data.transforms.encode import column_as_number
from shoestring.data.transforms.ingest import open_table
from shoestring.data.transforms.split import SPLITS, assign_splits
from shoestring.data.transforms.target import TargetFit, is_known, is_numeric

WHOLE_BYTES = 2 << 20
"""A table of up to this size takes about a tenth of a second to read."""

DECIMAL_COMMA = r"^\s*[-+]?[0-9.]*[0-9],[0-9]+\s*$"
DECIMAL_COMMA_SHARE = 0.9
"""The share of values that must match for a column to hold numbers with decimal commas."""


def preview_target(recipe: Recipe, whole_bytes: int = WHOLE_BYTES) -> str:
    """Return what a run will predict, as a sentence with the key that changes it.

    It reads the target until it shows two values, and infers the task as preprocess will.

    A table of at most `whole_bytes` is read whole, and its splits are checked as well.

    Raises:
        DataError: nothing can be predicted: no values, one value, no features, or an empty split.
        RecipeError: the target does not fit the recipe's task, or holds numbers with decimal commas.
    """
    files = {name: list_data_files(source) for name, source in recipe.source.items()}
    tables = {name: open_table(found) for name, found in files.items()}
    check_columns(recipe, {name: table.names for name, table in tables.items()})
    owner = next(name for name in (recipe.main, *tables) if recipe.target.column in tables[name].names)
    _require_features(recipe, tables[recipe.main].names)
    if owner == recipe.main and sum(map(unpacked_bytes, files[owner])) <= whole_bytes:
        rows = _whole_table(tables[owner], owner)
        fit = _fitted(recipe.target, [rows[recipe.target.column]])
        _require_splits(recipe, rows)
        return _sentence(recipe.target, fit, rows.num_rows, is_whole=True) + _comma_note(recipe, rows)
    columns = _first_columns(tables[owner], files[owner], recipe.target)
    fit = _fitted(recipe.target, columns)
    found = _sentence(recipe.target, fit, sum(map(len, columns)), is_whole=False)
    return found + _comma_note(recipe, _first_rows(tables[recipe.main]))


def _first_rows(table: CsvTable | ParquetTable) -> pa.Table:
    """Return the first block of a CSV table, as text; no rows of a Parquet table, whose columns are typed."""
    if isinstance(table, ParquetTable):
        return table.infer_schema().empty_table()
    return pa.Table.from_batches([next(table.blocks(SAMPLE_BYTES))])


def _comma_note(recipe: Recipe, rows: pa.Table) -> str:
    """Return a warning about features that are numbers with decimal commas, which are read as text."""
    ignored = {recipe.target.column, *recipe.leaks}
    found = [
        name
        for name in rows.column_names
        if name not in ignored and pa.types.is_string(rows[name].type) and _has_decimal_commas(rows[name])
    ]
    if not found:
        return ""
    why = "numbers with a decimal comma are read as text, so write them with a decimal point"
    return f"; {', '.join(found)}: {why}"


def _has_decimal_commas(texts: pa.ChunkedArray) -> bool:
    share = pc.mean(pc.match_substring_regex(texts, DECIMAL_COMMA).cast(pa.int8())).as_py()
    return share is not None and share >= DECIMAL_COMMA_SHARE


def _require_features(recipe: Recipe, names: list[str]) -> None:
    joined = [column for join in recipe.joins for column in join.columns]
    if not {*names, *joined} - {recipe.target.column, *recipe.leaks}:
        raise DataError(
            f"table {recipe.main} has only the target {recipe.target.column} and leaks: "
            "there is no column to predict it from"
        )


def _whole_table(table: CsvTable | ParquetTable, name: str) -> pa.Table:
    """Return all rows as ingest reads them. Raises DataError."""
    schema, quarantine = table.infer_schema(), Quarantine(name, io.StringIO())
    batches = list(table.batches(schema, quarantine))
    quarantine.check(sum(batch.num_rows for batch in batches))
    return pa.concat_tables(batches)


def _first_columns(
    table: CsvTable | ParquetTable, files: tuple[DataFile, ...], target: Target
) -> list[pa.ChunkedArray]:
    """Return the target from the first block on, until two values are found."""
    found: list[pa.ChunkedArray] = []
    outcomes: set[object] = set()
    for column in _target_blocks(table, target.column):
        found.append(column)
        outcomes |= {*_outcomes(column, target).unique().drop_null().to_pylist()}
        if len(outcomes) > 1:
            break
    if not found:
        raise DataError(f"{files[0].name} has no rows: there is nothing to learn from")
    kinds = {each.type for each in found}
    return found if len(kinds) == 1 else [each.cast(pa.string()) for each in found]


def _outcomes(column: pa.ChunkedArray, target: Target) -> pa.ChunkedArray:
    if target.above is None or not is_numeric(column.type):
        return column
    return pc.greater(column_as_number(column), target.above)


def _target_blocks(table: CsvTable | ParquetTable, name: str) -> Iterator[pa.ChunkedArray]:
    if isinstance(table, ParquetTable):
        schema = pa.schema([table.infer_schema().field(name)])
        yield from (batch[name] for batch in table.batches(schema, Quarantine(name, io.StringIO())))
        return
    for block in table.blocks(SAMPLE_BYTES):
        guess = TypeGuess()
        guess.add(block.column(name))
        values, _ = parse_column(block.column(name), guess.column_type())
        yield pa.chunked_array([values])


def _fitted(target: Target, columns: list[pa.ChunkedArray]) -> TargetFit:
    """Return the fit to all values. Raises DataError, RecipeError."""
    kind = columns[0].type
    known = [column.filter(is_known(column)) for column in columns]
    if not sum(map(len, known)):
        raise DataError(f"the target {target.column} has no values: every row is empty, or not a number")
    if target.task is None and not is_numeric(kind):
        _refuse_decimal_commas(target, known)
    fit = TargetFit(target, kind)
    for column in known:
        fit.add(column)
    return fit


def _refuse_decimal_commas(target: Target, columns: list[pa.ChunkedArray]) -> None:
    texts = pa.chunked_array([chunk for column in columns for chunk in column.cast(pa.string()).chunks])
    if not _has_decimal_commas(texts):
        return
    example = texts.filter(pc.match_substring_regex(texts, DECIMAL_COMMA))[0].as_py()
    raise RecipeError(
        f"the target {target.column} holds numbers with a decimal comma, such as {example!r}: write them "
        "with a decimal point, or set `target.task: multiclass` to predict them as classes"
    )


def _require_splits(recipe: Recipe, rows: pa.Table) -> None:
    """Check that each split gets a row with a target, where the main table alone decides it."""
    if not set(recipe.split.by) <= set(rows.column_names):
        return
    rows = rows.filter(is_known(rows[recipe.target.column]))
    assigned = assign_splits(rows, recipe.split, recipe.seed, rows.column_names).split_indices
    counts = np.bincount(assigned, minlength=len(SPLITS))
    if empty := [split for split, count in zip(SPLITS, counts, strict=True) if not count]:
        raise DataError(
            f"of {rows.num_rows} rows with a target, none falls into the split {' or '.join(empty)}: "
            "use more rows, choose a finer `split.by`, or another `seed`"
        )


def _sentence(target: Target, fit: TargetFit, rows: int, *, is_whole: bool) -> str:
    """Return the sentence. Raises DataError, RecipeError."""
    found, name = fit.encoder(), target.column
    where = "" if is_whole else f" in the first {rows:,} rows"
    if target.above is not None:
        return f"target {name}: binary, whether it is above {target.above:g} (`target.above`)"
    if found.task == "regression":
        what = "regression, a number is predicted"
    else:
        values = ", ".join(found.classes[:5]) + (", ..." if len(found.classes) > 5 else "")
        what = f"{found.task}, {len(found.classes)} classes{where}: {values}"
    if target.task is not None:
        return f"target {name}: {what} (`target.task`)"
    other = "multiclass" if found.task == "regression" else "regression"
    hint = f"; to change it, set `target.task: {other}`" if fit.is_number else ""
    return f"target {name}: {what}{hint}"
