"""Look at the target before anything is paid: what will be predicted, and what cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from shoestring.core.errors import DataError, RecipeError
from shoestring.data.inspect.columns import has_weight
from shoestring.data.inspect.schema.column_readings import why_text
from shoestring.data.inspect.tables.table_sample import TableSample
from shoestring.data.recipe import Recipe, Target
from shoestring.data.sources.column_types import BOOLEAN, INTEGER
from shoestring.data.sources.open_table import left_out_of
from shoestring.data.sources.table import SourceTable
from shoestring.data.split_settings import SPLITS
from shoestring.data.transforms.split import assign_table
from shoestring.data.transforms.splits.given_split import Indices, count_splits
from shoestring.data.transforms.target import TargetFit, is_above, is_known, is_numeric, read_weights
from shoestring.data.transforms.times.time_split import time_split, time_values
from shoestring.data.values import TEXT

MAX_SEEDS, MAX_ROWS_TRIED = 1000, 100_000
"""How many seeds are tried, and on how many rows in all, to advise one of them."""


def preview_target(recipe: Recipe, samples: Mapping[str, TableSample]) -> str:
    """Return what a run will predict, as a sentence with the key that changes it.

    If the sample shows one value, it reads the target until it shows two. It infers the task as preprocess
    will. Of a table that was read whole, the splits are checked as well.

    Raises:
        DataError: nothing can be predicted: no values, one value, no features, or an empty split.
        RecipeError: the target does not fit the recipe's task, or holds numbers that are read as text.
    """
    target = recipe.target
    owner = next(name for name in (recipe.main, *samples) if target.column in samples[name].table.names)
    sample = samples[owner]
    _require_features(recipe, samples[recipe.main].table)
    if recipe.split_column:
        count_splits([samples[recipe.main].rows], recipe.split_column, recipe.target.column)
    if recipe.split.time:
        time_values(samples[recipe.main].rows, recipe.split.time)
    _require_weights(recipe, samples)
    if owner == recipe.main and sample.whole is not None:
        rows = sample.whole.rows
        sample.whole.quarantine.check(rows.num_rows)
        _require_reading(target, sample, rows[target.column].type)
        fit = _fitted(target, [rows[target.column]])
        _require_splits(recipe, rows)
        return _sentence(target, fit)
    columns, rows_read = [sample.rows[target.column]], sample.rows_read
    if not sample.is_whole and len(_outcomes(columns[0], target).unique().drop_null()) < 2:
        columns = _first_columns(sample.table, target)
        rows_read = sum(map(len, columns))
    _require_reading(target, sample, columns[0].type)
    where = "" if sample.is_whole else f" in {rows_read:,} rows read"
    return _sentence(target, _fitted(target, columns), where)


def _require_features(recipe: Recipe, table: SourceTable) -> None:
    joined = [column for join in recipe.joins for column in join.columns]
    if not {*table.names, *joined} - {recipe.target.column, recipe.weight, *recipe.leaks}:
        others = left_out_of({recipe.main: table}).items()
        left_out = "".join(f"; the column {name} is {why.sentence}" for name, why in others)
        raise DataError(
            f"table {recipe.main} has only the target {recipe.target.column} and leaks: "
            f"there is no column to predict it from{left_out}"
        )


def _require_weights(recipe: Recipe, samples: Mapping[str, TableSample]) -> None:
    """Check the weights of the rows that were read. Their type is checked with those of the features. Raises
    DataError."""
    for sample in samples.values():
        if recipe.weight not in sample.rows.column_names:
            continue
        column = sample.rows[recipe.weight]
        if (
            is_numeric(column.type)
            and not (read_weights(recipe.weight, column) > 0).any()
            and sample.is_whole
        ):
            raise DataError(
                f"the weight {recipe.weight} is 0 or missing in all {len(column):,} rows: remove `weight`, "
                "or name another column"
            )


def _first_columns(table: SourceTable, target: Target) -> list[pa.ChunkedArray]:
    """Return the target from the first block on, until two values are found."""
    found: list[pa.ChunkedArray] = []
    outcomes: set[object] = set()
    for rows in table.peek([target.column]):
        column = rows[target.column]
        found.append(column)
        outcomes |= {*_outcomes(column, target).unique().drop_null().to_pylist()}
        if len(outcomes) > 1:
            break
    kinds = {each.type for each in found}
    return found if len(kinds) == 1 else [each.cast(pa.string()) for each in found]


def _outcomes(column: pa.ChunkedArray, target: Target) -> pa.ChunkedArray:
    if target.above is None or not is_numeric(column.type):
        return column
    return is_above(column, target.above)


def _fitted(target: Target, columns: list[pa.ChunkedArray]) -> TargetFit:
    """Return the fit to all values. Raises DataError, RecipeError."""
    kind = columns[0].type
    known = [column.filter(is_known(column)) for column in columns]
    if not sum(map(len, known)):
        raise DataError(f"the target {target.column} has no values: every row is empty, or not a number")
    fit = TargetFit(target, kind)
    for column in known:
        fit.add(column)
    return fit


def _require_reading(target: Target, sample: TableSample, kind: pa.DataType) -> None:
    """Raise RecipeError for a target of text that was probably meant to be numbers or dates."""
    reading = sample.readings.get(target.column)
    if target.task not in (None, "regression") or is_numeric(kind) or reading is None:
        return
    # Classes may be whole numbers and a word.
    if reading.kind != TEXT or reading.nearest in (INTEGER, BOOLEAN):
        return
    if reason := why_text(target.column, reading):
        classes = "" if target.above is not None else ", or set `target.task: multiclass` to predict classes"
        raise RecipeError(f"the target {target.column} is {reason}{classes}")


def _require_splits(recipe: Recipe, rows: pa.Table) -> None:
    """Check that each split gets a row with a target, where the main table alone decides it."""
    if recipe.split.time:
        time_split([rows], recipe)
    if recipe.split.time or not set(recipe.split.by) <= set(rows.column_names):
        return
    # numpy asks pyarrow for booleans by way of pandas.
    known = np.from_dlpack(is_known(rows[recipe.target.column]).cast(pa.int8()).combine_chunks()) > 0
    known &= has_weight(recipe, rows)
    found = _split_of_rows(recipe, rows)[known]
    counts = np.bincount(found[found >= 0], minlength=len(SPLITS))
    if empty := [split for split, count in zip(SPLITS, counts, strict=True) if not count]:
        weighted = " and a weight" if recipe.weight else ""
        raise DataError(
            f"of {known.sum()} rows with a target{weighted}, none falls into the split {' or '.join(empty)}: "
            f"use more rows, or choose a finer `split.by`{_other_seed(recipe, rows, known)}"
        )


def _split_of_rows(recipe: Recipe, rows: pa.Table) -> Indices:
    return assign_table(rows, recipe, rows.column_names)[1].split_indices


def _other_seed(recipe: Recipe, rows: pa.Table, known: np.ndarray[Any, np.dtype[np.bool_]]) -> str:
    """Return the advice of a seed that gives each split two values of the target; empty: none."""
    values = rows[recipe.target.column]
    if recipe.target.above is not None:
        values = is_above(values, recipe.target.above)
    values = np.asarray(values.dictionary_encode().combine_chunks().indices.fill_null(-1))
    for seed in range(min(MAX_SEEDS, MAX_ROWS_TRIED // max(1, rows.num_rows))):
        found = _split_of_rows(recipe.model_copy(update={"seed": seed}), rows)
        if all(len(np.unique(values[known & (found == split)])) > 1 for split in range(len(SPLITS))):
            return f", or write `seed: {seed}` in the recipe (`--seed` does not change the splits)"
    return ""


def _sentence(target: Target, fit: TargetFit, where: str = "") -> str:
    """Return the sentence. `where`: the rows that show the classes. Raises DataError, RecipeError."""
    found, name = fit.statistics(), target.column
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
