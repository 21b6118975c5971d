"""Encode columns for storage: numbers as float64 and categories as codes of a dictionary that only grows.

What is stored depends on the row alone, and on no other row's values. The statistics of train are kept
beside it, and are applied when a batch is collated.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shoestring.core.datasets import GROUP_COLUMN, TARGET_COLUMN, WEIGHT_COLUMN
from shoestring.core.errors import DataError
from shoestring.data.recipe import MAX_CATEGORIES
from shoestring.data.sources.column_types import float_scalar, float_values

MIN_CATEGORY_ROWS = 5
"""A category with fewer rows in train shares the code of unknown categories."""

MAX_NUMBER = 1e30
"""The largest absolute value of a number. Models read float32, which ends at 3.4e38."""

HASHED_CODES = 4096
"""Codes that the values of a column share beyond those that have one of their own."""

MIN_INDICATED_SHARE = 0.01
"""A number missing in at least this share of train gets an indicator column. Below it, the column costs
more than it helps."""

FeatureKind = Literal["categorical", "numeric"]
Codes = np.ndarray[Any, np.dtype[np.int32]]
Counts = np.ndarray[Any, np.dtype[np.int64]]
Numbers = np.ndarray[Any, np.dtype[np.float64]]


class Dictionary:
    """The values of a column as text, in the order in which they first appeared. Value number i has the code
    i + 1. Code 0 is a missing value. After the first `most` values, a new one shares the code of its hash,
    so that memory is bounded.
    """

    def __init__(self, values: Sequence[str] = (), most: int = MAX_CATEGORIES, *, grows: bool = True) -> None:
        """`values`: those of an earlier version of the data set, which keep their codes. Unless it `grows`, a
        new value has the code of a missing one."""
        self._most, self._grows = most, grows
        self.values = [*values]
        self._codes = {text: code for code, text in enumerate(self.values, 1)}

    def encode(self, column: pa.ChunkedArray) -> Codes:
        """Return the codes of the values: int32[rows]. New values are added."""
        encoded = column.combine_chunks().dictionary_encode()
        codes = [self._code(text) for text in column_as_text(encoded.dictionary).to_pylist()]
        indices = np.from_dlpack(encoded.indices.fill_null(len(codes))).astype(np.int64)
        return np.take(np.array([*codes, 0], np.int32), indices)

    def _code(self, text: str) -> int:
        code = self._codes.get(text)
        if code is None:
            if len(self.values) >= self._most:
                text = f"hash {crc32(text.encode()) % HASHED_CODES} of further values"
                if text in self._codes:
                    return self._codes[text]
            if not self._grows:
                return 0
            self.values.append(text)
            code = self._codes[text] = len(self.values)
        return code


class CodeCounts:
    """The number of rows of each code, from 0 on."""

    def __init__(self, counts: Sequence[int] | Counts = (0,)) -> None:
        self.counts: Counts = np.array(counts, np.int64)

    def add(self, codes: Codes) -> None:
        """Add rows."""
        found = np.bincount(codes, minlength=len(self.counts))
        found[: len(self.counts)] += self.counts
        self.counts = found

    def remove(self, codes: Codes) -> None:
        """Take away rows that were added."""
        self.counts = self.counts - np.bincount(codes, minlength=len(self.counts))

    def of_values(self, values: int) -> Counts:
        """Return the counts of the codes 1 to `values`."""
        found = np.zeros(values, np.int64)
        found[: len(self.counts) - 1] = self.counts[1:]
        return found


@dataclass(slots=True)
class RunningMoments:
    """Count, mean, sum of squared deviations and range of numbers that arrive in batches (Chan, Golub and
    LeVeque 1979, eq. 2.1). A row counts as much as its weight."""

    rows: float = 0.0
    count: float = 0.0
    mean: float = 0.0
    squares: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    def add(self, values: Numbers, weights: Numbers | None = None) -> None:
        """Add rows; a NaN is a missing value. `weights`: float64[rows], above 0; None: all are 1."""
        weights = np.ones(len(values)) if weights is None else weights
        known = ~np.isnan(values)
        self.rows += float(weights.sum())
        values, weights = values[known], weights[known]
        if not len(values):
            return
        self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))
        if self.largest > MAX_NUMBER:  # The squares of larger numbers overflow.
            return
        added = float(weights.sum())
        total, mean = self.count + added, float((weights * values).sum()) / added
        delta = mean - self.mean
        self.squares += float((weights * (values - mean) ** 2).sum()) + delta**2 * self.count * added / total
        self.mean += delta * added / total
        self.count = total

    @classmethod
    def merged(cls, parts: Numbers) -> Self:
        """Return the moments of all rows from those of parts, float64[parts, 6] in the order of the fields.

        Each sum is rounded once, so the order of the parts does not matter.
        """
        rows, counts, means, squares, low, high = parts.T
        count = math.fsum(counts)
        mean = math.fsum(counts * means) / count if count else 0.0
        return cls(
            rows=math.fsum(rows),
            count=count,
            mean=mean,
            squares=math.fsum(squares) + math.fsum(counts * (means - mean) ** 2),
            low=float(low.min(initial=math.inf)),
            high=float(high.max(initial=-math.inf)),
        )

    def require_bounded(self, name: str) -> None:
        """Check that the numbers of column `name` fit into a model's inputs. Raises DataError."""
        if self.largest > MAX_NUMBER:
            raise DataError(
                f"column {name} holds numbers up to {self.largest:.3g}, and at most {MAX_NUMBER:g} can be "
                "used: remove these rows, or use another unit"
            )

    @property
    def largest(self) -> float:
        """The largest absolute value."""
        return max(self.high, -self.low, 0.0)

    @property
    def sd(self) -> float:
        return math.sqrt(self.squares / self.count) if self.count else 0.0

    @property
    def missing(self) -> float:
        return self.rows - self.count


def encoded_name(name: str) -> str:
    """Return the name of an encoded column: its own, with `_` added when the encoded data set reserves
    the name."""
    return f"{name}_" if name in (TARGET_COLUMN, GROUP_COLUMN, WEIGHT_COLUMN) else name


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
    return pc.if_else(pc.is_finite(values), values, pa.nulls(1, pa.float64())[0])


def number_values(column: pa.ChunkedArray) -> Numbers:
    """Return the values as float64[rows]; NaN where missing or not finite."""
    return float_values(column_as_number(column).fill_null(float_scalar(math.nan)))
