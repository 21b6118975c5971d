"""Bootstrap confidence intervals over sampling units: groups of correlated rows, or single rows.

A unit that is drawn twice gives its rows twice the weight. All metrics and all models use the same draws,
so that differences are paired. With few units the percentile interval is too narrow. It is widened as in
Hesterberg 2015, "What Teachers Should Know About the Bootstrap", section 5.3 ("expanded percentile
interval"): the tails are those that a t interval with units - 1 degrees of freedom, whose standard error
is computed with units - 1 in the denominator, would have on the normal scale.
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
"""With fewer units, their spread cannot be estimated."""

NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class ResamplingUnits:
    """The sampling unit of each row: int[n], from 0 to count - 1."""

    unit_of_row: np.ndarray[Any, np.dtype[np.int64]]
    count: int

    def draws(self, seed: int) -> Iterator[Floats]:
        """Yield `RESAMPLES` vectors of row weights, float[n]. The same seed yields the same weights."""
        generator = np.random.default_rng(seed)
        for _ in range(RESAMPLES):
            drawn = np.bincount(generator.integers(self.count, size=self.count), minlength=self.count)
            yield drawn.astype(np.float64)[self.unit_of_row]


def make_units(groups: np.ndarray[Any, Any] | None, rows: int) -> ResamplingUnits:
    """Return one unit for each distinct value of `groups`; with None, one unit for each row."""
    if groups is None:
        return ResamplingUnits(np.arange(rows), rows)
    found, unit_of_row = np.unique(groups, return_inverse=True)
    return ResamplingUnits(unit_of_row, len(found))


@dataclass(frozen=True, slots=True)
class ResampledMetric:
    """A measured value, and its value in each draw: float[RESAMPLES], nan where there was nothing to
    measure."""

    value: float
    draws: Floats
    units: int

    def __sub__(self, other: ResampledMetric) -> ResampledMetric:
        return ResampledMetric(self.value - other.value, self.draws - other.draws, self.units)

    def score(self) -> Score:
        """Return the value with its interval.

        There is no interval with fewer than `MIN_UNITS` units, or when most draws had nothing to measure.
        """
        finite = self.draws[np.isfinite(self.draws)]
        if self.units < MIN_UNITS or 2 * len(finite) < len(self.draws):
            return Score(value=self.value)
        tail = expanded_tail(self.units)
        low, high = np.quantile(finite, [tail, 1 - tail])
        return Score(value=self.value, low=float(low), high=float(high))


def resample(
    statistics: Sequence[Statistic],
    units: ResamplingUnits,
    seed: int,
    report: Callable[[str, int], None],
) -> list[ResampledMetric]:
    """Compute each statistic on the rows as they are, and under the same draws.

    `report` is called before each draw, and may raise to stop.
    """
    drawn = np.empty((RESAMPLES, len(statistics)))
    for index, w in enumerate(units.draws(seed)):
        report("resampling", index)
        drawn[index] = [statistic(w) for statistic in statistics]
    unweighted = np.ones(len(units.unit_of_row))
    return [
        ResampledMetric(statistic(unweighted), drawn[:, index], units.count)
        for index, statistic in enumerate(statistics)
    ]


def expanded_tail(units: int) -> float:
    """Return the share of resamples to cut off on each side, so that the interval covers `CONFIDENCE`."""
    return NORMAL.cdf(-student_quantile((1 + CONFIDENCE) / 2, units - 1) * math.sqrt(units / (units - 1)))


def student_quantile(probability: float, degrees_of_freedom: int) -> float:
    """Return the quantile of Student's t, within 1% from 4 degrees of freedom on (Abramowitz and Stegun
    1964, 26.7.5)."""
    z = NORMAL.inv_cdf(probability)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / degrees_of_freedom + second / degrees_of_freedom**2 + third / degrees_of_freedom**3
