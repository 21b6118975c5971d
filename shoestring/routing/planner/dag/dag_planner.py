"""The planner for a DAG of stages: exact while there are few partial plans, with a bound where there are
many.

Stages are coupled by what lies between them: the format of a data set, the time at which it is ready, and the
shared budget. So stages are planned from the end, each after all that wait for it. The planned stages form
groups that are independent of each other. For each combination of formats that a group reads from outside, it
keeps the labels that no other dominates in expected cost, P95 dollars and P95 times. A stage merges the
groups that read it or wait for it (dollars add up, the longest of the times counts), and is put before them
with its own offers. A chain is one group with one time.

No optimum is lost as long as no group has more than `max_labels` labels for one state. Beyond that, similar
labels are thinned out. To bound the loss, the stages are planned once more, with each set of similar labels
replaced by their minimum in every row: no plan can be better than that.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from shoestring.routing.candidates import Ints
from shoestring.routing.dag import Dag
from shoestring.routing.planner.dag.labels import COST, P95, PARALLEL, Labels, thin_out, undominated_labels
from shoestring.routing.planner.partial_plans import PartialPlans, PlanStep

MAX_PAIRS = 2**18
"""Maximum number of labels that are made at once by merging two groups."""

State = tuple[int, ...]
"""The formats in which data sets are stored."""


class OptionsOfStage(Protocol):
    """The offers of one stage by themselves."""

    def plans(self, reads: int, /) -> list[PartialPlans]:
        """Return the undominated offers that read a format, one element of the list for each format left."""
        ...


@dataclass(frozen=True, slots=True)
class CostCeiling:
    """Upper limits of expected cost, P95 dollars and P95 time. Labels that cannot stay below them are
    dropped.

    `minima`: by stage, the minimum cost and the minimum P95 dollars of its offers.
    """

    cost: int
    p95: int
    ms: int
    minima: dict[int, tuple[int, int]]

    def below(self, sums: Ints, planned: tuple[int, ...]) -> Ints:
        """Return the labels of a group of planned stages that may be part of a plan below the ceiling."""
        rest = np.sum(
            [each for stage, each in self.minima.items() if stage not in planned] or [(0, 0)], axis=0
        )
        fits = (sums[COST] <= self.cost - rest[0]) & (sums[P95] <= self.p95 - rest[1])
        return np.flatnonzero(fits & (sums[PARALLEL:] <= self.ms).all(axis=0))


@dataclass(frozen=True, slots=True)
class StageGroup:
    """Planned stages with their labels by state.

    `reads`: the outside stages whose data sets they read; a state holds the formats of these. `waits`: the
    outside stages that they wait for; the rows of the sums after PARALLEL are the times after these.
    """

    reads: tuple[int, ...]
    waits: tuple[int, ...]
    by_state: dict[State, Labels]
    planned: tuple[int, ...] = ()


EMPTY_GROUP = StageGroup((), (), {(): Labels(np.zeros((3, 1), dtype=np.int64), np.full(1, -1))})


class BackPointers:
    """The step that made each label, one a column: stage, target, format read, format written, and the label
    after it.

    Where the stage is -1, two groups were merged, and the target and the last row are the two labels.
    """

    def __init__(self) -> None:
        self.begins, self.parts, self.count = list[int](), list[Ints](), 0

    def add(self, *rows: Ints | int) -> Ints:
        """Record labels and return their numbers."""
        made = np.stack(np.broadcast_arrays(*rows)).astype(np.int64)
        self.begins.append(self.count)
        self.parts.append(made)
        self.count += made.shape[1]
        return np.arange(self.count - made.shape[1], self.count)

    def steps(self, label: int) -> dict[int, PlanStep]:
        """Return the offers of a label, by stage."""
        found, left = dict[int, PlanStep](), [label]
        while left:
            if (one := left.pop()) < 0:
                continue
            part = bisect_right(self.begins, one) - 1
            stage, target, reads, writes, after = self.parts[part][:, one - self.begins[part]].tolist()
            if stage < 0:
                left += [target, after]
            else:
                found[stage] = PlanStep(target, reads, writes)
                left.append(after)
        return found


class DagPlanner:
    """The plans for all stages after the first. `is_exact`: no labels were thinned out.

    Args:
        dag: the dependencies of the stages.
        combinations: by stage, the formats of its data sets, by the number that its offers read them by.
        options_of: returns the offers of a stage.
        timed: there is a deadline, so times count.
        max_labels: labels to keep for one state of one group.
        ceiling: drops labels that cannot stay below it.
        optimistic: thins out to a lower bound instead of real plans.
    """

    def __init__(
        self,
        dag: Dag,
        combinations: Sequence[Mapping[int, State]],
        options_of: Callable[[int], OptionsOfStage],
        *,
        timed: bool,
        max_labels: int,
        ceiling: CostCeiling | None = None,
        optimistic: bool = False,
    ) -> None:
        self.dag, self.combinations, self.timed, self.max_labels = dag, combinations, timed, max_labels
        self.ceiling, self.optimistic = ceiling, optimistic
        self.is_exact, self.back_pointers = True, BackPointers()
        groups = list[StageGroup]()
        for stage in dag.planning_order():
            dependent = [each for each in groups if stage in each.reads or stage in each.waits]
            others = [each for each in groups if stage not in each.reads and stage not in each.waits]
            groups = [*others, self._put_before(stage, options_of(stage), self._merge(dependent))]
        whole = self._merge(groups)
        self.reads_first, self.by_state = bool(whole.reads), whole.by_state

    def plans_after(self, format_left: int) -> Labels | None:
        """Return the plans of all later stages, where the first one leaves this format; None: none."""
        return self.by_state.get((format_left,) if self.reads_first else ())

    def _merge(self, groups: list[StageGroup]) -> StageGroup:
        whole = EMPTY_GROUP
        for each in groups:
            whole = each if whole is EMPTY_GROUP else self._merge_two(whole, each)
        return whole

    def _merge_two(self, one: StageGroup, other: StageGroup) -> StageGroup:
        reads, waits = _union(one.reads, other.reads), _union(one.waits, other.waits)
        found: dict[State, Labels] = {}
        for these, first in one.by_state.items():
            formats = dict(zip(one.reads, these, strict=True))
            for those, second in other.by_state.items():
                others = dict(zip(other.reads, those, strict=True))
                if all(formats.get(stage, each) == each for stage, each in others.items()):
                    both = formats | others
                    state = tuple(both[stage] for stage in reads)
                    found[state] = self._pairs(one, first, other, second, waits)
        return StageGroup(reads, waits, found, one.planned + other.planned)

    def _pairs(
        self, one: StageGroup, first: Labels, other: StageGroup, second: Labels, waits: tuple[int, ...]
    ) -> Labels:
        """Return every label of one group with every label of another, pruned."""
        if first.sums.shape[1] * second.sums.shape[1] > MAX_PAIRS:
            first, second = (self._thin_out(each, int(MAX_PAIRS**0.5)) for each in (first, second))
        left, right = _all_pairs(first.sums.shape[1], second.sums.shape[1])
        a, b = first.sums[:, left], second.sums[:, right]
        after = [np.maximum(_time_after(one, a, stage), _time_after(other, b, stage)) for stage in waits]
        parallel = np.maximum(a[PARALLEL], b[PARALLEL])
        sums = np.stack([a[COST] + b[COST], a[P95] + b[P95], parallel, *after])
        remaining = undominated_labels(sums, timed=self.timed)
        trail = self.back_pointers.add(-1, first.trail[left[remaining]], 0, 0, second.trail[right[remaining]])
        return self._thin_out(Labels(sums[:, remaining], trail), self.max_labels)

    def _put_before(self, stage: int, options: OptionsOfStage, later: StageGroup) -> StageGroup:
        """Return a group with a stage's offers put before the group of those that read it or wait for it."""
        sources = self.dag.sources[stage]
        outside = tuple(each for each in sources if each >= 0)
        reads = _union(tuple(each for each in later.reads if each != stage), outside)
        waits = _union(tuple(each for each in later.waits if each != stage), self.dag.before[stage])
        found: dict[State, list[tuple[Ints, Ints]]] = {}
        for number, formats_read in self.combinations[stage].items():
            read = dict(zip(sources, formats_read, strict=True))
            for stage_plans in options.plans(number):
                if not len(stage_plans):
                    continue
                formats = read | {stage: int(stage_plans.writes[0])}
                for state, labels in later.by_state.items():
                    needed = dict(zip(later.reads, state, strict=True))
                    if all(formats.get(each, index) == index for each, index in needed.items()):
                        both = formats | needed
                        sums, first, after = self._with_offers(stage, stage_plans, later, labels, waits)
                        code = np.full(len(first), number)
                        trail = np.stack(
                            [stage_plans.target[first], code, stage_plans.writes[first], labels.trail[after]]
                        )
                        found.setdefault(tuple(both[each] for each in reads), []).append((sums, trail))
        planned = (*later.planned, stage)
        best = {state: self._best(labels, planned) for state, labels in found.items()}
        by_state = {state: labels for state, labels in best.items() if len(labels.trail)}
        return StageGroup(reads, waits, by_state, planned)

    def _with_offers(
        self, stage: int, stage_plans: PartialPlans, later: StageGroup, labels: Labels, waits: tuple[int, ...]
    ) -> tuple[Ints, Ints, Ints]:
        """Return the sums of each offer put before each label, and the indices of both, pruned."""
        first, then = _all_pairs(len(stage_plans), labels.sums.shape[1])
        after = labels.sums[:, then]
        ms = stage_plans.ms[first] + _time_after(later, after, stage)
        before, ready_ms = self.dag.before[stage], self.dag.ready_ms[stage]
        starts_alone = not before or ready_ms > 0
        parallel = np.maximum(after[PARALLEL], ms + ready_ms) if starts_alone else after[PARALLEL]
        times = [
            np.maximum(_time_after(later, after, each), ms)
            if each in before
            else _time_after(later, after, each)
            for each in waits
        ]
        sums = np.stack(
            [stage_plans.cost[first] + after[COST], stage_plans.p95[first] + after[P95], parallel, *times]
        )
        # Where there are many, labels that their own set dominates are dropped before the other sets are
        # made.
        remaining = undominated_labels(sums, timed=self.timed)
        return sums[:, remaining], first[remaining], then[remaining]

    def _best(self, found: list[tuple[Ints, Ints]], planned: tuple[int, ...]) -> Labels:
        sums, trail = (np.concatenate(each, axis=1) for each in zip(*found, strict=True))
        if self.ceiling:
            below = self.ceiling.below(sums, planned)
            sums, trail = sums[:, below], trail[:, below]
        remaining = undominated_labels(sums, timed=self.timed)
        numbers = self.back_pointers.add(planned[-1], *trail[:, remaining])
        return self._thin_out(Labels(sums[:, remaining], numbers), self.max_labels)

    def _thin_out(self, labels: Labels, maximum: int) -> Labels:
        if labels.sums.shape[1] <= maximum:
            return labels
        self.is_exact = False
        return thin_out(labels, maximum, timed=self.timed, optimistic=self.optimistic)


def _union(some: tuple[int, ...], more: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({*some, *more}))


def _all_pairs(first: int, second: int) -> tuple[Ints, Ints]:
    """Return the indices of all pairs of `first` and `second` elements."""
    return np.repeat(np.arange(first), second), np.tile(np.arange(second), first)


def _time_after(group: StageGroup, sums: Ints, stage: int) -> Ints:
    """Return, by label, the time after the end of an outside stage; 0 where the group does not wait."""
    row: Ints = sums[PARALLEL]
    return sums[PARALLEL + 1 + group.waits.index(stage)] if stage in group.waits else np.zeros_like(row)
