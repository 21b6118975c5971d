"""Find the best plan from each offer of one stage, at costs that are given offer by offer.

Budgets do not limit these plans: they are compared by cost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoestring.routing.candidates import NONE, Candidates, Ints
from shoestring.routing.dag import build_dag
from shoestring.routing.offers.offer_costs import delay_cost
from shoestring.routing.offers.offer_table import OfferTable
from shoestring.routing.planner.dag.dag_planner import DagPlanner
from shoestring.routing.planner.dag.labels import COST, P95, PARALLEL
from shoestring.routing.planner.dag.lookahead import formats_read
from shoestring.routing.planner.partial_plans import PartialPlans, undominated
from shoestring.routing.question import Question

MAX_PARTIAL_PLANS = 4096
"""Partial plans kept for one state of one group of stages, where the pipeline branches."""


@dataclass(frozen=True, slots=True)
class PlanCost:
    """The cost of a plan in micro-dollars and its duration in milliseconds."""

    micro: int
    ms: int


class CounterfactualStage:
    """The offers of one stage at their counterfactual costs."""

    def __init__(self, costs: CounterfactualPlans, stage: int) -> None:
        self.costs = costs
        self.usable = np.flatnonzero((costs.rows.stage == stage) & (costs.rows.exclusion == NONE))

    def plans(self, reads: int, /) -> list[PartialPlans]:
        """Return the undominated offers that read this format, one part for each format written."""
        costs, mine = self.costs, self.usable[self.costs.rows.reads[self.usable] == reads]
        parts = []
        for writes in np.unique(costs.rows.writes[mine]):
            rows = mine[costs.rows.writes[mine] == writes]
            rows = rows[undominated(costs.cost[rows], costs.micro[rows], costs.ms[rows])]
            none, written = np.zeros_like(rows), np.full(len(rows), writes)
            parts.append(
                PartialPlans(
                    costs.cost[rows], costs.micro[rows], costs.ms[rows], rows, written, written, none
                )
            )
        return parts


class CounterfactualPlans:
    """The best plans over the offers of all stages, at given costs.

    `micro` and `ms` hold micro-dollars and milliseconds for each row of `rows`. A plan takes at most
    `left_ms`, or as long as the fastest plan that begins with the offer that was `selected`.
    """

    def __init__(
        self,
        question: Question,
        candidates: Candidates,
        rows: OfferTable,
        micro: Ints,
        ms: Ints,
        left_ms: int,
        selected: int,
    ) -> None:
        self.rows, self.micro, self.ms = rows, micro, ms
        # Plans are compared by money plus the price of delay.
        self.cost = micro.copy()
        for stage, need in enumerate(question.needs):
            own = rows.stage == stage
            self.cost[own] += delay_cost(ms[own], question.delay_microusd_per_hour(need))
        dag = build_dag(question.needs, question.upstream)
        self.later = DagPlanner(
            dag,
            formats_read(question, candidates, dag),
            lambda stage: CounterfactualStage(self, stage),
            timed=True,
            max_labels=MAX_PARTIAL_PLANS,
        )
        found = self._ends(selected)
        self.left_ms = left_ms if found is None else max(left_ms, int(found[2].min()))

    def best(self) -> int:
        """Return the offer for the first stage with which the best plan begins."""
        ends = {
            row: self._end(row)
            for row in np.flatnonzero((self.rows.stage == 0) & (self.rows.exclusion == NONE)).tolist()
        }
        return min((end, row) for row, end in ends.items() if end is not None)[1]

    def is_in_time(self, row: int) -> bool:
        """Return True if some plan that begins with this offer takes at most `left_ms`."""
        return self._end(row) is not None

    def total(self, row: int) -> PlanCost:
        """Return the cost of the best plan that begins with this offer; of the offer alone if there is
        none.
        """
        end = self._end(row)
        return PlanCost(int(self.micro[row]), int(self.ms[row])) if end is None else PlanCost(end[1], end[2])

    def _end(self, row: int) -> tuple[int, int, int] | None:
        """Return cost, micro-dollars and milliseconds of the best plan in time that begins here; None if
        none is.
        """
        if (ends := self._ends(row)) is None:
            return None
        cost, micro, ms = ends
        in_time = np.flatnonzero(ms <= self.left_ms)
        return min(((int(cost[each]), int(micro[each]), int(ms[each])) for each in in_time), default=None)

    def _ends(self, row: int) -> tuple[Ints, Ints, Ints] | None:
        """Return cost, micro-dollars and milliseconds of each plan that begins with this offer; None if
        there is none.
        """
        if (plans := self.later.plans_after(int(self.rows.writes[row]))) is None:
            return None
        later_ms = plans.sums[PARALLEL + 1] if len(plans.sums) > PARALLEL + 1 else 0
        ms: Ints = np.maximum(self.ms[row] + later_ms, plans.sums[PARALLEL])
        return plans.sums[COST] + self.cost[row], plans.sums[P95] + self.micro[row], ms
