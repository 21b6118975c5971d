"""What plans are made of: what the rest of a run may use, and ways to do some of its stages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoestring.core.money import microusd
from shoestring.routing.candidates import Ints
from shoestring.routing.question import Question
from shoestring.routing.offers.factors import stage_memory_gb
from shoestring.routing.policy.preferences import delay_microusd_per_hour, kind_of

UNBOUNDED = 2**60
"""Milliseconds or micro-dollars where there is no limit."""

CACHED = -1
"""In place of a slot: the outcome that is there already."""


def waiting(question: Question, stage: int) -> int:
    """What an hour of a stage is worth to whoever waits, in micro-dollars."""
    need = question.needs[stage]
    return delay_microusd_per_hour(question.active_policy, kind_of(need, stage_memory_gb(need, question.rows)))


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

    @property
    def enough_ms(self) -> int:
        """Time that is no better than less, whatever else a plan takes: without a deadline, any."""
        return 0 if self.timed else UNBOUNDED

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


@dataclass(frozen=True, slots=True)
class Span:
    """What some stages need at P95: the least and the most that any of the ways to do them does, of money and of time."""

    least_micro: int
    most_micro: int
    least_ms: int
    most_ms: int

    @classmethod
    def of(cls, p95: Ints, ms: Ints) -> Span:
        """Raises ValueError: there is no way."""
        return cls(int(p95.min()), int(p95.max()), int(ms.min()), int(ms.max()))

    @classmethod
    def over(cls, spans: list[Span]) -> Span | None:
        """Of ways that each of the spans has some of; None: there is no span."""
        if not spans:
            return None
        return cls(
            min(each.least_micro for each in spans),
            max(each.most_micro for each in spans),
            min(each.least_ms for each in spans),
            max(each.most_ms for each in spans),
        )

    def then(self, other: Span) -> Span:
        return Span(
            self.least_micro + other.least_micro,
            self.most_micro + other.most_micro,
            self.least_ms + other.least_ms,
            self.most_ms + other.most_ms,
        )


ANY = Span(0, UNBOUNDED, 0, UNBOUNDED)


def nothing_more() -> Ways:
    zero = np.zeros(1, dtype=np.int64)
    return Ways(zero, zero, zero, zero, zero, zero, zero)


def joined(parts: list[Ways]) -> Ways:
    none = np.zeros(0, dtype=np.int64)
    return Ways(
        *(np.concatenate([none, *(getattr(part, name) for part in parts)]) for name in Ways.__slots__)
    )
