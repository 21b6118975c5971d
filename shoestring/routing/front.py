"""What nothing else beats, among points in expected cost, P95 dollars and P95 time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shoestring.routing.candidates import Ints

Flags = npt.NDArray[np.bool_]

BLOCK = 128
"""Points that are compared with each other at once: small enough for the nearest cache."""


def undominated(cost: Ints, p95: Ints, p95_ms: Ints, *, timed: bool = True) -> Ints:
    """Indices of the points that no other beats or equals in all three; of equal points the first. In lexicographic order.

    Without a deadline (`timed` false) time only breaks ties: no point is kept for its time alone.
    """
    places: Ints = np.arange(len(cost))
    if len(cost) > BLOCK:
        places = np.flatnonzero(~_beaten([cost, p95, p95_ms] if timed else [cost, p95], pivots(cost, p95, p95_ms)))
    order = places[np.lexsort((p95_ms[places], p95[places], cost[places]))]
    if not timed:
        sorted_p95 = p95[order]
        lowest = np.minimum.accumulate(sorted_p95)
        return order[np.concatenate([[True], sorted_p95[1:] < lowest[:-1]])] if order.size else order
    return order[_sweep(p95[order], p95_ms[order])]


def pivots(cost: Ints, p95: Ints, p95_ms: Ints) -> list[int]:
    """Places of a few points that beat many: the cheapest, the quickest, and some between."""
    dollars, seconds = max(float(cost.mean()), 1.0), max(float(p95_ms.mean()), 1.0)
    mixed = (cost / dollars + share * p95_ms / seconds for share in (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0))
    return sorted({int(np.argmin(score)) for score in (cost, p95, p95_ms, *mixed)})


def _sweep(p95: Ints, ms: Ints) -> Ints:
    """Places of points, in order of their expectation, that none before them beats or equals in the other two."""
    kept: Ints = np.zeros(0, dtype=np.int64)
    for begin in range(0, len(p95), BLOCK):
        block = np.arange(begin, min(begin + BLOCK, len(p95)))
        block = block[~((p95[kept][:, None] <= p95[block]) & (ms[kept][:, None] <= ms[block])).any(axis=0)]
        beats = (p95[block][:, None] <= p95[block]) & (ms[block][:, None] <= ms[block])
        kept = np.concatenate([kept, block[~np.triu(beats, 1).any(axis=0)]])
    return kept


def _beaten(points: list[Ints], few: list[int]) -> Flags:
    """Which points one of a few beats: no worse in any column, and better in one."""
    beaten = np.zeros(len(points[0]), dtype=np.bool_)
    for one in few:
        no_worse = np.logical_and.reduce([column >= column[one] for column in points])
        better = np.logical_or.reduce([column > column[one] for column in points])
        beaten |= no_worse & better
    return beaten
