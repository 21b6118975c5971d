"""Partial plans: plans for some of the stages, the limits they have to keep, and Pareto pruning of dominated
ones.

The planner compares plans by three sums: the expected cost, the P95 dollars and the P95 time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shoestring.core.money import microusd
from shoestring.core.types import Format, Market
from shoestring.routing.candidates import Candidates, Flags, Ints
from shoestring.routing.question import Question

UNBOUNDED = 2**60
"""Milliseconds or micro-dollars where there is no limit."""

CACHED = -1
"""In place of a target: the cached result."""

Points = Sequence[Ints]
"""Cost, P95 dollars and P95 time, each an array with one element a plan."""

Pruning = Callable[[Ints, Ints, Ints], Ints]
"""Returns the indices of the points to keep, like `undominated`."""

BLOCK_SIZE = 128
"""Points that are compared with each other at once. A block fits the L1 cache."""

EARLIER_IN_BLOCK = np.triu(np.ones((BLOCK_SIZE, BLOCK_SIZE), dtype=np.bool_), 1)
"""Whether the point of a row comes before the point of a column, within a block."""

GRID_MIN_POINTS = 512
"""From more points than this on, a grid removes most dominated points first."""

GRID_STEPS = {1: 1024, 2: 128}
"""Maximum steps of the grid along each axis, by the number of axes in which the points differ."""


@dataclass(frozen=True, slots=True)
class RunLimits:
    """The money and time left for the rest of the run.

    `caps`: the stage budgets that the user declared, by stage.
    """

    left_micro: int
    left_ms: int
    caps: dict[int, int]

    @classmethod
    def of(cls, question: Question) -> RunLimits:
        """Return the limits of a question."""
        deadline_s, budgets = question.deadline_left_s, question.stage_budgets
        return cls(
            left_micro=microusd(question.left_usd),
            left_ms=UNBOUNDED if deadline_s is None else int(deadline_s * 1000),
            caps={
                stage: microusd(budgets[need.stage])
                for stage, need in enumerate(question.needs)
                if need.stage in budgets
            },
        )

    @property
    def timed(self) -> bool:
        """True if the run has a deadline."""
        return self.left_ms < UNBOUNDED

    @property
    def sufficient_ms(self) -> int:
        """The P95 time below which less time is no better: any time, where there is no deadline."""
        return 0 if self.timed else UNBOUNDED

    def cap_micro(self, stage: int) -> int:
        """Return the stage's own budget in micro-dollars."""
        return self.caps.get(stage, UNBOUNDED)


@dataclass(frozen=True, slots=True)
class PlanStep:
    """The offer that a plan takes for one stage: its target (or CACHED), and the indices of the formats."""

    target: int
    reads: int
    writes: int


@dataclass(frozen=True, slots=True)
class PartialPlans:
    """Plans for some consecutive stages, one an index: three sums, the offer of the first stage, and what
    follows.

    `next_index` is an index into the partial plans that continue from `format_left`, the format of the data
    set that is left for later stages.
    """

    cost: Ints
    p95: Ints
    ms: Ints
    target: Ints
    writes: Ints
    format_left: Ints
    next_index: Ints

    def __len__(self) -> int:
        return len(self.cost)

    def at(self, indices: Ints) -> PartialPlans:
        """Return the plans at these indices."""
        return PartialPlans(*(getattr(self, name)[indices] for name in PartialPlans.__slots__))


@dataclass(frozen=True, slots=True)
class NeedRange:
    """The range of P95 dollars and P95 time over the plans of some stages."""

    min_micro: int
    max_micro: int
    min_ms: int
    max_ms: int

    @classmethod
    def of(cls, p95: Ints, ms: Ints) -> NeedRange:
        """Return the range over some plans. Raises ValueError: there are none."""
        return cls(int(p95.min()), int(p95.max()), int(ms.min()), int(ms.max()))


ANY_NEED = NeedRange(0, UNBOUNDED, 0, UNBOUNDED)


def no_more_stages() -> PartialPlans:
    """Return the one plan of no stages."""
    zero = np.zeros(1, dtype=np.int64)
    return PartialPlans(zero, zero, zero, zero, zero, zero, zero)


def no_plans() -> PartialPlans:
    """Return an empty set of plans."""
    none = np.zeros(0, dtype=np.int64)
    return PartialPlans(none, none, none, none, none, none, none)


def undominated(
    cost: Ints, p95: Ints, ms: Ints, *, sufficient_micro: int = 0, sufficient_ms: int = 0
) -> Ints:
    """Return the indices of the points that no other point dominates or equals, in lexicographic order.

    Of equal points the first is kept. P95 dollars below `sufficient_micro`, and time below `sufficient_ms`,
    count as equal to these; there, less only breaks ties.
    """
    dollars = np.maximum(p95, sufficient_micro) if sufficient_micro else p95
    time = np.maximum(ms, sufficient_ms) if sufficient_ms else ms
    if len(cost) > GRID_MIN_POINTS:
        points = (cost, dollars, time)
        left = np.flatnonzero(~dominated_on_grid(points, points))
        order = left[np.lexsort((ms[left], p95[left], cost[left]))]
    else:
        order = np.lexsort((ms, p95, cost))
    return order[_undominated_sorted(dollars[order], time[order])]


def dominated_on_grid(points: Points, others: Points) -> Flags:
    """Return which points one of the others dominates, as far as a grid of dollars and time shows it.

    The grid finds most of them at once. It misses points that are dominated from within the same step of the
    grid.
    """
    axes_of = [(others[i],) if points is others else (others[i], points[i]) for i in (1, 2)]
    ends = [
        (min(int(each.min()) for each in both), max(int(each.max()) for each in both)) for both in axes_of
    ]
    axes = [axis for axis, (low, high) in enumerate(ends) if low < high] or [0]
    count = min(GRID_STEPS[len(axes)], 1 << (len(others[0]).bit_length() + 1) // len(axes))
    steps = [_grid_steps(axes_of[axis], *ends[axis], count) for axis in axes]
    least = np.full((count,) * len(axes), np.iinfo(np.int64).max)
    np.minimum.at(least.reshape(-1), _cells([theirs for theirs, _ in steps], count), others[0])
    for axis in range(len(axes)):
        np.minimum.accumulate(least, axis=axis, out=least)
    # The first step holds a single value, so points there are no worse than others there.
    cells = _cells([np.maximum(own_step - 1, 0) for _, own_step in steps], count)
    found: Flags = least.take(cells) < points[0]
    return found


def _cells(steps: Sequence[Ints], count: int) -> Ints:
    """Return flat indices into a grid of `count` steps along each axis."""
    return steps[0] if len(steps) == 1 else steps[0] * count + steps[1]


def _grid_steps(values: Sequence[Ints], low: int, high: int, count: int) -> tuple[Ints, Ints]:
    """Return the step of each of the first and of the last values: numbers below `count`, a power of two.

    Steps rise with the values. Only the lowest value has step 0; above it, each doubling has about as many
    steps.
    """
    # The bits of positive floating-point numbers rise as the numbers do, and roughly as their logarithm.
    first, last = (int(np.float64(value).view(np.int64)) for value in (2, max(high - low + 1, 2)))
    shift = max((last - first).bit_length() - count.bit_length() + 1, 0)
    shift += (last - first) >> shift > count - 2
    steps = []
    for each in values:
        bits = (each - (low - 1)).astype(np.float64).view(np.int64)
        bits -= first - (1 << shift)
        bits >>= shift
        steps.append(np.maximum(bits, 0, out=bits))
    return steps[0], steps[-1]


def _undominated_sorted(p95: Ints, ms: Ints) -> Ints:
    """Return the indices of points, sorted by cost, that no earlier one dominates in the other two."""
    if p95.size < 2:
        return np.arange(p95.size)
    for same, other in ((p95, ms), (ms, p95)):
        if (same == same[0]).all():
            first = np.ones(p95.size, dtype=np.bool_)
            np.less(other[1:], np.minimum.accumulate(other)[:-1], out=first[1:])
            return np.flatnonzero(first)
    remaining: list[Ints] = []
    # For the points kept so far, by dollars: the minimum time of all that need no more dollars.
    stair_p95, stair_ms = np.full(1, np.iinfo(np.int64).min), np.full(1, np.iinfo(np.int64).max)
    for begin in range(0, len(p95), BLOCK_SIZE):
        block = np.arange(begin, min(begin + BLOCK_SIZE, len(p95)))
        if begin:
            stair_p95, stair_ms = (
                np.append(stair_p95, p95[remaining[-1]]),
                np.append(stair_ms, ms[remaining[-1]]),
            )
            order = np.argsort(stair_p95, kind="stable")
            stair_p95, stair_ms = stair_p95[order], np.minimum.accumulate(stair_ms[order])
            block = block[stair_ms[np.searchsorted(stair_p95, p95[block], side="right") - 1] > ms[block]]
        dollars, time = p95[block], ms[block]
        earlier = EARLIER_IN_BLOCK[: len(block), : len(block)]
        dominates = (dollars[:, None] <= dollars) & (time[:, None] <= time) & earlier
        remaining.append(block[~dominates.any(axis=0)])
    return np.concatenate(remaining)


def target_of(candidates: Candidates, stage: int, step: PlanStep) -> int:
    """Return the index of a step's target."""
    cached = candidates.offers[stage].cached
    return cached.target if step.target == CACHED and cached else step.target


def named_step(candidates: Candidates, stage: int, step: PlanStep) -> tuple[str, Market, Format | None, str]:
    """Return a step's pool, market, format written and its storage class, by name."""
    target = target_of(candidates, stage, step)
    pool, market = candidates.pools[candidates.pool[target]], candidates.markets[candidates.market[target]]
    return pool, market, *candidates.stored_format(step.writes)
