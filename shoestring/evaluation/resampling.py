"""Intervals by bootstrap over whole units: groups of rows that share their fate, or single rows.

A unit that is drawn twice gives its rows twice the weight. The same draws serve every metric and every contender, so that differences are
paired. Few units make the percentile interval too narrow; it is widened as in Hesterberg 2015, "What Teachers Should Know About the
Bootstrap", section 5.3 ("expanded percentile interval"): the tails asked for are those that a t interval of units - 1 degrees of freedom,
on the standard error with units - 1 below the line, would have on the normal scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from shoestring.evaluation.metrics import Floats, Statistic
from shoestring.evaluation.results import Score

RESAMPLES = 1000
CONFIDENCE = 0.95
MIN_UNITS = 5
"""Fewer say too little of how much they differ."""

NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class ResamplingUnits:
    """Which unit each row belongs to: int[n], from 0 to count - 1."""

    unit_of_row: np.ndarray[Any, np.dtype[np.int64]]
    count: int

    def draws(self, seed: int) -> Iterator[Floats]:
        """`RESAMPLES` times the weights of the rows, float[n]; the same for the same seed."""
        generator = np.random.default_rng(seed)
        for _ in range(RESAMPLES):
            drawn = np.bincount(generator.integers(self.count, size=self.count), minlength=self.count)
            yield drawn.astype(np.float64)[self.unit_of_row]


def make_units(groups: np.ndarray[Any, Any] | None, rows: int) -> ResamplingUnits:
    """Groups as they are marked in the rows; None: each row is a unit."""
    if groups is None:
        return ResamplingUnits(np.arange(rows), rows)
    found, of_row = np.unique(groups, return_inverse=True)
    return ResamplingUnits(of_row, len(found))


@dataclass(frozen=True, slots=True)
class ResampledMetric:
    """A value, and what it came to in each draw: float[RESAMPLES], nan where there was nothing to measure."""

    value: float
    draws: Floats
    units: int

    def __sub__(self, other: ResampledMetric) -> ResampledMetric:
        return ResampledMetric(self.value - other.value, self.draws - other.draws, self.units)

    def score(self) -> Score:
        """Without an interval when there are fewer than `FEWEST_UNITS`, or nothing to measure in most draws."""
        finite = self.draws[np.isfinite(self.draws)]
        if self.units < MIN_UNITS or 2 * len(finite) < len(self.draws):
            return Score(value=self.value)
        tail = expanded_tail(self.units)
        low, high = np.quantile(finite, [tail, 1 - tail])
        return Score(value=self.value, low=float(low), high=float(high))


def resample(
    statistics: Sequence[Statistic], units: ResamplingUnits, seed: int, tell: Callable[[str, int], None]
) -> list[ResampledMetric]:
    """Each statistic of the rows as they are and under the same draws; `tell` is called before each draw, and may raise to stop."""
    drawn = np.empty((RESAMPLES, len(statistics)))
    for place, w in enumerate(units.draws(seed)):
        tell("resampling", place)
        drawn[place] = [statistic(w) for statistic in statistics]
    plain = np.ones(len(units.unit_of_row))
    return [
        ResampledMetric(statistic(plain), drawn[:, place], units.count)
        for place, statistic in enumerate(statistics)
    ]


def expanded_tail(units: int) -> float:
    """The share of resamples to leave out on each side, for `CONFIDENCE` in the end."""
    return NORMAL.cdf(-student_quantile((1 + CONFIDENCE) / 2, units - 1) * math.sqrt(units / (units - 1)))


def student_quantile(share: float, freedom: int) -> float:
    """Student's t below which `share` lies; to 1% from 4 degrees of freedom on (Abramowitz and Stegun 1964, 26.7.5)."""
    z = NORMAL.inv_cdf(share)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3
