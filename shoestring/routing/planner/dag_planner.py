"""The look-ahead over stages that branch, exact while there are few ways, and with a bound where there are many.

What couples stages is what lies between them: the format of a data set, the time at which it is there, and the money that all share. So
stages are taken from the end, each behind all that wait for it. What is planned falls into parts that know nothing of each other; a part
keeps, for each way in which the data sets that it reads from outside may lie, the ways that no other beats in expected cost, P95 dollars,
and P95 time: after each stage outside that it waits for, and of what waits for none. A stage brings the parts together that read it or wait
for it (dollars add up, of times the longest counts) and goes before them with its own offers. A chain is one part with one time.

No optimum is lost, as long as no part has more than `most` ways for one state; then those that are nearly alike are thinned out. What
that may have cost is told by planning once more with one in place of each such lot that is as good as the best of it in everything: no
plan can be better than that.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from shoestring.routing.candidates import Ints
from shoestring.routing.dag import Dag
from shoestring.routing.planner.dag.labels import BESIDE, COST, P95, Labels, thinned, unbeaten
from shoestring.routing.planner.partial_plans import Step, Ways

MOST_PAIRS = 2**18
"""Ways that are made at once by bringing two parts together."""

State = tuple[int, ...]


class Own(Protocol):
    """One stage's own offers."""

    def of(self, reads: int, /) -> list[Ways]: ...


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What no way is worth being followed above, of expected cost, P95 dollars and P95 time; less what each stage takes at the least of the
    first two."""

    cost: int
    p95: int
    ms: int
    least: dict[int, tuple[int, int]]

    def below(self, sums: Ints, planned: tuple[int, ...]) -> Ints:
        """Places of the ways that may be part of a plan below it, of a part with these stages."""
        rest = np.sum(
            [least for stage, least in self.least.items() if stage not in planned] or [(0, 0)], axis=0
        )
        fits = (
            (sums[COST] <= self.cost - rest[0])
            & (sums[P95] <= self.p95 - rest[1])
            & (sums[BESIDE:] <= self.ms).all(axis=0)
        )
        return np.flatnonzero(fits)


@dataclass(frozen=True, slots=True)
class Part:
    """Stages that are `planned`. `reads`: the stages outside whose data sets they read, as the keys of `by_state` say in which formats;
    `waits`: the stages outside that they wait for, as the rows of times after the first do."""

    reads: tuple[int, ...]
    waits: tuple[int, ...]
    by_state: dict[State, Labels]
    planned: tuple[int, ...] = ()


NOTHING = Part((), (), {(): Labels(np.zeros((3, 1), dtype=np.int64), np.full(1, -1))})


class Trail:
    """What ways are made of, one a column: stage, slot, formats read, format written, and the way that it goes before; or, where the stage
    is -1, the two ways that were brought together."""

    def __init__(self) -> None:
        self.begins, self.parts, self.count = list[int](), list[Ints](), 0

    def add(self, *rows: Ints | int) -> Ints:
        made = np.stack(np.broadcast_arrays(*rows)).astype(np.int64)
        self.begins.append(self.count)
        self.parts.append(made)
        self.count += made.shape[1]
        return np.arange(self.count - made.shape[1], self.count)

    def steps(self, way: int) -> dict[int, Step]:
        found, left = dict[int, Step](), [way]
        while left:
            if (one := left.pop()) < 0:
                continue
            part = bisect_right(self.begins, one) - 1
            stage, slot, reads, writes, behind = self.parts[part][:, one - self.begins[part]].tolist()
            if stage < 0:
                left += [slot, behind]
            else:
                found[stage] = Step(slot, reads, writes)
                left.append(behind)
        return found


class Graph:
    """All stages after the first, planned. `ways` has of each stage the ways to read its data sets, by the number of its offers.

    `after[state]`: the ways to do all of them, by the format that the first stage leaves where any reads that. `is_exact`: none was
    thinned out.
    """

    def __init__(
        self,
        shape: Dag,
        ways: Sequence[Mapping[int, State]],
        own: Callable[[int], Own],
        *,
        timed: bool,
        most: int,
        ceiling: Ceiling | None = None,
        optimistic: bool = False,
    ) -> None:
        self.shape, self.ways, self.timed, self.most, self.ceiling, self.optimistic = (
            shape,
            ways,
            timed,
            most,
            ceiling,
            optimistic,
        )
        self.is_exact, self.trail = True, Trail()
        parts = list[Part]()
        for stage in shape.order():
            mine = [part for part in parts if stage in part.reads or stage in part.waits]
            others = [part for part in parts if stage not in part.reads and stage not in part.waits]
            parts = [*others, self._before(stage, own(stage), self._together(mine))]
        whole = self._together(parts)
        self.reads_first, self.by_state = bool(whole.reads), whole.by_state

    def after(self, leaves: int) -> Labels | None:
        return self.by_state.get((leaves,) if self.reads_first else ())

    def _together(self, parts: list[Part]) -> Part:
        whole = NOTHING
        for part in parts:
            whole = part if whole is NOTHING else self._both(whole, part)
        return whole

    def _both(self, one: Part, other: Part) -> Part:
        reads, waits = _union(one.reads, other.reads), _union(one.waits, other.waits)
        found: dict[State, Labels] = {}
        for these, first in one.by_state.items():
            lie = dict(zip(one.reads, these, strict=True))
            for those, second in other.by_state.items():
                if all(lie.get(stage, each) == each for stage, each in zip(other.reads, those, strict=True)):
                    lies = lie | dict(zip(other.reads, those, strict=True))
                    found[tuple(lies[stage] for stage in reads)] = self._pairs(
                        one, first, other, second, waits
                    )
        return Part(reads, waits, found, one.planned + other.planned)

    def _pairs(self, one: Part, first: Labels, other: Part, second: Labels, waits: tuple[int, ...]) -> Labels:
        if first.sums.shape[1] * second.sums.shape[1] > MOST_PAIRS:
            first, second = (self._thinned(each, int(MOST_PAIRS**0.5)) for each in (first, second))
        left, right = _crossed(first.sums.shape[1], second.sums.shape[1])
        a, b = first.sums[:, left], second.sums[:, right]
        later = [np.maximum(_row(one, a, stage), _row(other, b, stage)) for stage in waits]
        sums = np.stack([a[COST] + b[COST], a[P95] + b[P95], np.maximum(a[BESIDE], b[BESIDE]), *later])
        kept = unbeaten(sums, timed=self.timed)
        trail = self.trail.add(-1, first.trail[left[kept]], 0, 0, second.trail[right[kept]])
        return self._thinned(Labels(sums[:, kept], trail), self.most)

    def _before(self, stage: int, own: Own, behind: Part) -> Part:
        """A stage's own offers before what reads it or waits for it."""
        sources = self.shape.sources[stage]
        reads = _union(
            tuple(each for each in behind.reads if each != stage),
            tuple(each for each in sources if each >= 0),
        )
        waits = _union(tuple(each for each in behind.waits if each != stage), self.shape.before[stage])
        found: dict[State, list[tuple[Ints, Ints]]] = {}
        for code, way in self.ways[stage].items():
            lie = dict(zip(sources, way, strict=True))
            for here in own.of(code):
                if not len(here):
                    continue
                lies = lie | {stage: int(here.writes[0])}
                for state, labels in behind.by_state.items():
                    if all(
                        lies.get(each, lying) == lying
                        for each, lying in zip(behind.reads, state, strict=True)
                    ):
                        lying = lies | dict(zip(behind.reads, state, strict=True))
                        made = self._in_front(stage, here, behind, labels, waits)
                        trail = np.stack(
                            [
                                here.slot[made[1]],
                                np.full(len(made[1]), code),
                                here.writes[made[1]],
                                labels.trail[made[2]],
                            ]
                        )
                        found.setdefault(tuple(lying[each] for each in reads), []).append((made[0], trail))
        planned = (*behind.planned, stage)
        best = {state: self._best(ways, planned) for state, ways in found.items()}
        return Part(
            reads, waits, {state: labels for state, labels in best.items() if len(labels.trail)}, planned
        )

    def _in_front(
        self, stage: int, here: Ways, behind: Part, labels: Labels, waits: tuple[int, ...]
    ) -> tuple[Ints, Ints, Ints]:
        """Each own offer before each way: their sums, and the place of each."""
        first, then = _crossed(len(here), labels.sums.shape[1])
        after = labels.sums[:, then]
        ms = here.ms[first] + _row(behind, after, stage)
        before, ready_ms = self.shape.before[stage], self.shape.ready_ms[stage]
        beside = after[BESIDE] if before and not ready_ms else np.maximum(after[BESIDE], ms + ready_ms)
        later = [
            np.maximum(_row(behind, after, each), ms) if each in before else _row(behind, after, each)
            for each in waits
        ]
        sums = np.stack([here.cost[first] + after[COST], here.p95[first] + after[P95], beside, *later])
        # Of many, those that their own lot beats are not kept until the others are there.
        kept = unbeaten(sums, timed=self.timed)
        return sums[:, kept], first[kept], then[kept]

    def _best(self, found: list[tuple[Ints, Ints]], planned: tuple[int, ...]) -> Labels:
        sums, made_of = (np.concatenate(each, axis=1) for each in zip(*found, strict=True))
        if self.ceiling:
            below = self.ceiling.below(sums, planned)
            sums, made_of = sums[:, below], made_of[:, below]
        kept = unbeaten(sums, timed=self.timed)
        return self._thinned(Labels(sums[:, kept], self.trail.add(planned[-1], *made_of[:, kept])), self.most)

    def _thinned(self, labels: Labels, most: int) -> Labels:
        if labels.sums.shape[1] <= most:
            return labels
        self.is_exact = False
        return thinned(labels, most, timed=self.timed, optimistic=self.optimistic)


def _union(some: tuple[int, ...], more: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({*some, *more}))


def _crossed(some: int, others: int) -> tuple[Ints, Ints]:
    return np.repeat(np.arange(some), others), np.tile(np.arange(others), some)


def _row(part: Part, sums: Ints, stage: int) -> Ints:
    """What comes after a stage outside a part, by way."""
    return sums[BESIDE + 1 + part.waits.index(stage)] if stage in part.waits else np.zeros_like(sums[BESIDE])
