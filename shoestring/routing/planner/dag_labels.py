"""Ways to do some stages of a graph, as columns: what no other way beats, and what stands for them where there are too many.

A column holds the expected cost, the P95 dollars, and times at P95: the longest of what waits for nothing, then, of each stage that is
still to be planned and that some of these wait for, what comes after it is done.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoestring.routing.candidates import Ints
from shoestring.routing.planner.pareto import BLOCK, Flags, undominated
from shoestring.routing.planner.partial_plans import UNBOUNDED

COST, P95, BESIDE = 0, 1, 2

MANTISSA_BITS = 52


@dataclass(frozen=True, slots=True)
class Labels:
    """Ways, one a column of `sums`. `trail` numbers what each is made of."""

    sums: Ints
    trail: Ints

    def at(self, places: Ints) -> Labels:
        return Labels(self.sums[:, places], self.trail[places])


def unbeaten(sums: Ints, *, timed: bool) -> Ints:
    """Places of the columns that no other beats or equals in every row; in lexicographic order. Untimed, times only break ties."""
    if not timed:
        return undominated(sums[COST], sums[P95], sums[BESIDE:].max(axis=0), enough_ms=UNBOUNDED)
    times = np.unique(sums[BESIDE:], axis=0)
    times = times[(times != times[:, :1]).any(axis=1)] if sums.shape[1] else times[:0]
    if len(times) <= 1:
        return undominated(sums[COST], sums[P95], times[0] if len(times) else np.zeros_like(sums[COST]))
    return _unbeaten(np.concatenate([sums[:BESIDE], times]))


def _unbeaten(rows: Ints) -> Ints:
    """The same in any number of rows."""
    places: Ints = np.arange(rows.shape[1])
    if rows.shape[1] > BLOCK:
        places = np.flatnonzero(~_beaten(rows))
    order = places[np.lexsort(rows[::-1, places])]
    kept: Ints = np.zeros(0, dtype=np.int64)
    for begin in range(0, len(order), BLOCK):
        block = order[begin : begin + BLOCK]
        block = block[~_no_worse(rows, kept, block).any(axis=0)]
        kept = np.concatenate([kept, block[~np.triu(_no_worse(rows, block, block), 1).any(axis=0)]])
    return kept


def _no_worse(rows: Ints, these: Ints, those: Ints) -> Flags:
    """Which of these are at least as good as which of those, in all rows but the first, by which they are sorted."""
    found = np.ones((len(these), len(those)), dtype=np.bool_)
    for row in rows[1:]:
        found &= row[these][:, None] <= row[those]
    return found


def _beaten(rows: Ints) -> Flags:
    """ArrayRecord that one of a few good ones beats."""
    scaled = rows / np.maximum(rows.mean(axis=1, keepdims=True), 1.0)
    scores = [*rows, *(scaled.sum(axis=0) + more * each for each in scaled for more in (3.0, 30.0))]
    beaten = np.zeros(rows.shape[1], dtype=np.bool_)
    for one in {int(np.argmin(score)) for score in scores}:
        beaten |= (rows >= rows[:, one : one + 1]).all(axis=0) & (rows > rows[:, one : one + 1]).any(axis=0)
    return beaten


def thinned(labels: Labels, most: int, *, timed: bool, optimistic: bool) -> Labels:
    """About `most` ways instead of more: of those that are alike to some bits of every number the one with the least P95 dollars, and
    the least in each row; or, `optimistic`, one that is as good as the best of them in each, which no plan may be as good as."""
    sums = labels.sums
    for bits in range(10, -11, -1):
        # The leading bits of a float are its exponent, then its mantissa: a logarithm in parts of an octave, alike on every machine.
        keys = sums.astype(np.float64).view(np.int64) >> (MANTISSA_BITS - bits)
        order = np.lexsort([sums[COST], sums[P95], *keys])
        first = np.concatenate([[True], (keys[:, order[1:]] != keys[:, order[:-1]]).any(axis=0)])
        if first.sum() <= most:
            break
    if optimistic:
        best = np.minimum.reduceat(sums[:, order], np.flatnonzero(first), axis=1)
        kept = unbeaten(best, timed=timed)
        return Labels(best[:, kept], np.zeros(len(kept), dtype=np.int64))
    chosen = np.union1d(order[first], np.argmin(sums, axis=1))
    return labels.at(chosen[unbeaten(sums[:, chosen], timed=timed)])
