"""The look-ahead, exact over the remaining chain of stages.

What couples neighbours is the format: a stage reads what the last writer before it wrote. So, from the last stage backwards and for each
format that a stage may find, the completions of the chain are combined and the dominated dropped (one that another beats or equals
in expected cost, P95 dollars and P95 seconds can be replaced by it in any plan). What is left is small, and loses no optimum.

The expected cost is dollars and, where a policy gives an hour of waiting a price, the expected time at that price.

Ways to go on are compared by what they decide: more than the stages before them leave at least cannot be done, and within what
they leave at most, less is no better.

A stage of fixed work: the least expected cost of all that remains, among plans whose summed P95 fits money and deadline. A later
elastic stage counts with all its passes in the cost and with its least in what has to fit.
The elastic stage: the most expected samples with what the P95 of the later stages leaves of money and deadline; then the least cost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from itertools import accumulate

import numpy as np

from shoestring.routing.candidates import Candidates
from shoestring.routing.question import Question
from shoestring.routing.planner.pareto import Best, undominated
from shoestring.routing.planner.partial_plans import UNBOUNDED, Limits, Span, Step, Ways, joined, nothing_more
from shoestring.routing.planner.stage_options import StageOptions, TargetKinds


class ChainLookahead:
    """The stages after this one: for each stage, by the format it finds, the undominated ways to do it and all after it.

    A format from which there is no way is not there. `least` has what the ways to go on need at least at P95, of money and of time,
    whether they fit or not; `by_stage` those that may fit, from when `go_on` was called.
    """

    def __init__(self, question: Question, candidates: Candidates, limits: Limits) -> None:
        self.stages, self.limits = len(question.needs), limits
        alike = TargetKinds(candidates)
        self.own = {
            stage: StageOptions(question, candidates, limits, stage, alike) for stage in range(1, self.stages)
        }
        # Stages that nothing can take, with what their first offer costs where only a cap of its own stands against it.
        self.blocked = {stage: own.first() for stage, own in self.own.items() if not own.any()}
        self.least: dict[int, dict[int, tuple[int, int]]] = {}
        self.by_stage: dict[int, dict[int, Ways]] = {}
        for stage in range(self.stages - 1, 0, -1):
            found = {reads: self._least(stage, reads) for reads in self.own[stage].offers.reads}
            self.least[stage] = {reads: least for reads, least in found.items() if least is not None}

    def _least(self, stage: int, reads: int) -> tuple[int, int] | None:
        """None: there is no way."""
        both = [
            (micro + then[0], ms + then[1])
            for leaves, (micro, ms) in self.own[stage].least(reads).items()
            if (then := self.least_after(stage, leaves)) is not None
        ]
        return (min(micro for micro, _ in both), min(ms for _, ms in both)) if both else None

    def least_after(self, stage: int, leaves: int) -> tuple[int, int] | None:
        """What the ways to go on after a stage need at least, each by itself; None: there is no way."""
        return (0, 0) if stage + 1 == self.stages else self.least[stage + 1].get(leaves)

    def go_on(self, before: Span, *, saving: bool) -> None:
        """Find the ways that may fit after what needs so much. `saving`: what they leave over is of use to the stage before them."""
        self.by_stage = {stage: {} for stage in self.own}
        if (spans := self._spans(before)) is None:
            return
        every = [before, *spans.values()]
        for stage in range(self.stages - 1, 0, -1):
            beside, earlier = ([*every[:stage], *every[stage + 1 :]], every[:stage])
            enough = (0, 0) if saving else self._enough(beside)
            own = self.own[stage]
            parts = {reads: own.of(reads, spans[stage], enough[0], enough[1]) for reads in own.offers.reads}
            found = {
                reads: self._before(stage, each, earlier, saving=saving) for reads, each in parts.items()
            }
            self.by_stage[stage] = {reads: ways for reads, ways in found.items() if len(ways)}

    def _spans(self, before: Span) -> dict[int, Span] | None:
        """What each stage's own offers need that fit beside the least of all others; None: those of one do not fit at all."""
        spans = {stage: own.span() for stage, own in self.own.items()}
        least = [each for each in (before, *spans.values()) if each is not None]
        spare_micro = self.limits.left_micro - sum(each.least_micro for each in least)
        spare_ms = self.limits.left_ms - sum(each.least_ms for each in least)
        found = {}
        for stage, span in spans.items():
            fits = span
            if span and (
                span.most_micro - span.least_micro > spare_micro or span.most_ms - span.least_ms > spare_ms
            ):
                fits = self.own[stage].span(span.least_micro + spare_micro, span.least_ms + spare_ms)
            if fits is None:
                return None
            found[stage] = fits
        return found

    def _enough(self, others: list[Span]) -> tuple[int, int]:
        """What other stages leave whatever they take, of money and of time: less than that is no better."""
        micro = self.limits.left_micro - sum(each.most_micro for each in others)
        ms = self.limits.left_ms - sum(each.most_ms for each in others)
        return max(micro, 0), max(ms, 0)

    def after(self, stage: int, leaves: int) -> Ways | None:
        """The ways to go on after a stage."""
        return nothing_more() if stage + 1 == self.stages else self.by_stage[stage + 1].get(leaves)

    def _before(self, stage: int, own: list[Ways], earlier: list[Span], *, saving: bool) -> Ways:
        """Each of a stage's own ways before each way to go on from what it leaves, of those that may fit."""
        most_micro = self.limits.left_micro - sum(each.least_micro for each in earlier)
        most_ms = self.limits.left_ms - sum(each.least_ms for each in earlier)
        enough = (0, 0) if saving else self._enough(earlier)
        pairs = [
            (here, after) for here in own if (after := self.after(stage, int(here.leaves[0]))) is not None
        ]
        best = partial(undominated, enough_micro=enough[0], enough_ms=self.limits.enough_ms or enough[1])
        return best_before(pairs, most_micro, most_ms, best)

    def path(self, leaves: int, place: int) -> list[Step]:
        """The offers of all later stages, of one way to go on from what this stage leaves."""
        steps = []
        for stage in range(1, self.stages):
            ways = self.by_stage[stage][leaves]
            steps.append(Step(int(ways.slot[place]), leaves, int(ways.writes[place])))
            leaves, place = int(ways.leaves[place]), int(ways.then[place])
        return steps

    def corners_after(self, leaves: int) -> Ways | None:
        """The ways to go on after the first stage of which none needs less of both money and time, whatever they cost."""
        return nothing_more() if self.stages == 1 else self._corners.get(leaves)

    @cached_property
    def _corners(self) -> dict[int, Ways]:
        return chained(
            self.own, StageOptions.corners, lambda _, p95, ms: undominated(p95, np.zeros_like(p95), ms)
        )[1]


def chained(
    own: Mapping[int, StageOptions], of: Callable[[StageOptions, int], list[Ways]], best: Best
) -> dict[int, dict[int, Ways]]:
    """Of stages to the end, by the format that each finds, the best ways to do it and all after it; within no limit."""
    found: dict[int, dict[int, Ways]] = {}
    for stage in sorted(own, reverse=True):
        found[stage] = {}
        for reads in own[stage].offers.reads:
            pairs = []
            for here in of(own[stage], reads):
                after = found[stage + 1].get(int(here.leaves[0])) if stage + 1 in own else nothing_more()
                if after is not None:
                    pairs.append((here, after))
            if len(kept := best_before(pairs, UNBOUNDED, UNBOUNDED, best)):
                found[stage][reads] = kept
    return found


def best_before(pairs: list[tuple[Ways, Ways]], most_micro: int, most_ms: int, best: Best) -> Ways:
    """The best of each way to do some stages before each way to go on after it, of those that need no more than so much.

    Many thousands are compared and few are left: only these are made. What needs too much beats nothing that does not, so that it may
    stay until then.
    """
    if not pairs:
        return joined([])
    both = [
        [(getattr(here, name)[:, None] + getattr(after, name)).ravel() for here, after in pairs]
        for name in ("cost", "p95", "ms")
    ]
    cost, p95, ms = map(np.concatenate, both)
    places = best(cost, p95, ms)
    places = places[(p95[places] <= most_micro) & (ms[places] <= most_ms)]
    begins, own_begins = [0, *accumulate(map(len, both[0]))], [0, *accumulate(len(here) for here, _ in pairs)]
    pair = np.searchsorted(begins, places, side="right") - 1
    first, then = np.divmod(places - np.take(begins, pair), np.take([len(after) for _, after in pairs], pair))
    first += np.take(own_begins, pair)
    slot, writes, leaves = (
        np.concatenate([getattr(here, name) for here, _ in pairs])[first]
        for name in ("slot", "writes", "leaves")
    )
    return Ways(cost[places], p95[places], ms[places], slot, writes, leaves, then)
