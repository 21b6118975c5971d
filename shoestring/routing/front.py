"""What nothing else beats, among points in expected cost, P95 dollars and P95 time."""

from __future__ import annotations

import numpy as np

from shoestring.routing.candidates import Ints

BLOCK = 128
"""Points that are compared with each other at once: small enough for the nearest cache."""


def undominated(cost: Ints, p95: Ints, p95_ms: Ints, *, timed: bool = True) -> Ints:
    """Indices of the points that no other beats or equals in all three; of equal points the first. In lexicographic order.

    Without a deadline (`timed` false) time only breaks ties: no point is kept for its time alone.
    """
    order: Ints = np.lexsort((p95_ms, p95, cost))
    if not timed:
        sorted_p95 = p95[order]
        lowest = np.minimum.accumulate(sorted_p95)
        return order[np.concatenate([[True], sorted_p95[1:] < lowest[:-1]])] if order.size else order
    if order.size > 4 * BLOCK:
        some = order[_sweep(p95[order[:: order.size // BLOCK]], p95_ms[order[:: order.size // BLOCK]]) * (order.size // BLOCK)]
        order = order[~_beaten(p95[order], p95_ms[order], cost[order], cost[some], p95[some], p95_ms[some])]
    return order[_sweep(p95[order], p95_ms[order])]


def _sweep(p95: Ints, ms: Ints) -> Ints:
    """Places of points, in order of their expectation, that none before them beats or equals in the other two."""
    kept: Ints = np.zeros(0, dtype=np.int64)
    for begin in range(0, len(p95), BLOCK):
        block = np.arange(begin, min(begin + BLOCK, len(p95)))
        block = block[~((p95[kept][:, None] <= p95[block]) & (ms[kept][:, None] <= ms[block])).any(axis=0)]
        beats = (p95[block][:, None] <= p95[block]) & (ms[block][:, None] <= ms[block])
        kept = np.concatenate([kept, block[~np.triu(beats, 1).any(axis=0)]])
    return kept


def _beaten(p95: Ints, ms: Ints, cost: Ints, by_cost: Ints, by_p95: Ints, by_ms: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which points one of a few others beats: in all three, and in one of them truly."""
    beaten = np.zeros(len(cost), dtype=np.bool_)
    for one_cost, one_p95, one_ms in zip(by_cost.tolist(), by_p95.tolist(), by_ms.tolist(), strict=True):
        no_worse = (cost >= one_cost) & (p95 >= one_p95) & (ms >= one_ms)
        beaten |= no_worse & ((cost > one_cost) | (p95 > one_p95) | (ms > one_ms))
    return beaten
