"""Every road from one stage to the end, by prices that are known one by one. Budgets are no limit: roads are compared by what they cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoestring.routing.candidates import NONE, Candidates, Ints
from shoestring.routing.dag import build_dag
from shoestring.routing.decision import Question
from shoestring.routing.offers.offer_costs import Rows, time_cost
from shoestring.routing.planner.dag.labels import BESIDE, COST, P95
from shoestring.routing.planner.dag_lookahead import ways_to_read
from shoestring.routing.planner.dag_planner import Graph
from shoestring.routing.planner.pareto import undominated
from shoestring.routing.planner.partial_plans import Ways, waiting

MAX_PARTIAL_PLANS = 4096
"""That are kept for one state of one part of the stages, where they branch."""


@dataclass(frozen=True, slots=True)
class PlanCost:
    micro: int
    ms: int


class StageOffers:
    """One stage's offers at what they are known to cost."""

    def __init__(self, roads: CounterfactualPlans, stage: int) -> None:
        self.roads, self.places = (
            roads,
            np.flatnonzero((roads.rows.stage == stage) & (roads.rows.exclusion == NONE)),
        )

    def of(self, reads: int) -> list[Ways]:
        """Those that read so, one part for each format written."""
        roads, mine = self.roads, self.places[self.roads.rows.reads[self.places] == reads]
        parts = []
        for writes in np.unique(roads.rows.writes[mine]):
            rows = mine[roads.rows.writes[mine] == writes]
            rows = rows[undominated(roads.cost[rows], roads.micro[rows], roads.ms[rows])]
            none, written = np.zeros_like(rows), np.full(len(rows), writes)
            parts.append(
                Ways(roads.cost[rows], roads.micro[rows], roads.ms[rows], rows, written, written, none)
            )
        return parts


class CounterfactualPlans:
    """Offers of all stages (`rows`) at these micro-dollars and milliseconds, one a row; a road takes `left_ms` at most, or what the
    quickest one from the offer that was `taken` does."""

    def __init__(
        self,
        question: Question,
        candidates: Candidates,
        rows: Rows,
        micro: Ints,
        ms: Ints,
        left_ms: int,
        taken: int,
    ) -> None:
        self.rows, self.micro, self.ms = rows, micro, ms
        worth = [waiting(question, stage) for stage in range(len(question.needs))]
        # What roads are compared by: money, and the time that a policy has a price for.
        self.cost = micro.copy()
        for stage, micro_per_hour in enumerate(worth):
            self.cost[rows.stage == stage] += time_cost(ms[rows.stage == stage], micro_per_hour)
        shape = build_dag(question.needs, question.upstream)
        readings = ways_to_read(question, candidates, shape)
        self.onward = Graph(
            shape, readings, lambda stage: StageOffers(self, stage), timed=True, most=MAX_PARTIAL_PLANS
        )
        found = self._ends(taken)
        self.left_ms = left_ms if found is None else max(left_ms, int(found[2].min()))

    def best(self) -> int:
        """The offer for the first stage that the best road begins with."""
        ends = {
            row: self._end(row)
            for row in np.flatnonzero((self.rows.stage == 0) & (self.rows.exclusion == NONE)).tolist()
        }
        return min((end, row) for row, end in ends.items() if end is not None)[1]

    def is_in_time(self, row: int) -> bool:
        """Is there a way on from an offer that is?"""
        return self._end(row) is not None

    def total(self, row: int) -> PlanCost:
        """What an offer comes to with the best way on from it; alone, where there is none."""
        end = self._end(row)
        return PlanCost(int(self.micro[row]), int(self.ms[row])) if end is None else PlanCost(end[1], end[2])

    def _end(self, row: int) -> tuple[int, int, int] | None:
        """Cost, money and time of an offer with the best way on from it that is in time; None: there is none."""
        if (ends := self._ends(row)) is None:
            return None
        cost, micro, ms = ends
        in_time = np.flatnonzero(ms <= self.left_ms)
        return min(((int(cost[each]), int(micro[each]), int(ms[each])) for each in in_time), default=None)

    def _ends(self, row: int) -> tuple[Ints, Ints, Ints] | None:
        """Cost, money and time of an offer with each way on from it; None: there is none."""
        if (ways := self.onward.after(int(self.rows.writes[row]))) is None:
            return None
        then = ways.sums[BESIDE + 1] if len(ways.sums) > BESIDE + 1 else 0
        ms: Ints = np.maximum(self.ms[row] + then, ways.sums[BESIDE])
        return ways.sums[COST] + self.cost[row], ways.sums[P95] + self.micro[row], ms
