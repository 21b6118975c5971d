"""Split rows by a column of times: the latest rows are test, those before them val, and the others train."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from shoestring.core.datasets import SplitRule
from shoestring.core.errors import DataError, RecipeError
from shoestring.data.recipe import Recipe
from shoestring.data.transforms.dates import MICROSECONDS_A_DAY, is_date
from shoestring.data.transforms.encode import column_as_number, number_values
from shoestring.data.transforms.target import is_known, is_numeric

MAX_TIMES = 1 << 20
"""The different times that are counted exactly. Of more, times that are close to each other are counted
together, so that memory is bounded: a boundary is then off by the rows of one of so many steps."""

MIN_TIMES = 3
"""One for each split."""

Times = np.ndarray[Any, np.dtype[np.float64]]
Keys = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class TimeSplit:
    """The first times of val and test, as `number_values` has them, and the rule that records them.

    `left_out`: the rows without a time, which are in no split.
    """

    column: str
    val_from: float
    test_from: float
    rule: SplitRule
    left_out: int

    def assign(self, table: pa.Table) -> tuple[Keys, Times]:
        """Return the index of the split of each row, int64[rows], -1 without a time; and its time,
        float64[rows]."""
        times = number_values(table[self.column])
        indices = np.searchsorted([self.val_from, self.test_from], times, side="right")
        return np.where(np.isnan(times), -1, indices), times

    def with_time(self, table: pa.Table) -> pa.Table:
        """Return the rows that have a time."""
        return table.filter(column_as_number(table[self.column]).is_valid())

    @property
    def reasons(self) -> dict[str, int]:
        """The rows that are left out, by reason."""
        return {f"{self.column} is missing, by which rows are split": self.left_out} if self.left_out else {}


class TimeCounts:
    """The rows of each time, added in any order: the times as keys of the same order, int64[times], and
    their counts, int64[times].
    """

    def __init__(self) -> None:
        self.keys, self.rows, self.shift = np.zeros(0, np.int64), np.zeros(0, np.int64), 0
        self.are_days = True

    def add(self, times: Times) -> None:
        """Add rows. None of the times is NaN."""
        self.are_days &= not (times % MICROSECONDS_A_DAY).any()
        found, counts = np.unique(_keys(times) >> self.shift, return_counts=True)
        self._merge(np.concatenate([self.keys, found]), np.concatenate([self.rows, counts]))
        # The fewest bits are dropped with which the times so far fit: the order of the rows does not matter.
        while len(self.keys) > MAX_TIMES:
            self.shift += 1
            self._merge(self.keys >> 1, self.rows)

    def _merge(self, keys: Keys, rows: Keys) -> None:
        self.keys, places = np.unique(keys, return_inverse=True)
        self.rows = np.zeros(len(self.keys), np.int64)
        np.add.at(self.rows, places, rows)

    @property
    def repeat(self) -> bool:
        return self.shift > 0 or len(self.keys) < self.rows.sum()

    def boundaries(self, val: float, test: float) -> tuple[float, float]:
        """Return the first time of val and that of test, at which the shares of the rows from there on are
        nearest to the given ones. Each split has a time. Of at least `MIN_TIMES`."""
        shares = np.cumsum(self.rows[::-1])[::-1] / self.rows.sum()
        test_at = 2 + int(np.abs(shares[2:] - test).argmin())
        val_at = 1 + int(np.abs(shares[1:test_at] - (val + test)).argmin())
        first, second = _times(self.keys[[val_at, test_at]] << self.shift).tolist()
        return first, second


def time_split(parts: Iterable[pa.Table], recipe: Recipe) -> TimeSplit:
    """Return where `split.time` divides the rows with a target. `parts`: the main table, of which the column
    and, if it has it, the target are read.

    Raises:
        RecipeError: the column has no times or numbers.
        DataError: there are too few different times.
    """
    column, target = recipe.split.time, recipe.target.column
    counts, left_out, kind = TimeCounts(), 0, pa.null()
    for part in parts:
        kind, times = part.schema.field(column).type, time_values(part, column)
        has_time = ~np.isnan(times)
        left_out += int((~has_time).sum())
        if target in part.column_names:
            # numpy asks pyarrow for booleans by way of pandas.
            has_time &= np.from_dlpack(is_known(part[target]).cast(pa.int8()).combine_chunks()) > 0
        counts.add(times[has_time])
    if len(counts.keys) < MIN_TIMES:
        raise DataError(
            f"`split.time`: the rows with a target have {len(counts.keys)} different values of {column}, and "
            f"{MIN_TIMES} are needed, for train, val and test; use a finer column, or `split.by`"
        )
    unit = ("days" if is_date(kind) and counts.are_days else "times") if counts.repeat else "rows"
    boundaries = counts.boundaries(recipe.split.val, recipe.split.test)
    texts = tuple(time_text(each, kind) for each in boundaries)
    rule = SplitRule.model_validate({"unit": unit, "boundaries": texts})
    return TimeSplit(column, *boundaries, rule, left_out)


def time_values(table: pa.Table, column: str) -> Times:
    """Return the times of rows: float64[rows], microseconds for dates; NaN without one.

    Raises RecipeError for a column that has neither dates nor numbers.
    """
    kind = table.schema.field(column).type
    if not (is_date(kind) or is_numeric(kind) or pa.types.is_null(kind)):
        raise RecipeError(
            f"`split.time`: the column {column} is of type {kind}, and has to hold dates, such as "
            "2026-03-04, or numbers, such as a year"
        )
    return number_values(table[column])


def time_text(value: float, kind: pa.DataType) -> str:
    """Return a time of a column of this type as text: in ISO 8601, or as a number."""
    if not is_date(kind):
        return str(int(value) if value.is_integer() else value)
    moment = int(np.ceil(value))
    unit: Literal["us", "s", "D"] = "s" if moment % MICROSECONDS_A_DAY else "D"
    unit = "us" if moment % 1_000_000 else unit
    text = str(np.datetime_as_string(np.datetime64(moment, "us"), unit=unit))
    return f"{text}Z" if getattr(kind, "tz", None) and unit != "D" else text


def _keys(times: Times) -> Keys:
    """Return the bits of floats as integers of the same order. Adding 0 turns -0 into 0."""
    return _ordered((times + 0.0).view(np.int64))


def _times(keys: Keys) -> Times:
    return _ordered(keys).view(np.float64)


def _ordered(bits: Keys) -> Keys:
    """Return the integers with the bits of negative ones, but for the sign, inverted: its own inverse."""
    return np.where(bits < 0, bits ^ np.int64(np.iinfo(np.int64).max), bits)
