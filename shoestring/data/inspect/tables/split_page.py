"""The splits on the page: the rows of each, where the data names them, and rows that are in two."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from shoestring.core.errors import DataError, RecipeError
from shoestring.data.inspect.columns import SampleTarget, has_weight
from shoestring.data.inspect.tables.table_sample import TableSample
from shoestring.data.recipe import Recipe
from shoestring.data.split_settings import SPLITS, split_of_name
from shoestring.data.transforms.split import assign_table, unit_columns, unit_name
from shoestring.data.transforms.splits.given_split import count_splits, given_split
from shoestring.data.transforms.splits.row_hashes import hash_key, row_hashes

MIN_DISTINCT_SHARE = 0.5
"""Equal rows are copies of each other where at least this share of all rows differ."""

Flags = np.ndarray[Any, np.dtype[np.bool_]]


def page_splits(
    recipe: Recipe, rows: pa.Table, main: TableSample, target: SampleTarget | None, known: int
) -> tuple[dict[str, int], str]:
    """Return the rows of each split, and the units of the split; empty: all rows have to be counted.

    `target`: None, if it does not fit. `known`: the rows of the table that are expected to have one.
    """
    counted = target.known & has_weight(recipe, rows) if target else None
    if recipe.split_column and not main.is_whole:
        return _expected(recipe, rows, counted, known)
    shares = np.array([recipe.split.train, recipe.split.val, recipe.split.test])
    if not main.is_whole and (recipe.split.time or recipe.split.by):
        return _by_name(shares * known), "times" if recipe.split.time else unit_name(recipe.split, "groups")
    try:
        rule, assigned = assign_table(rows, recipe, main.rows.column_names)
    except (DataError, RecipeError):  # The page has it as its refusal.
        return dict.fromkeys(SPLITS, 0), ""
    if counted is None or not main.is_whole:
        # Rows that were not read may differ.
        unit = "" if rule.unit == "rows" and not main.is_whole else unit_name(recipe.split, rule.unit)
        return _by_name(shares * known), unit
    found = assigned.split_indices[counted]
    counts = np.bincount(found[found >= 0], minlength=len(SPLITS))
    # Rows that the data assigns are not kept together.
    unit = "" if recipe.split_column and not recipe.split.by else unit_name(recipe.split, rule.unit)
    return _by_name(counts * 1.0), unit


def _expected(
    recipe: Recipe, rows: pa.Table, counted: Flags | None, known: int
) -> tuple[dict[str, int], str]:
    """Return the rows of each split if those that were not read are in the same ones as a sample."""
    try:
        given = given_split([rows], recipe)
    except DataError:  # The page has it as its refusal.
        return dict.fromkeys(SPLITS, 0), ""
    found = given.place(rows, np.zeros(rows.num_rows, np.int64))
    found = found if counted is None else found[counted]
    shares = np.bincount(found[found >= 0], minlength=len(SPLITS)) / max(1, len(found))
    to_train, to_val = given.bounds(recipe.split)
    shares += np.array([to_train - 1, to_val - to_train, 1 - to_val]) * shares[0]
    return _by_name(shares * known), unit_name(recipe.split, "groups") if recipe.split.by else ""


def has_split_names(names: Iterable[str]) -> bool:
    """Return whether each file is named by a split, some by train, and some by another one."""
    found = {split_of_name(name) for name in names}
    return "train" in found and len(found) > 1 and None not in found


def split_remarks(recipe: Recipe, names: Iterable[str]) -> Iterator[str]:
    """Yield the splits that the names of the files of the main table give, or could give."""
    named: dict[str, str] = {}
    for name in names:
        named.setdefault(split_of_name(name) or "", name)
    found = [split for split in SPLITS if split in named]
    examples = " and ".join(named[split] for split in found)
    if recipe.source[recipe.main].splits and found:
        drawn = [split for split in SPLITS if split not in found]
        more = f"; rows of {' and '.join(drawn)} are drawn from train" if drawn else ""
        yield f"rows are in the splits that the names of files give, such as {examples}{more}"
    elif not recipe.split_column and has_split_names(named.values()):
        yield (
            f"files are named by splits, such as {examples}: `splits: true` in the source keeps their rows "
            "in these"
        )


def split_names(recipe: Recipe, main: TableSample) -> Iterator[str]:
    """Yield the names that may name the splits of rows: of files, or of the images of a sample."""
    if recipe.image is None or recipe.image.column not in main.rows.column_names:
        yield from (file.name for file in main.files)
        return
    yield from (str(path).partition("#")[0] for path in main.rows[recipe.image.column].to_pylist())


def split_column_remarks(recipe: Recipe, main: TableSample) -> Iterator[str]:
    """Yield what the column of `split.column` gives."""
    if not (column := recipe.split.column) or column not in main.rows.column_names:
        return
    try:
        found = count_splits([main.rows], column, recipe.target.column)
    except DataError:  # The page has it as its refusal.
        return
    drawn = [split for split in SPLITS if not found[split]] if main.is_whole else []
    more = f"; rows of {' and '.join(drawn)} are drawn from train" if drawn else ""
    left_out = f"; {found['']:,} without one are left out" if found[""] else ""
    yield f"rows are in the splits that {column} names{more}{left_out}"


def split_findings(recipe: Recipe, rows: pa.Table, main: TableSample) -> Iterator[str]:
    """Yield how many rows of a table that was read whole are in a split that the data names, and equal ones
    in train."""
    if not recipe.split_column or not main.is_whole:
        return
    try:
        rule, assigned = assign_table(rows, recipe, main.rows.column_names)
    except (DataError, RecipeError):  # The page has it as its refusal.
        return
    columns = recipe.split.by or unit_columns(recipe, main.rows.column_names)
    hashes = row_hashes(rows.select([*columns]), hash_key(0))
    if not recipe.split.by and len(np.unique(hashes)) < MIN_DISTINCT_SHARE * len(hashes):
        return  # Rows of a few columns are often equal, though each is one of its own.
    by_split = {split: hashes[assigned.split_indices == index] for index, split in enumerate(SPLITS)}
    like = f"have a {' and '.join(recipe.split.by)} of" if recipe.split.by else "equal, but for the target,"
    for split in rule.given:
        repeated = int(np.isin(by_split[split], by_split["train"]).sum()) if split != "train" else 0
        if repeated:
            yield (
                f"{repeated:,} of {len(by_split[split]):,} rows of {split} {like} rows of train, so a model "
                "may know their answer: remove them from one of the two"
            )


def _by_name(counts: np.ndarray[Any, np.dtype[np.floating[Any]]]) -> dict[str, int]:
    return {split: round(float(rows)) for split, rows in zip(SPLITS, counts, strict=True)}
