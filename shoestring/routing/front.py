"""What nothing else beats, among points in expected cost, P95 dollars and P95 time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from shoestring.routing.candidates import Ints

Flags = npt.NDArray[np.bool_]
Points = Sequence[Ints]
"""Cost, P95 dollars and P95 time, one point an index."""

BLOCK = 128
"""Points that are compared with each other at once: small enough for the nearest cache."""

BEFORE = np.triu(np.ones((BLOCK, BLOCK), dtype=np.bool_), 1)
"""Of a block, row by column: it comes first."""

MANY = 512
"""Points that are compared on a grid first."""

STEPS = 128
"""Of cost, and of time, in which many points are compared with many at once, at most."""


def undominated(cost: Ints, p95: Ints, ms: Ints, *, enough_micro: int = 0, enough_ms: int = 0) -> Ints:
    """Indices of the points that no other beats or equals in all three; of equal points the first. In lexicographic order.

    P95 dollars below `enough_micro`, and time below `enough_ms`, are no better than these: there less only breaks ties.
    """
    dollars = np.maximum(p95, enough_micro) if enough_micro else p95
    time = np.maximum(ms, enough_ms) if enough_ms else ms
    places: Ints = np.arange(len(cost))
    if len(cost) > MANY:
        points = (cost, dollars, time)
        places = np.flatnonzero(~beaten(points, points))
    order = places[np.lexsort((ms[places], p95[places], cost[places]))]
    return order[_sweep(dollars[order], time[order])]


def beaten(points: Points, others: Points) -> Flags:
    """Which points are beaten by one of the others that costs less and is no worse: most such, seen at once on a grid of cost and time.

    Each step of the grid is a rise of some hundredths; what is beaten inside of a step is not seen.
    """
    count = min(STEPS, 1 << (len(others[0]).bit_length() + 1) // 2)
    cost, time = (_steps(others[each], points[each], count) for each in (0, 2))
    least = np.full(count * count, np.iinfo(np.int64).max)
    np.minimum.at(least, cost[0] * count + time[0], others[1])
    table = least.reshape(count, count)
    np.minimum.accumulate(table, axis=0, out=table)
    np.minimum.accumulate(table, axis=1, out=table)
    # The first step is one value: in time, what is there is no worse than what is there too. In cost it has to be more.
    place = (cost[1] - 1) * count + np.maximum(time[1] - 1, 0)
    found: Flags = (least.take(place, mode="clip") <= points[1]) & (place >= 0)
    return found


def _steps(some: Ints, others: Ints, count: int) -> tuple[Ints, Ints]:
    """Numbers below `count`, a power of two, that rise with the values: the least value's 0 and no other's, then about as many for each
    doubling of what is above it."""
    every = (some,) if some is others else (some, others)
    low, high = min(int(each.min()) for each in every), max(int(each.max()) for each in every)
    # Of positive floating-point numbers the bits rise as the numbers do, and about as their logarithm.
    first, last = (int(np.float64(value).view(np.int64)) for value in (2, max(high - low + 1, 2)))
    shift = max((last - first).bit_length() - count.bit_length() + 1, 0)
    shift += (last - first) >> shift > count - 2
    found = [np.maximum(((each - (low - 1)).astype(np.float64).view(np.int64) - first >> shift) + 1, 0) for each in every]
    return found[0], found[-1]


def _sweep(p95: Ints, ms: Ints) -> Ints:
    """Places of points, in order of their expectation, that none before them beats or equals in the other two."""
    if p95.size < 2:
        return np.arange(p95.size)
    for same, other in ((p95, ms), (ms, p95)):
        if (same == same[0]).all():
            return np.flatnonzero(np.append(True, other[1:] < np.minimum.accumulate(other)[:-1]))
    kept: list[Ints] = []
    # Of what is kept, by dollars: the least time of all that need no more.
    stair_p95, stair_ms = np.full(1, np.iinfo(np.int64).min), np.full(1, np.iinfo(np.int64).max)
    for begin in range(0, len(p95), BLOCK):
        block = np.arange(begin, min(begin + BLOCK, len(p95)))
        if begin:
            stair_p95, stair_ms = np.append(stair_p95, p95[kept[-1]]), np.append(stair_ms, ms[kept[-1]])
            order = np.argsort(stair_p95, kind="stable")
            stair_p95, stair_ms = stair_p95[order], np.minimum.accumulate(stair_ms[order])
            block = block[stair_ms[np.searchsorted(stair_p95, p95[block], side="right") - 1] > ms[block]]
        dollars, time = p95[block], ms[block]
        beats = (dollars[:, None] <= dollars) & (time[:, None] <= time) & BEFORE[: len(block), : len(block)]
        kept.append(block[~beats.any(axis=0)])
    return np.concatenate(kept)
