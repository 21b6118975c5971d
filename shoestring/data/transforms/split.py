"""Assign rows to splits by a keyed hash of their unit, so that rows added anywhere never move others; or by
their time, or as a column of the data names it.

A unit never depends on the target: rows that differ in it alone are in one split, or each is drawn by itself.
Otherwise train would lack just the outcomes that the test split has.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from shoestring.core.datasets import SplitRule
from shoestring.core.record import digest
from shoestring.data.recipe import Recipe
from shoestring.data.split_settings import Split
from shoestring.data.transforms.splits.given_split import GivenSplit, Indices, given_split
from shoestring.data.transforms.splits.row_hashes import Hashes, hash_key, mix, row_hashes, text_hash
from shoestring.data.transforms.times.time_split import TimeSplit, time_split

DAY_COLUMNS = frozenset({"day", "date"})

MIN_DISTINCT_ROWS = 1000
"""With fewer distinct rows, each row is a unit: whole distinct rows would make for a test split of a few,
all unseen."""

COUNTED_ROWS = 1 << 14
"""The rows whose hashes are counted at once."""

Groups = np.ndarray[Any, np.dtype[np.int32]]


@dataclass(frozen=True, slots=True)
class SplitAssignment:
    """The index in SPLITS of each row, int64[rows], and the id of its unit, int32[rows]: the low half of the
    unit's hash. The index of a row that is in no split is -1.

    `groups` is None when each row is a unit.
    """

    split_indices: Indices
    groups: Groups | None


def unit_columns(recipe: Recipe, names: Iterable[str]) -> list[str]:
    """Return the columns of the main table whose values are a row's unit: all but the target, the weight, the
    leaks, the name of the row's split, and the names of image files, whose content counts.

    Features are chosen after the split, and another choice has the same test rows.
    """
    ignored = {
        recipe.target.column,
        recipe.weight,
        *recipe.leaks,
        recipe.split_column,
        *([recipe.image.column] if recipe.image else []),
    }
    return [name for name in names if name not in ignored]


def split_rule(
    recipe: Recipe, names: Iterable[str], repeats: RepeatedRows | None, given: GivenSplit | None = None
) -> SplitRule:
    """Return the rule for a table with these columns. `repeats` None: it has many distinct rows."""
    of_data = () if given is None else given.names
    if recipe.split.by:
        return SplitRule(unit="groups", given=of_data)
    if recipe.text is not None:
        return SplitRule(unit="documents", given=of_data)
    names = [*names]
    ignored = tuple(sorted({*names} - {*unit_columns(recipe, names)}))
    return SplitRule(unit="distinct rows" if repeats is None else "rows", ignored=ignored, given=of_data)


def unit_name(split: Split, unit: str) -> str:
    """Return what a user calls the units of a split: groups by a day are days. `unit`: that of its rule."""
    if not split.by:
        return unit
    return "days" if split.by[-1].lower() in DAY_COLUMNS else "groups"


class RowPositions:
    """Numbers the rows of each distinct row, in order. `hashes`: uint64[distinct], sorted; `following`:
    int64[distinct], the number of the next row of each."""

    def __init__(self, hashes: Hashes, following: Indices) -> None:
        self._hashes, self._following = hashes, following.copy()

    def number(self, hashes: Hashes) -> Indices:
        """Return how many equal rows precede each of these: int64[rows]."""
        # Numbers below MIN_DISTINCT_ROWS fit int16, for which numpy sorts by radix.
        found = np.searchsorted(self._hashes, hashes).astype(np.int16)
        counts = np.bincount(found, minlength=len(self._hashes))
        positions = np.empty(len(found), np.int64)
        before = np.repeat(np.cumsum(counts) - counts, counts)
        positions[np.argsort(found, kind="stable")] = np.arange(len(found)) - before
        positions += self._following[found]
        self._following += counts
        return positions


@dataclass(frozen=True, slots=True)
class RepeatedRows:
    """The rows of a table with few distinct ones: their hashes, uint64[distinct], sorted, and how many rows
    of each precede each part of the table, int64[parts + 1, distinct]."""

    hashes: Hashes
    before: Indices

    def positions(self, part: int) -> RowPositions:
        return RowPositions(self.hashes, self.before[part])

    def start_digest(self, part: int) -> str:
        """Return a digest of the positions from which on the rows of a part are numbered; empty: from 0."""
        has_rows = self.before[part + 1] > self.before[part]
        starts = np.where(has_rows, self.before[part], 0)
        if not starts.any():
            return ""
        return digest(self.hashes[starts > 0].tobytes() + starts[starts > 0].tobytes())


def count_repeats(parts: Iterable[pa.Table], seed: int, columns: Sequence[str]) -> RepeatedRows | None:
    """Count the rows in the parts of a table that are equal in these columns.

    None: there are at least `MIN_DISTINCT_ROWS` distinct rows. The parts after the last one needed to know
    are not read.
    """
    distinct = np.zeros(0, np.uint64)
    counted: list[list[tuple[Hashes, Indices]]] = []
    for part in parts:
        counted.append([])
        for start in range(0, part.num_rows, COUNTED_ROWS):
            hashes = row_hashes(part.slice(start, COUNTED_ROWS).select([*columns]), hash_key(seed))
            found, counts = np.unique(hashes, return_counts=True)
            counted[-1].append((found, counts))
            distinct = np.union1d(distinct, found)
            if len(distinct) >= MIN_DISTINCT_ROWS:
                return None
    before = np.zeros((len(counted) + 1, len(distinct)), np.int64)
    for index, slices in enumerate(counted, 1):
        for found, counts in slices:
            before[index, np.searchsorted(distinct, found)] += counts
    return RepeatedRows(distinct, before.cumsum(axis=0))


def assign_splits(
    table: pa.Table,
    split: Split,
    seed: int,
    columns: Sequence[str],
    positions: RowPositions | None = None,
    given: GivenSplit | None = None,
) -> SplitAssignment:
    """Assign the rows of a table to splits. `columns` are its unit's; `positions`: each row is a unit;
    `given`: the splits that the data gives, of which train may lend rows to the others.

    A unit goes to the split whose share contains hash / 2^64. The hash is blake2b of the values of
    `split.by`. Without groups, it is a hash of the values of `columns`, mixed with the position of a row that
    repeats an earlier one. Hashes are keyed by the seed: the shares hold on average, and the more units there
    are, the more closely.
    """
    hashes, groups = _unit_hashes(table, split, hash_key(seed), columns, positions)
    indices = _split_indices(hashes, split, given)
    if groups is not None:
        indices = indices[groups]
    if given is not None:
        indices = given.place(table, indices)
    if positions is not None and groups is None:
        return SplitAssignment(indices, None)
    ids = _group_ids(hashes)
    return SplitAssignment(indices, ids if groups is None else ids[groups])


def with_split(table: pa.Table, assigned: SplitAssignment) -> tuple[pa.Table, SplitAssignment]:
    """Return the rows that are in a split."""
    indices, groups = assigned.split_indices, assigned.groups
    if not len(rows := np.flatnonzero(indices < 0)):
        return table, assigned
    rows = np.flatnonzero(indices >= 0)
    kept = table.take(pa.array(rows))
    return kept, SplitAssignment(indices[rows], None if groups is None else groups[rows])


def _unit_hashes(
    table: pa.Table,
    split: Split,
    key: hashlib.blake2b,
    columns: Sequence[str],
    positions: RowPositions | None,
) -> tuple[Hashes, Indices | None]:
    """Return the hash of each unit: uint64[units], and the unit of each row, int64[rows]; None: each row has
    a hash."""
    if split.by:
        chosen = table.select(split.by)
        rows, groups = _groups(chosen)
        return np.array([_hash(group, key) for group in chosen.take(rows).to_pylist()], np.uint64), groups
    hashes = row_hashes(table.select([*columns]), key)
    if positions is None:
        return hashes, None
    numbers = positions.number(hashes).astype(np.uint64)
    # The first of equal rows stays where it is when there are many distinct rows one day.
    return np.where(numbers > 0, mix(hashes, numbers), hashes), None


def assign_table(table: pa.Table, recipe: Recipe, names: Sequence[str]) -> tuple[SplitRule, SplitAssignment]:
    """Assign all rows of a table at once. `names`: the columns of the main table, without those joined.

    Raises RecipeError, DataError for a split by a time that the rows do not have.
    """
    if recipe.split.time:
        times = time_split([table], recipe)
        return times.rule, assign_by_time(table, times)
    given = given_split([table], recipe) if recipe.split_column else None
    columns = unit_columns(recipe, names)
    repeats = None if has_larger_units(recipe) else count_repeats([table], recipe.seed, columns)
    positions = None if repeats is None else repeats.positions(0)
    assigned = assign_splits(table, recipe.split, recipe.seed, columns, positions, given)
    return split_rule(recipe, names, repeats, given), assigned


def assign_by_time(table: pa.Table, times: TimeSplit) -> SplitAssignment:
    """Assign the rows of a table to splits by their time."""
    indices, values = times.assign(table)
    if times.rule.unit == "rows":
        return SplitAssignment(indices, None)
    # Adding 0 turns -0 into 0.
    return SplitAssignment(indices, _group_ids(mix((values + 0.0).view(np.uint64), np.uint64(0))))


def has_larger_units(recipe: Recipe) -> bool:
    """Return whether equal rows are one unit however few differ: groups, rows of one time, documents, and
    images, which are equal only as copies."""
    return bool(recipe.split.by or recipe.split.time) or recipe.text is not None or recipe.image is not None


def _group_ids(hashes: Hashes) -> Groups:
    return hashes.astype(np.uint32).view(np.int32)


def _split_indices(hashes: Hashes, split: Split, given: GivenSplit | None) -> Indices:
    bounds = [split.train, split.train + split.val] if given is None else given.bounds(split)
    return np.searchsorted(bounds, hashes / 2.0**64, side="right")


def _hash(group: dict[str, Any], key: hashlib.blake2b) -> int:
    return text_hash(json.dumps([_group_text(value) for value in group.values()]), key)


def _group_text(value: object) -> str:
    """Return the text of a value; a whole number has the same text in a column of floats."""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def _groups(columns: pa.Table) -> tuple[Indices, Indices]:
    """Return one row of each group, and the group of each row."""
    first, groups = np.zeros(0, np.int64), np.zeros(columns.num_rows, np.int64)
    for name in columns.column_names:
        encoded = columns[name].combine_chunks().dictionary_encode(null_encoding="encode")
        pairs = groups * len(encoded.dictionary) + np.from_dlpack(encoded.indices).astype(np.int64)
        _, first, groups = np.unique(pairs, return_index=True, return_inverse=True)
    return first, groups
