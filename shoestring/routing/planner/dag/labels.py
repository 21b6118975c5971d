"""Labels: partial plans of a DAG as columns of sums, with Pareto pruning in any number of rows.

The rows of a column are the expected cost, the P95 dollars, and P95 times: first the longest time of the
stages that do not wait for an unplanned one; then, for each unplanned stage that some of them wait for, the
time from its end on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoestring.routing.candidates import Flags, Ints
from shoestring.routing.planner.partial_plans import BLOCK_SIZE, UNBOUNDED, undominated

COST, P95, PARALLEL = 0, 1, 2
"""Rows of the sums: expected cost, P95 dollars, and P95 time of what waits for no unplanned stage."""

MANTISSA_BITS = 52


@dataclass(frozen=True, slots=True)
class Labels:
    """Partial plans, one a column of `sums`. `trail` holds the number of each in the back-pointers."""

    sums: Ints
    trail: Ints

    def at(self, columns: Ints) -> Labels:
        """Return the labels of these columns."""
        return Labels(self.sums[:, columns], self.trail[columns])


def undominated_labels(sums: Ints, *, timed: bool) -> Ints:
    """Return the columns that no other dominates or equals in every row, in lexicographic order.

    Without a deadline (`timed` False), times only break ties.
    """
    if not timed:
        return undominated(sums[COST], sums[P95], sums[PARALLEL:].max(axis=0), sufficient_ms=UNBOUNDED)
    times = _distinct_times(sums)
    if len(times) <= 1:
        return undominated(sums[COST], sums[P95], times[0] if times else np.zeros_like(sums[COST]))
    return _undominated_rows(np.concatenate([sums[:PARALLEL], times]))


def _distinct_times(sums: Ints) -> list[Ints]:
    """Return the rows of times that are not the same in all labels, each once, in lexicographic order."""
    if not sums.shape[1]:
        return []
    # In this byte order, the bytes of numbers from 0 up sort as the numbers do.
    found = {row.astype(">i8").tobytes(): row for row in sums[PARALLEL:] if (row != row[0]).any()}
    return [found[each] for each in sorted(found)]


def _undominated_rows(rows: Ints) -> Ints:
    """Return the same for any number of rows."""
    columns: Ints = np.arange(rows.shape[1])
    if rows.shape[1] > BLOCK_SIZE:
        columns = np.flatnonzero(~_dominated_by_good(rows))
    order = columns[np.lexsort(rows[::-1, columns])]
    remaining: Ints = np.zeros(0, dtype=np.int64)
    for begin in range(0, len(order), BLOCK_SIZE):
        block = order[begin : begin + BLOCK_SIZE]
        block = block[~_no_worse(rows, remaining, block).any(axis=0)]
        remaining = np.concatenate([remaining, block[~np.triu(_no_worse(rows, block, block), 1).any(axis=0)]])
    return remaining


def _no_worse(rows: Ints, these: Ints, those: Ints) -> Flags:
    """Return which of these columns are no worse than which of those, in all rows but the first."""
    found = np.ones((len(these), len(those)), dtype=np.bool_)
    for row in rows[1:]:
        found &= row[these][:, None] <= row[those]
    return found


def _dominated_by_good(rows: Ints) -> Flags:
    """Return the columns that a good one dominates: the best of each row and of some weighted sums."""
    scaled = rows / np.maximum(rows.mean(axis=1, keepdims=True), 1.0)
    scores = [*rows, *(scaled.sum(axis=0) + weight * each for each in scaled for weight in (3.0, 30.0))]
    dominated = np.zeros(rows.shape[1], dtype=np.bool_)
    for one in {int(np.argmin(score)) for score in scores}:
        good = rows[:, one : one + 1]
        dominated |= (rows >= good).all(axis=0) & (rows > good).any(axis=0)
    return dominated


def thin_out(labels: Labels, maximum: int, *, timed: bool, optimistic: bool) -> Labels:
    """Return about `maximum` labels in place of more.

    Labels are grouped by the leading bits of all their sums. Kept are the label with the lowest P95 dollars
    of each group and the lowest in each row. With `optimistic`, a group is replaced by the minimum of its
    labels in every row: a lower bound that no real plan is better than.
    """
    sums = labels.sums
    for bits in range(10, -11, -1):
        # The leading bits of a float are its exponent, then its mantissa: a logarithm in fractions of an
        # octave, identical on every machine.
        keys = sums.astype(np.float64).view(np.int64) >> (MANTISSA_BITS - bits)
        order = np.lexsort([sums[COST], sums[P95], *keys])
        first = np.concatenate([[True], (keys[:, order[1:]] != keys[:, order[:-1]]).any(axis=0)])
        if first.sum() <= maximum:
            break
    if optimistic:
        best = np.minimum.reduceat(sums[:, order], np.flatnonzero(first), axis=1)
        remaining = undominated_labels(best, timed=timed)
        return Labels(best[:, remaining], np.zeros(len(remaining), dtype=np.int64))
    chosen = np.union1d(order[first], np.argmin(sums, axis=1))
    return labels.at(chosen[undominated_labels(sums[:, chosen], timed=timed)])
