"""Columns as a model reads them: int32 codes and standardised float32, both learned from the train split alone."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from shoestring.core.datasets import Feature
from shoestring.data.transforms.split import GROUP_COLUMN

TARGET_COLUMN = "y"
"""Column of an encoded data set: what is predicted."""

MIN_CATEGORY_ROWS = 5
"""A category that train holds fewer times than this shares the code of unknown ones."""

MAX_INFERRED_CATEGORIES = 64
"""A column of whole numbers is taken for categories when train holds at most so many different ones."""

MAX_COUNTED_VALUES = 1 << 20
"""Different values that are counted; a column with more keeps those that came first."""

MIN_INDICATED_SHARE = 0.01
"""A number that is missing in at least this share of train gets a column that says where; below it, that costs more than it tells."""

FeatureKind = Literal["categorical", "numeric"]


@dataclass(frozen=True, slots=True)
class CategoryEncoder:
    """Category -> its place in `values` + 1; 0 for a missing, rare or never seen one."""

    name: str
    values: pa.Array

    def features(self) -> tuple[Feature, ...]:
        return (Feature(name=encoded_name(self.name), kind="categorical", cardinality=len(self.values) + 1),)

    def encode(self, column: pa.ChunkedArray) -> list[pa.ChunkedArray]:
        """int32[rows]."""
        return [
            pc.add(
                pc.index_in(as_text(column), self.values, skip_nulls=True).fill_null(-1),
                pa.scalar(1, pa.int32()),
            )
        ]


@dataclass(frozen=True, slots=True)
class NumberEncoder:
    """(value - mean) / sd; 0 for a missing one, and when those are many a column of their own that says so."""

    name: str
    mean: float
    sd: float
    has_indicator: bool

    def features(self) -> tuple[Feature, ...]:
        name = encoded_name(self.name)
        names = (name, f"{name}_missing") if self.has_indicator else (name,)
        return tuple(Feature(name=name, kind="numeric") for name in names)

    def encode(self, column: pa.ChunkedArray) -> list[pa.ChunkedArray]:
        """float32[rows], once or twice."""
        values = as_number(column)
        scaled = (
            pc.divide(pc.subtract(values, self.mean), self.sd).fill_null(0.0).cast(pa.float32(), safe=False)
        )
        return [scaled, pc.is_null(values).cast(pa.float32())] if self.has_indicator else [scaled]


class RunningMoments:
    """Count, mean and standard deviation of numbers that come in batches: Chan, Golub and LeVeque 1979, eq. 2.1."""

    def __init__(self) -> None:
        self.count, self.mean, self._squares = 0, 0.0, 0.0

    def add(self, column: pa.ChunkedArray) -> None:
        """Take in the values that are there."""
        values = as_number(column).drop_null().to_numpy()
        if not len(values):
            return
        total, mean = self.count + len(values), float(values.mean())
        apart = mean - self.mean
        self._squares += float(((values - mean) ** 2).sum()) + apart**2 * self.count * len(values) / total
        self.mean += apart * len(values) / total
        self.count = total

    @property
    def sd(self) -> float:
        return math.sqrt(self._squares / self.count) if self.count else 0.0


class FeatureFit:
    """What the train rows of one column say about its encoding. `kind` None: categories if there are few different values, else numbers."""

    def __init__(self, name: str, kind: FeatureKind | None) -> None:
        self.name, self._kind = name, kind
        self._counts: Counter[str] = Counter()
        self._moments = RunningMoments()
        self._rows = 0

    def add(self, column: pa.ChunkedArray) -> None:
        """Take in train rows."""
        self._rows += len(column)
        if self._kind != "numeric" and len(self._counts) <= (
            MAX_INFERRED_CATEGORIES if self._kind is None else MAX_COUNTED_VALUES
        ):
            count_values(self._counts, column)
        if self._kind != "categorical":
            self._moments.add(column)

    def encoder(self) -> CategoryEncoder | NumberEncoder:
        """The encoding, once all of train was seen."""
        if self._kind == "categorical" or (
            self._kind is None and len(self._counts) <= MAX_INFERRED_CATEGORIES
        ):
            return CategoryEncoder(
                self.name,
                pa.array(
                    sorted(value for value, count in self._counts.items() if count >= MIN_CATEGORY_ROWS),
                    pa.string(),
                ),
            )
        missing = self._rows - self._moments.count
        return NumberEncoder(
            self.name,
            self._moments.mean,
            self._moments.sd or 1.0,
            has_indicator=missing > 0 and missing >= MIN_INDICATED_SHARE * self._rows,
        )

    def is_informative(self) -> bool:
        """Whether train holds anything to tell rows apart by."""
        if self._kind == "numeric":
            return self._moments.sd > 0 or 0 < self._moments.count < self._rows
        return self._moments.sd > 0 or sum(count >= MIN_CATEGORY_ROWS for count in self._counts.values()) > 1


def encoded_name(name: str) -> str:
    """What a source column is called once encoded: its own name, unless that is kept for another."""
    return f"{name}_" if name in (TARGET_COLUMN, GROUP_COLUMN) else name


def count_values(counts: Counter[str], column: pa.ChunkedArray) -> None:
    """Add how often each value, as text, is in the column; nulls are not counted."""
    values, found = pc.value_counts(column.drop_null()).flatten()
    for text, count in zip(as_text(values).to_pylist(), found.to_pylist(), strict=True):
        counts[text] += count


def as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values as the names of categories."""
    return column.cast(pa.string())


def as_number(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Numbers, truths and moments (microseconds) as float64; null where missing or not finite."""
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int64() if pa.types.is_time64(column.type) else pa.timestamp("us")).cast(
            pa.int64()
        )
    values = column.cast(pa.float64(), safe=False)
    return pc.if_else(pc.is_finite(values), values, pa.scalar(None, pa.float64()))
