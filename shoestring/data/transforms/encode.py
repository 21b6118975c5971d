"""Encode columns for a model: int32 codes for categories and standardised float32 for numbers, fitted on
train only."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shoestring.core.datasets import Feature
from shoestring.core.errors import DataError
from shoestring.data.transforms.split import GROUP_COLUMN

TARGET_COLUMN = "y"
"""The target column of an encoded data set."""

MIN_CATEGORY_ROWS = 5
"""A category with fewer rows in train shares the code of unknown categories."""

MAX_INFERRED_CATEGORIES = 64
"""A column of whole numbers is inferred to be categorical when train has at most this many distinct
values."""

MAX_NUMBER = 1e30
"""The largest absolute value of a number. Encoded data is float32, which ends at 3.4e38."""

MAX_COUNTED_VALUES = 1 << 20
"""The maximum number of distinct values that are counted; of further ones the first are kept."""

MIN_INDICATED_SHARE = 0.01
"""A number missing in at least this share of train gets an indicator column. Below it, the column costs
more than it helps."""

FeatureKind = Literal["categorical", "numeric"]


@dataclass(frozen=True, slots=True)
class CategoryEncoder:
    """Maps a category to its index in `values` + 1, and missing, rare or unseen ones to 0."""

    name: str
    values: pa.Array

    def features(self) -> tuple[Feature, ...]:
        return (Feature(name=encoded_name(self.name), kind="categorical", cardinality=len(self.values) + 1),)

    def encode(self, column: pa.ChunkedArray) -> list[pa.ChunkedArray]:
        """Return the codes: int32[rows]."""
        codes = pc.index_in(column_as_text(column), self.values, skip_nulls=True).fill_null(-1)
        return [pc.add(codes, pa.scalar(1, pa.int32()))]


@dataclass(frozen=True, slots=True)
class NumberEncoder:
    """Standardises a number: (value - mean) / sd, and 0 for a missing one.

    With `has_indicator`, a second column marks the missing values.
    """

    name: str
    mean: float
    sd: float
    has_indicator: bool

    def features(self) -> tuple[Feature, ...]:
        name = encoded_name(self.name)
        names = (name, f"{name}_missing") if self.has_indicator else (name,)
        return tuple(Feature(name=name, kind="numeric") for name in names)

    def encode(self, column: pa.ChunkedArray) -> list[pa.ChunkedArray]:
        """Return float32[rows], and a second float32[rows] with the indicator."""
        values = column_as_number(column)
        scaled = (
            pc.divide(pc.subtract(values, self.mean), self.sd).fill_null(0.0).cast(pa.float32(), safe=False)
        )
        return [scaled, pc.is_null(values).cast(pa.float32())] if self.has_indicator else [scaled]


class RunningMoments:
    """Count, mean and standard deviation of numbers that arrive in batches (Chan, Golub and LeVeque 1979,
    eq. 2.1)."""

    def __init__(self) -> None:
        self.count, self.mean, self._squares, self.largest = 0, 0.0, 0.0, 0.0

    def add(self, column: pa.ChunkedArray) -> None:
        """Add the values that are not missing."""
        values = column_as_number(column).drop_null().to_numpy()
        if not len(values):
            return
        self.largest = max(self.largest, float(np.abs(values).max()))
        if self.largest > MAX_NUMBER:  # The squares of larger numbers overflow.
            return
        total, mean = self.count + len(values), float(values.mean())
        delta = mean - self.mean
        self._squares += float(((values - mean) ** 2).sum()) + delta**2 * self.count * len(values) / total
        self.mean += delta * len(values) / total
        self.count = total

    def require_bounded(self, name: str) -> None:
        """Check that the numbers of column `name` fit into encoded data. Raises DataError."""
        if self.largest > MAX_NUMBER:
            raise DataError(
                f"column {name} holds numbers up to {self.largest:.3g}, and at most {MAX_NUMBER:g} can be "
                "used: remove these rows, or use another unit"
            )

    @property
    def sd(self) -> float:
        return math.sqrt(self._squares / self.count) if self.count else 0.0


class FeatureFit:
    """Fits the encoder of one column on its train rows.

    With `kind` None it is categorical when it has few distinct values, otherwise numeric.
    """

    def __init__(self, name: str, kind: FeatureKind | None) -> None:
        self.name, self._kind = name, kind
        self._counts: Counter[str] = Counter()
        self._moments = RunningMoments()
        self._rows = 0

    def add(self, column: pa.ChunkedArray) -> None:
        """Add train rows."""
        self._rows += len(column)
        max_values = MAX_INFERRED_CATEGORIES if self._kind is None else MAX_COUNTED_VALUES
        if self._kind != "numeric" and len(self._counts) <= max_values:
            count_values(self._counts, column)
        if self._kind != "categorical":
            self._moments.add(column)

    def encoder(self) -> CategoryEncoder | NumberEncoder:
        """Return the encoder, once all train rows were added. Raises DataError for numbers too large."""
        self._moments.require_bounded(self.name)
        inferred = self._kind is None and len(self._counts) <= MAX_INFERRED_CATEGORIES
        if self._kind == "categorical" or inferred:
            common = sorted(value for value, count in self._counts.items() if count >= MIN_CATEGORY_ROWS)
            return CategoryEncoder(self.name, pa.array(common, pa.string()))
        missing = self._rows - self._moments.count
        return NumberEncoder(
            self.name,
            self._moments.mean,
            self._moments.sd or 1.0,
            has_indicator=missing > 0 and missing >= MIN_INDICATED_SHARE * self._rows,
        )

    def is_informative(self) -> bool:
        """Return True when the encoded column is not constant in train."""
        if self._kind == "numeric":
            return self._moments.sd > 0 or 0 < self._moments.count < self._rows
        return self._moments.sd > 0 or sum(count >= MIN_CATEGORY_ROWS for count in self._counts.values()) > 1


def encoded_name(name: str) -> str:
    """Return the name of an encoded column: its own, with `_` added when the encoded data set reserves
    the name."""
    return f"{name}_" if name in (TARGET_COLUMN, GROUP_COLUMN) else name


def count_values(counts: Counter[str], column: pa.ChunkedArray) -> None:
    """Add the number of rows of each value, as text, to `counts`. Nulls are not counted."""
    values, found = pc.value_counts(column.drop_null()).flatten()
    for text, count in zip(column_as_text(values).to_pylist(), found.to_pylist(), strict=True):
        counts[text] += count


def column_as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values as category names."""
    return column.cast(pa.string())


def column_as_number(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return numbers, booleans and timestamps (in microseconds) as float64; null where missing or not
    finite."""
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int64() if pa.types.is_time64(column.type) else pa.timestamp("us")).cast(
            pa.int64()
        )
    values = column.cast(pa.float64(), safe=False)
    return pc.if_else(pc.is_finite(values), values, pa.scalar(None, pa.float64()))
