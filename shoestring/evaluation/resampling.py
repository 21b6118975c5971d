"""Bootstrap confidence intervals over sampling units: groups of correlated rows, or single rows.

A unit that is drawn twice gives its rows twice the weight. Metrics are computed from sums over the rows of
each unit, so a draw costs as much as there are units. All metrics and all models use the same draws,
so that differences are paired. With few units the percentile interval is too narrow. It is widened as in
Hesterberg 2015, "What Teachers Should Know About the Bootstrap", section 5.3 ("expanded percentile
interval"): the tails are those that a t interval with units - 1 degrees of freedom, whose standard error
is computed with units - 1 in the denominator, would have on the normal scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import NormalDist

import numpy as np

from shoestring.core.errors import StageStopped
from shoestring.evaluation.metrics import Statistic
from shoestring.evaluation.results import Score
from shoestring.evaluation.units import Floats, SamplingUnits

RESAMPLES = 1000
MIN_RESAMPLES = 200
"""With this number of draws, an evaluation that has to stop ends with the intervals that it has."""

CONFIDENCE = 0.95
MIN_UNITS = 5
"""With fewer units, their spread cannot be estimated."""

NORMAL = NormalDist()


MAX_BLOCK, BLOCK_CELLS = 50, 1 << 21
"""The draws that are computed at once, at most; fewer where their unit weights would need more cells."""


def draws(units: SamplingUnits, seed: int) -> Iterator[Floats]:
    """Yield `RESAMPLES` vectors of unit weights, float[units]. The same seed yields the same weights."""
    generator = np.random.default_rng(seed)
    for _ in range(RESAMPLES):
        drawn = np.bincount(generator.integers(units.count, size=units.count), minlength=units.count)
        yield drawn.astype(np.float64)


@dataclass(frozen=True, slots=True)
class ResampledMetric:
    """A measured value, and its value in each draw: float[draws], nan where there was nothing to measure."""

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
    units: SamplingUnits,
    seed: int,
    report: Callable[[str, int], None],
) -> list[ResampledMetric]:
    """Compute each statistic with every unit once, and under the same draws.

    `report` is called before each block of draws, and may raise StageStopped: before `MIN_RESAMPLES` it is
    raised, and later it ends the draws.
    """
    drawn, weights = np.empty((RESAMPLES, len(statistics))), draws(units, seed)
    block = max(1, min(MAX_BLOCK, BLOCK_CELLS // units.count))
    for start in range(0, RESAMPLES, block):
        try:
            report("resampling", start)
        except StageStopped:
            if start < MIN_RESAMPLES:
                raise
            drawn = drawn[:start]
            break
        w = np.stack(list(islice(weights, block)))
        for index, statistic in enumerate(statistics):
            drawn[start : start + block, index] = statistic(w)
    once = np.ones(units.count)
    return [
        ResampledMetric(float(statistic(once)), drawn[:, index], units.count)
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
