"""The look-ahead over later stages that branch: the DAG planner as a `Lookahead`."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from shoestring.routing.candidates import Candidates, stored_format_index
from shoestring.routing.dag import FIRST_SOURCE, Dag, build_dag, read_combinations
from shoestring.routing.planner.dag.dag_planner import CostCeiling, DagPlanner, State
from shoestring.routing.planner.dag.labels import COST, P95, PARALLEL, Labels, undominated_labels
from shoestring.routing.planner.partial_plans import NeedRange, PartialPlans, PlanStep, RunLimits
from shoestring.routing.planner.stage_options import StageOptions, TargetKinds
from shoestring.routing.question import Question


class LaterStages:
    """The options of the stages after the first. `blocked`: see `Lookahead`."""

    def __init__(
        self, question: Question, candidates: Candidates, limits: RunLimits, prune_above_offers: int
    ) -> None:
        self.dag, self.limits = build_dag(question.needs, question.upstream), limits
        self.combinations = formats_read(question, candidates, self.dag)
        kinds = TargetKinds(candidates)
        self.options = {
            stage: StageOptions(question, candidates, limits, stage, kinds, prune_above_offers)
            for stage in range(1, len(question.needs))
        }
        self.blocked = {
            stage: each.first_offer_cost() for stage, each in self.options.items() if not each.any()
        }
        self.formats_left = {*candidates.offers[0].reads, *formats_left(candidates, 0)}

    @cached_property
    def minima(self) -> dict[int, tuple[int, int]]:
        """The minimum expected cost and the minimum P95 dollars, by stage that some offer can run."""
        plans = {
            stage: [part for number in self.combinations[stage] for part in each.plans(number) if len(part)]
            for stage, each in self.options.items()
        }
        return {
            stage: (min(int(each.cost.min()) for each in parts), min(int(each.p95.min()) for each in parts))
            for stage, parts in plans.items()
            if parts
        }

    def planner(
        self, max_labels: int, ceiling: CostCeiling | None = None, *, optimistic: bool = False
    ) -> DagPlanner:
        """Return the plans of these stages: the same for any deadline, unless a ceiling is given.

        With a ceiling, only plans that may stay below it. `optimistic`: a lower bound of their sums instead
        of real plans.
        """
        return DagPlanner(
            self.dag,
            self.combinations,
            self.options.__getitem__,
            timed=self.limits.timed,
            max_labels=max_labels,
            ceiling=ceiling,
            optimistic=optimistic,
        )


class DagLookahead:
    """The plans of later stages that branch, as far as they keep the limits (see `Lookahead`)."""

    def __init__(self, later: LaterStages, planner: DagPlanner) -> None:
        self.blocked, self.limits, self.planner = later.blocked, later.limits, planner
        self.is_exact = planner.is_exact
        found = {
            format_left: each
            for format_left in later.formats_left
            if (each := self.planner.plans_after(format_left))
        }
        # Stages that do not wait for the first one take this long, whatever the first one takes.
        self.parallel_ms = min((int(each.sums[PARALLEL].min()) for each in found.values()), default=0)
        plans = {format_left: self._in_time(each) for format_left, each in found.items()}
        self.plans = {format_left: each for format_left, each in plans.items() if len(each)}

    def search(self, current: NeedRange, *, saving: bool) -> None:
        """Do nothing: all plans were found already, whether they fit or not."""

    def min_needs(self, format_left: int) -> tuple[int, int] | None:
        """Return the minimum dollars and minimum time of the plans after a format; None: there is none."""
        plans = self.plans.get(format_left)
        return None if plans is None else (int(plans.p95.min()), int(plans.ms.min()))

    def continuations(self, format_left: int) -> PartialPlans | None:
        """Return the plans after a format, by expected cost; None: there is none."""
        return self.plans.get(format_left)

    def trade_offs(self, format_left: int) -> PartialPlans | None:
        """Return the same plans: among them are all that are Pareto-optimal in dollars and time."""
        return self.plans.get(format_left)

    def path(self, format_left: int, index: int) -> list[PlanStep]:
        """Return the offers of all later stages in one of the continuations."""
        steps = self.planner.back_pointers.steps(int(self.plans[format_left].next_index[index]))
        return [steps[stage] for stage in sorted(steps)]

    def _in_time(self, labels: Labels) -> PartialPlans:
        """Return the labels whose parallel stages keep the deadline, as plans after the first stage."""
        sums = labels.sums
        ms = sums[PARALLEL + 1] if len(sums) > PARALLEL + 1 else np.zeros_like(sums[COST])
        none = np.zeros_like(ms)
        plans = PartialPlans(sums[COST], sums[P95], ms, none, none, none, labels.trail)
        plans = plans.at(np.flatnonzero(sums[PARALLEL] <= self.limits.left_ms))
        remaining = undominated_labels(np.stack([plans.cost, plans.p95, plans.ms]), timed=self.limits.timed)
        return plans.at(remaining)


def formats_left(candidates: Candidates, stage: int) -> tuple[int, ...]:
    """Return the formats in which a stage may leave its data set."""
    offers = candidates.offers[stage]
    return tuple(sorted({*offers.writes} | ({offers.cached.writes} if offers.cached else set())))


def formats_read(question: Question, candidates: Candidates, dag: Dag) -> list[dict[int, State]]:
    """Return, by stage, the formats of the data sets it reads, by the number that its offers know them by."""
    existing = (
        (question.reads_format, question.reads_storage_class),
        *((each.format, each.storage_class) for each in question.upstream),
    )
    formats = candidates.stored_formats
    stored = {FIRST_SOURCE - i: (stored_format_index(formats, *each),) for i, each in enumerate(existing)}
    return [
        read_combinations(
            [stored[source] if source < 0 else formats_left(candidates, source) for source in sources]
        )
        for sources in dag.sources
    ]
