"""Look at the target before anything is paid: what will be predicted, and what cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shoestring.core.errors import DataError, RecipeError
from shoestring.data.inspect.sample import TableSample
from shoestring.data.recipe import Recipe, Target
from shoestring.data.source import StatedKind
from shoestring.data.sources.table import SourceTable
from shoestring.data.sources.text.written_dates import PATTERN
from shoestring.data.transforms.split import SPLITS, Indices, assign_table
from shoestring.data.transforms.target import TargetFit, is_above, is_known, is_numeric

DECIMAL_COMMA = r"^\s*[-+]?[0-9.]*[0-9],[0-9]+\s*$"
WRITTEN_NUMBERS = {
    "thousands commas": (r"^\s*[-+]?[1-9][0-9]{0,2}((,[0-9]{3})+(\.[0-9]+)?|(\.[0-9]+)?)\s*$", ","),
    "a decimal comma": (DECIMAL_COMMA, ","),
    "a percent sign": (r"^\s*[-+]?[0-9]+([.,][0-9]+)?\s*%\s*$", "%"),
}
"""Ways of writing numbers that are read as text: a pattern of all values, and the sign that some contain."""
WRITTEN_VALUES = {f"numbers with {way}": looks for way, looks in WRITTEN_NUMBERS.items()} | {
    "dates with the day or the month first": (PATTERN, ""),
}

REMEDIES: dict[str, tuple[StatedKind, ...]] = {
    "numbers with thousands commas": ("thousands commas", "decimal comma"),
    "numbers with a decimal comma": ("decimal comma",),
    "numbers with a percent sign": ("number", "decimal comma"),
    "dates with the day or the month first": ("day first", "month first"),
}
"""The kinds that a recipe may state for each of them."""

MAX_SEEDS, MAX_ROWS_TRIED = 1000, 100_000
"""How many seeds are tried, and on how many rows in all, to advise one of them."""

WRITTEN_SHARE = 0.9
"""The share of values that must match for a column to hold numbers that are written in such a way."""


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
    sample, main = samples[owner], samples[recipe.main]
    _require_features(recipe, main.table.names)
    if owner == recipe.main and sample.whole is not None:
        rows = sample.whole.rows
        sample.whole.quarantine.check(rows.num_rows)
        fit = _fitted(target, [rows[target.column]])
        _require_splits(recipe, rows)
        return _sentence(target, fit) + _written_note(recipe, rows)
    columns, rows_read = [sample.rows[target.column]], sample.rows_read
    if not sample.is_whole and len(_outcomes(columns[0], target).unique().drop_null()) < 2:
        columns = _first_columns(sample.table, target)
        rows_read = sum(map(len, columns))
    where = "" if sample.is_whole else f" in the first {rows_read:,} rows"
    return _sentence(target, _fitted(target, columns), where) + _written_note(recipe, main.rows)


def _written_note(recipe: Recipe, rows: pa.Table) -> str:
    """Return a warning about features that are numbers written so that they are read as text."""
    ignored = {recipe.target.column, *recipe.leaks, *recipe.categorical, *recipe.kinds}
    found: dict[str, list[str]] = {}
    for name in rows.column_names:
        if name not in ignored and pa.types.is_string(rows[name].type) and (way := _written_as(rows[name])):
            found.setdefault(way, []).append(name)
    return "".join(
        f"; {', '.join(names)}: {way} are read as text, such as {_example(rows[names[0]], way)}; "
        f"{_remedy(names[0], way)}"
        for way, names in found.items()
    )


def _remedy(name: str, way: str) -> str:
    return "state " + " or ".join(f"`kinds: {{{name}: {kind}}}`" for kind in REMEDIES[way])


def _example(texts: pa.ChunkedArray, way: str) -> str:
    return repr(texts.filter(pc.match_substring(texts, WRITTEN_VALUES[way][1]))[0].as_py())


def _written_as(texts: pa.ChunkedArray) -> str:
    """Return how these texts are written as numbers or dates, a key of WRITTEN_VALUES; empty: they are
    not."""
    for way, (pattern, sign) in WRITTEN_VALUES.items():
        share = pc.mean(pc.match_substring_regex(texts, pattern).cast(pa.int8())).as_py()
        has_sign = pc.any(pc.match_substring(texts, sign)).as_py()
        if share is not None and share >= WRITTEN_SHARE and has_sign:
            return way
    return ""


def _require_features(recipe: Recipe, names: list[str]) -> None:
    joined = [column for join in recipe.joins for column in join.columns]
    if not {*names, *joined} - {recipe.target.column, *recipe.leaks}:
        raise DataError(
            f"table {recipe.main} has only the target {recipe.target.column} and leaks: "
            "there is no column to predict it from"
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
    if target.task in (None, "regression") and not is_numeric(kind):
        _refuse_written_numbers(target, known)
    fit = TargetFit(target, kind)
    for column in known:
        fit.add(column)
    return fit


def _refuse_written_numbers(target: Target, columns: list[pa.ChunkedArray]) -> None:
    texts = pa.chunked_array([chunk for column in columns for chunk in column.cast(pa.string()).chunks])
    if not (way := _written_as(texts)):
        return
    classes = (
        "" if target.above is not None else ", or set `target.task: multiclass` to predict them as classes"
    )
    raise RecipeError(
        f"the target {target.column} holds {way}, such as {_example(texts, way)}: "
        f"{_remedy(target.column, way)}{classes}"
    )


def _require_splits(recipe: Recipe, rows: pa.Table) -> None:
    """Check that each split gets a row with a target, where the main table alone decides it."""
    if not set(recipe.split.by) <= set(rows.column_names):
        return
    # numpy asks pyarrow for booleans by way of pandas.
    known = np.from_dlpack(is_known(rows[recipe.target.column]).cast(pa.int8()).combine_chunks()) > 0
    counts = np.bincount(_split_of_rows(recipe, rows)[known], minlength=len(SPLITS))
    if empty := [split for split, count in zip(SPLITS, counts, strict=True) if not count]:
        raise DataError(
            f"of {known.sum()} rows with a target, none falls into the split {' or '.join(empty)}: "
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
