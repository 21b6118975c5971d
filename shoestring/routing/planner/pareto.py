"""What nothing else beats, among points in expected cost, P95 dollars and P95 time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from shoestring.routing.candidates import Ints

Flags = npt.NDArray[np.bool_]
Points = Sequence[Ints]
"""Cost, P95 dollars and P95 time, one point an index."""
Best = Callable[[Ints, Ints, Ints], Ints]
"""Of such points the indices of the best, like `undominated`."""

BLOCK = 128
"""Points that are compared with each other at once: small enough for the nearest cache."""

BEFORE = np.triu(np.ones((BLOCK, BLOCK), dtype=np.bool_), 1)
"""Of a block, row by column: it comes first."""

MANY = 512
"""Points that are compared on a grid first."""

STEPS = {1: 1024, 2: 128}
"""Of dollars, and of time, in which many points are compared with many at once, at most: where they differ in one of them, in both."""


def undominated(cost: Ints, p95: Ints, ms: Ints, *, enough_micro: int = 0, enough_ms: int = 0) -> Ints:
    """Indices of the points that no other beats or equals in all three; of equal points the first. In lexicographic order.

    P95 dollars below `enough_micro`, and time below `enough_ms`, are no better than these: there less only breaks ties.
    """
    dollars = np.maximum(p95, enough_micro) if enough_micro else p95
    time = np.maximum(ms, enough_ms) if enough_ms else ms
    if len(cost) > MANY:
        points = (cost, dollars, time)
        places = np.flatnonzero(~beaten(points, points))
        order = places[np.lexsort((ms[places], p95[places], cost[places]))]
    else:
        order = np.lexsort((ms, p95, cost))
    return order[_sweep(dollars[order], time[order])]


def beaten(points: Points, others: Points) -> Flags:
    """Which points are beaten by one of the others that costs less and is no worse: most such, seen at once on a grid of dollars and time.

    Each step of the grid is a small rise; what is beaten inside of a step is not seen.
    """
    every = [(others[each],) if points is others else (others[each], points[each]) for each in (1, 2)]
    ends = [(min(int(each.min()) for each in both), max(int(each.max()) for each in both)) for both in every]
    axes = [each for each, (low, high) in enumerate(ends) if low < high] or [0]
    count = min(STEPS[len(axes)], 1 << (len(others[0]).bit_length() + 1) // len(axes))
    steps = [_steps(every[each], *ends[each], count) for each in axes]
    least = np.full((count,) * len(axes), np.iinfo(np.int64).max)
    np.minimum.at(least.reshape(-1), _numbered([some for some, _ in steps], count), others[0])
    for axis in range(len(axes)):
        np.minimum.accumulate(least, axis=axis, out=least)
    # The first step is one value: what is there is no worse than what is there too.
    found: Flags = least.take(_numbered([np.maximum(own - 1, 0) for _, own in steps], count)) < points[0]
    return found


def _numbered(steps: Sequence[Ints], count: int) -> Ints:
    """Places on a grid of so many steps each way."""
    return steps[0] if len(steps) == 1 else steps[0] * count + steps[1]


def _steps(every: Sequence[Ints], low: int, high: int, count: int) -> tuple[Ints, Ints]:
    """Numbers below `count`, a power of two, that rise with the values of the first and of the last: the least value's 0 and no other's,
    then about as many for each doubling of what is above it."""
    # Of positive floating-point numbers the bits rise as the numbers do, and about as their logarithm.
    first, last = (int(np.float64(value).view(np.int64)) for value in (2, max(high - low + 1, 2)))
    shift = max((last - first).bit_length() - count.bit_length() + 1, 0)
    shift += (last - first) >> shift > count - 2
    found = []
    for each in every:
        bits = (each - (low - 1)).astype(np.float64).view(np.int64)
        bits -= first - (1 << shift)
        bits >>= shift
        found.append(np.maximum(bits, 0, out=bits))
    return found[0], found[-1]


def _sweep(p95: Ints, ms: Ints) -> Ints:
    """Places of points, in order of their expectation, that none before them beats or equals in the other two."""
    if p95.size < 2:
        return np.arange(p95.size)
    for same, other in ((p95, ms), (ms, p95)):
        if (same == same[0]).all():
            first = np.ones(p95.size, dtype=np.bool_)
            np.less(other[1:], np.minimum.accumulate(other)[:-1], out=first[1:])
            return np.flatnonzero(first)
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
