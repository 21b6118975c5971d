"""The look-ahead, exact over the remaining chain of stages.

What couples neighbours is the format: a stage reads what the last writer before it wrote. So, from the last stage backwards and for each
format that a stage may find, the completions of the chain are combined and the dominated dropped (one that another beats or equals
in expected cost, P95 dollars and P95 seconds can be replaced by it in any plan). What is left is small, and loses no optimum.

The expected cost is dollars and, where a policy gives an hour of waiting a price, the expected time at that price.

Before its formats are looked at, a slot is dropped whose best case, over all formats, another slot's worst case beats.

A stage of fixed work: the least expected cost of all that remains, among plans whose summed P95 fits money and deadline. A later
elastic stage counts with all its passes in the cost and with its least in what has to fit.
The elastic stage: the most expected samples with what the P95 of the later stages leaves of money and deadline; then the least cost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoestring.money import microusd
from shoestring.routing.candidates import NONE, Candidates, Floats, Ints
from shoestring.routing.cost import needed_gb
from shoestring.routing.decision import Question
from shoestring.routing.front import pivots, undominated
from shoestring.routing.preferences import kind_of, waiting_micro_per_hour
from shoestring.routing.priced import Block, time_cost

UNBOUNDED = 2**60
"""Milliseconds or micro-dollars where there is no limit."""

CACHED = -1
"""In place of a slot: the outcome that is there already."""


def waiting(question: Question, stage: int) -> int:
    """What an hour of a stage is worth to whoever waits, in micro-dollars."""
    need = question.needs[stage]
    return waiting_micro_per_hour(question.in_force, kind_of(need, needed_gb(need, question.rows)))


@dataclass(frozen=True, slots=True)
class Limits:
    """What the rest of the run may use. `caps` are the budgets that a person declared, by number of the stage."""

    left_micro: int
    left_ms: int
    caps: dict[int, int]

    @classmethod
    def of(cls, question: Question) -> Limits:
        deadline_s = question.deadline_left_s
        return cls(
            left_micro=microusd(question.budget_usd - question.spent_usd - question.held_usd),
            left_ms=UNBOUNDED if deadline_s is None else int(deadline_s * 1000),
            caps={
                number: microusd(question.stage_budgets[need.stage])
                for number, need in enumerate(question.needs)
                if need.stage in question.stage_budgets
            },
        )

    @property
    def timed(self) -> bool:
        return self.left_ms < UNBOUNDED

    def cap_micro(self, stage: int) -> int:
        return self.caps.get(stage, UNBOUNDED)


@dataclass(frozen=True, slots=True)
class Step:
    """The offer that a stage takes: its slot (or CACHED), the formats read and written by their number."""

    slot: int
    reads: int
    writes: int


@dataclass(frozen=True, slots=True)
class Ways:
    """Ways to do some stages, one an index: sums, the first of those stages' offer, and what follows it.

    `then` is a place among the ways to go on from the format that `leaves` numbers.
    """

    cost: Ints
    p95: Ints
    ms: Ints
    slot: Ints
    writes: Ints
    leaves: Ints
    then: Ints

    def __len__(self) -> int:
        return len(self.cost)

    def at(self, places: Ints) -> Ways:
        return Ways(*(getattr(self, name)[places] for name in Ways.__slots__))


def nothing_more() -> Ways:
    zero = np.zeros(1, dtype=np.int64)
    return Ways(zero, zero, zero, zero, zero, zero, zero)


def joined(parts: list[Ways]) -> Ways:
    none = np.zeros(0, dtype=np.int64)
    return Ways(*(np.concatenate([none, *(getattr(part, name) for part in parts)]) for name in Ways.__slots__))


class Ahead:
    """The stages after this one: for each stage, by the format it finds, the undominated ways to do it and all after it.

    A format from which there is no way is not there.
    """

    def __init__(self, question: Question, candidates: Candidates, limits: Limits) -> None:
        self.question, self.candidates, self.limits = question, candidates, limits
        self.by_stage: dict[int, dict[int, Ways]] = {}
        # Stages that nothing can take, with what their first offer costs where only a cap of its own stands against it.
        self.blocked: dict[int, tuple[int, int] | None] = {}
        for stage in range(len(question.needs) - 1, 0, -1):
            own = OwnWays(question, candidates, limits, stage)
            if not own.any():
                self.blocked[stage] = own.first()
            found = {reads: self._before(own, reads, stage) for reads in candidates.offers[stage].reads}
            self.by_stage[stage] = {reads: ways for reads, ways in found.items() if len(ways)}

    def after(self, stage: int, leaves: int) -> Ways | None:
        """The ways to go on after a stage."""
        return nothing_more() if stage + 1 == len(self.question.needs) else self.by_stage[stage + 1].get(leaves)

    def _before(self, own: OwnWays, reads: int, stage: int) -> Ways:
        """Each of a stage's own ways before each way to go on from what it leaves."""
        parts = []
        for here in own.of(reads):
            if not len(here) or (after := self.after(stage, int(here.leaves[0]))) is None:
                continue
            first, then = np.repeat(np.arange(len(here)), len(after)), np.tile(np.arange(len(after)), len(here))
            parts.append(
                Ways(
                    here.cost[first] + after.cost[then],
                    here.p95[first] + after.p95[then],
                    here.ms[first] + after.ms[then],
                    here.slot[first],
                    here.writes[first],
                    here.leaves[first],
                    then,
                )
            )
        ways = joined(parts)
        return ways.at(undominated(ways.cost, ways.p95, ways.ms, timed=self.limits.timed))

    def path(self, leaves: int, place: int) -> list[Step]:
        """The offers of all later stages, of one way to go on from what this stage leaves."""
        steps = []
        for stage in range(1, len(self.question.needs)):
            ways = self.by_stage[stage][leaves]
            steps.append(Step(int(ways.slot[place]), leaves, int(ways.writes[place])))
            leaves, place = int(ways.leaves[place]), int(ways.then[place])
        return steps


class OwnWays:
    """One later stage by itself: its undominated offers, by the formats that they read and write."""

    def __init__(self, question: Question, candidates: Candidates, limits: Limits, stage: int) -> None:
        self.offers, self.writes_data = candidates.offers[stage], question.needs[stage].writes_bytes_per_row > 0
        self.limits, self.cap, self.waiting = limits, limits.cap_micro(stage), waiting(question, stage)
        usable = np.flatnonzero(self.offers.objection == NONE)
        block = Block(candidates, stage, usable)
        fixed_us = block.fixed_us()
        if usable.size:
            usable = usable[self._promising(block, fixed_us)]
            block = Block(candidates, stage, usable)
        self.slots, fees = usable, block.fees_microusd()
        mean = block.prices(fixed_us, fees)
        self.est, self.cost = mean.microusd, mean.microusd + time_cost(mean.ms, self.waiting)
        worst = block.prices(fixed_us, fees, least=True, worst=True)
        self.p95, self.ms = worst.microusd, worst.ms

    def _promising(self, block: Block, fixed_us: Floats) -> Ints:
        """Places of the slots that no other one beats whatever formats they read and write."""
        best, worst = (
            self._sums(block, fixed, fee) for fixed, fee in zip((fixed_us.min(), fixed_us.max()), block.least_and_most_fees(), strict=True)
        )
        dimensions = 3 if self.limits.timed else 2
        # A cap that one slot keeps to in every format.
        within = np.flatnonzero(worst[1] <= self.cap)
        if not within.size:
            return np.arange(len(worst[0]))
        kept = np.ones(len(worst[0]), dtype=np.bool_)
        for pivot in pivots(*(column[within] for column in worst)):
            place = within[pivot]
            no_better = np.all([best[each] >= worst[each][place] for each in range(dimensions)], axis=0)
            truly = np.any([best[each] > worst[each][place] for each in range(dimensions)], axis=0)
            kept &= ~(no_better & truly)
        return np.flatnonzero(kept)

    def _sums(self, block: Block, fixed_us: Floats, fees: Ints) -> list[Ints]:
        """Expected cost, P95 dollars and P95 time by slot, in one case."""
        mean, worst = block.prices(fixed_us, fees), block.prices(fixed_us, fees, least=True, worst=True)
        return [each.ravel() for each in (mean.microusd + time_cost(mean.ms, self.waiting), worst.microusd, worst.ms)]

    def any(self) -> bool:
        """Is there an offer at all that can be taken?"""
        return self.offers.cached is not None or bool((self.p95 <= self.cap).any())

    def first(self) -> tuple[int, int] | None:
        """What the first offer costs, expected and at P95; None when something else than the cap stands against it."""
        return (int(self.est[0, 0, 0]), int(self.p95[0, 0, 0])) if self.slots.size and self.slots[0] == 0 else None

    def of(self, reads: int) -> list[Ways]:
        """The offers that read a format, one part for each format that they leave."""
        place = self.offers.reads.index(reads)
        parts = [self._cell(reads, place, number, writes) for number, writes in enumerate(self.offers.writes)]
        cached = self.offers.cached
        if cached is not None and cached.reads == reads:
            parts.append(self._ways(np.zeros((3, 1), dtype=np.int64), np.array([CACHED]), reads, cached.writes))
        return parts

    def _cell(self, reads: int, place: int, number: int, writes: int) -> Ways:
        within = np.flatnonzero(self.p95[place, number] <= self.cap)
        found = np.stack([column[place, number][within] for column in (self.cost, self.p95, self.ms)])
        best = undominated(*found, timed=self.limits.timed)
        return self._ways(found[:, best], self.slots[within[best]], reads, writes)

    def _ways(self, sums: Ints, slots: Ints, reads: int, writes: int) -> Ways:
        writing = np.full(len(slots), writes)
        leaves = writing if self.writes_data else np.full(len(slots), reads)
        return Ways(sums[0], sums[1], sums[2], slots, writing, leaves, np.zeros(len(slots), dtype=np.int64))
