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
from typing import Any

import numpy as np

from shoestring.evaluation.metrics import Floats, Statistic
from shoestring.evaluation.scorecard import Score

RESAMPLES = 1000
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Units:
    """Which unit each row belongs to: int[n], from 0 to count - 1."""

    of_row: np.ndarray[Any, np.dtype[np.int64]]
    count: int

    def draws(self, seed: int) -> Iterator[Floats]:
        """`RESAMPLES` times the weights of the rows, float[n]; the same for the same seed."""
        generator = np.random.default_rng(seed)
        for _ in range(RESAMPLES):
            drawn = np.bincount(generator.integers(self.count, size=self.count), minlength=self.count)
            yield drawn.astype(np.float64)[self.of_row]


def units_of(groups: np.ndarray[Any, Any] | None, rows: int) -> Units:
    """Groups as they are marked in the rows; None: each row is a unit."""
    if groups is None:
        return Units(np.arange(rows), rows)
    found, of_row = np.unique(groups, return_inverse=True)
    return Units(of_row, len(found))


def resample(statistics: Sequence[Statistic], units: Units, seed: int, tell: Callable[[str, int], None]) -> Floats:
    """Each statistic under each draw: float[RESAMPLES, len(statistics)]."""
    found = np.empty((RESAMPLES, len(statistics)))
    for place, w in enumerate(units.draws(seed)):
        tell("resampling", place)
        found[place] = [statistic(w) for statistic in statistics]
    return found


def score(value: float, resampled: Floats, units: int) -> Score:
    """The value with its interval; without one when there are fewer than two units, or nothing to measure in most draws."""
    finite = resampled[np.isfinite(resampled)]
    if units < 2 or 2 * len(finite) < len(resampled):
        return Score(value=value)
    tail = expanded_tail(units)
    low, high = np.quantile(finite, [tail, 1 - tail])
    return Score(value=value, low=float(low), high=float(high))


def expanded_tail(units: int) -> float:
    """The share of resamples to leave out on each side, for `CONFIDENCE` in the end."""
    from scipy.special import stdtrit

    t = stdtrit(units - 1, (1 - CONFIDENCE) / 2)
    return 0.5 * math.erfc(-float(t) * math.sqrt(units / (units - 1)) / math.sqrt(2))
