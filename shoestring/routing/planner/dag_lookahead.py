"""The stages after this one, where they branch: the graph of their own offers, as `Plans` goes on into it."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from shoestring.routing.candidates import Candidates, number_of
from shoestring.routing.dag import FIRST_SOURCE, Dag, build_dag, read_combinations
from shoestring.routing.question import Question
from shoestring.routing.planner.dag.labels import BESIDE, COST, P95, Labels, unbeaten
from shoestring.routing.planner.dag_planner import Ceiling, Graph, State
from shoestring.routing.planner.partial_plans import Limits, Span, Step, Ways
from shoestring.routing.planner.stage_options import StageOptions, TargetKinds


class Later:
    """The stages after the first, by themselves. `blocked`: those that nothing can take, with what their first offer costs where only a
    cap of its own stands against it."""

    def __init__(self, question: Question, candidates: Candidates, limits: Limits) -> None:
        self.shape, self.limits = build_dag(question.needs, question.upstream), limits
        self.readings = ways_to_read(question, candidates, self.shape)
        alike = TargetKinds(candidates)
        self.own = {
            stage: StageOptions(question, candidates, limits, stage, alike)
            for stage in range(1, len(question.needs))
        }
        self.blocked = {stage: own.first() for stage, own in self.own.items() if not own.any()}
        first = candidates.offers[0]
        self.may_be_left = {*first.reads, *formats_left(candidates, 0)}

    @cached_property
    def least(self) -> dict[int, tuple[int, int]]:
        """The least expected cost and P95 dollars, by stage that something can take."""
        parts = {
            stage: [part for code in self.readings[stage] for part in own.of(code) if len(part)]
            for stage, own in self.own.items()
        }
        return {
            stage: (min(int(each.cost.min()) for each in found), min(int(each.p95.min()) for each in found))
            for stage, found in parts.items()
            if found
        }


class DagLookahead:
    """The stages after this one, where they branch: as `ChainLookahead` has them of a chain. With a ceiling, only what may come to less; optimistic,
    a bound on what they take."""

    def __init__(
        self, later: Later, most: int, ceiling: Ceiling | None = None, *, optimistic: bool = False
    ) -> None:
        self.later, self.blocked, self.limits = later, later.blocked, later.limits
        own, timed = later.own.__getitem__, self.limits.timed
        self.graph = Graph(
            later.shape, later.readings, own, timed=timed, most=most, ceiling=ceiling, optimistic=optimistic
        )
        self.is_exact = self.graph.is_exact
        found = {leaves: labels for leaves in later.may_be_left if (labels := self.graph.after(leaves))}
        # The least time of what does not wait for the first stage, whatever that takes.
        self.beside_ms = min((int(labels.sums[BESIDE].min()) for labels in found.values()), default=0)
        ways = {leaves: self._ways(labels) for leaves, labels in found.items()}
        self.ways = {leaves: each for leaves, each in ways.items() if len(each)}

    def go_on(self, before: Span, *, saving: bool) -> None:
        """All ways are there already, whether they fit or not."""

    def least_after(self, stage: int, leaves: int) -> tuple[int, int] | None:
        """What the ways to go on after the first stage need at least, of money and of time; None: there is no way."""
        ways = self.ways.get(leaves)
        return None if ways is None else (int(ways.p95.min()), int(ways.ms.min()))

    def after(self, stage: int, leaves: int) -> Ways | None:
        """The ways to go on after the first stage."""
        return self.ways.get(leaves)

    def corners_after(self, leaves: int) -> Ways | None:
        return self.ways.get(leaves)

    def path(self, leaves: int, place: int) -> list[Step]:
        """The offers of all later stages, of one way to go on from what this stage leaves."""
        steps = self.graph.trail.steps(int(self.ways[leaves].then[place]))
        return [steps[stage] for stage in sorted(steps)]

    def _ways(self, labels: Labels) -> Ways:
        sums = labels.sums
        ms = sums[BESIDE + 1] if len(sums) > BESIDE + 1 else np.zeros_like(sums[COST])
        none = np.zeros_like(ms)
        found = Ways(sums[COST], sums[P95], ms, none, none, none, labels.trail)
        found = found.at(np.flatnonzero(sums[BESIDE] <= self.limits.left_ms))
        return found.at(unbeaten(np.stack([found.cost, found.p95, found.ms]), timed=self.limits.timed))


def formats_left(candidates: Candidates, stage: int) -> tuple[int, ...]:
    """The formats in which a stage may leave its data set."""
    offers = candidates.offers[stage]
    return tuple(sorted({*offers.writes} | ({offers.cached.writes} if offers.cached else set())))


def ways_to_read(question: Question, candidates: Candidates, shape: Dag) -> list[dict[int, State]]:
    """By stage, the ways to read its data sets, by the number that its offers know them by."""
    there = (
        (question.reads_format, question.reads_storage_class),
        *((each.format, each.storage_class) for each in question.upstream),
    )
    lie = {FIRST_SOURCE - place: (number_of(candidates.lies, *each),) for place, each in enumerate(there)}
    return [
        read_combinations([lie[source] if source < 0 else formats_left(candidates, source) for source in sources])
        for sources in shape.sources
    ]
