"""Price the offers of a decision with the facts known after the run. Pure.

seconds = start-up + working + lost to preemption     each as estimated, or as known now
working = estimated working time x (actual / estimated working time of the stage, where it ran)
          or, on a pool with receipts, prior x median of (actual / prior) on that pool
dollars = price x seconds + fees for transferred and stored bytes
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from shoestring.core.types import STANDARD_CLASS, Format, Market
from shoestring.routing.analysis.counterfactual import CounterfactualPlans, PlanCost
from shoestring.routing.candidates import MS_PER_HOUR, NONE
from shoestring.routing.dag import build_dag
from shoestring.routing.decision import Decision
from shoestring.routing.offers.offer_table import full_offer_table
from shoestring.routing.pages.decision_view import interpolate, selected_row
from shoestring.routing.planner.dag.lookahead import formats_read
from shoestring.routing.planner.partial_plans import UNBOUNDED

Assumption = Literal["work", "price", "speed", "start-up", "preemption"]
KNOWABLE_ASSUMPTIONS: tuple[Assumption, ...] = ("price", "speed", "start-up", "preemption")
Target = tuple[str, Market]


@dataclass(frozen=True, slots=True)
class StageActuals:
    """The actual time and money of a stage, from a decision on.

    `working_ms` covers the successful attempt without its start-up; `lost_ms` covers the attempts before
    it. `paid_microusd` covers all attempts; `fees_microusd` is the part of it that does not depend on time.
    `samples` is set for an elastic stage, `writes` and `storage_class` for a stage that writes a data set.
    """

    target: Target
    paid_microusd: int
    working_ms: int
    startup_ms: int
    lost_ms: int
    samples: int
    writes: Format | None = None
    fees_microusd: int = 0
    storage_class: str = STANDARD_CLASS

    @property
    def ms(self) -> int:
        """Return the total milliseconds of all attempts."""
        return self.working_ms + self.startup_ms + self.lost_ms


@dataclass(frozen=True, slots=True)
class KnownFacts:
    """The facts that are known after the run.

    `actuals` by stage. `speed_ratios`: actual divided by prior seconds, by stage and pool. `prices`:
    micro-dollars an hour by pool and market; a target without an entry keeps its price of the decision.
    """

    actuals: Mapping[str, StageActuals]
    speed_ratios: Mapping[tuple[str, str], float]
    prices: Mapping[Target, int]


class HindsightPricing:
    """The offers of one decision, priced with the facts known now."""

    def __init__(self, decision: Decision, known: KnownFacts) -> None:
        self.decision, self.known, self.candidates = decision, known, decision.candidates
        self.table = full_offer_table(decision.candidates)
        self.needs = decision.question.needs
        self.left_ms = self._left_ms()
        self.expected = {row: self._expected_ms(row) for row in range(len(self.table.stage))}
        self.chosen = self._chosen()

    def usable_rows(self) -> list[int]:
        """Return the offers on which the current stage can run."""
        rows: list[int] = np.flatnonzero((self.table.stage == 0) & (self.table.exclusion == NONE)).tolist()
        return rows

    def plans(self, knowing: frozenset[str]) -> CounterfactualPlans:
        """Return the plans over all offers, for the work that was done, if only the facts in `knowing` are
        known.
        """
        priced = [self.cost(row, knowing) for row in range(len(self.table.stage))]
        micro, ms = np.array([each.micro for each in priced]), np.array([each.ms for each in priced])
        return CounterfactualPlans(
            self.decision.question, self.candidates, self.table, micro, ms, self.left_ms, self.chosen[0]
        )

    def _left_ms(self) -> int:
        """Return the time limit of a plan: the deadline, or the actual duration if that was longer."""
        left_s = self.decision.question.deadline_left_s
        actual = sum(each.ms for each in self.known.actuals.values())
        return UNBOUNDED if left_s is None else max(int(left_s * 1000), actual)

    def target(self, row: int) -> Target:
        """Return pool and market of an offer."""
        return self.candidates.pools[self.table.pool[row]], self.candidates.markets[self.table.market[row]]

    def _actuals(self, row: int) -> StageActuals | None:
        """Return what the stage of this offer used; None if it never completed, or if the offer is its
        cached result.
        """
        return (
            None
            if self.table.cached[row]
            else self.known.actuals.get(self.candidates.stages[self.table.stage[row]])
        )

    def _samples(self, row: int) -> int:
        """Return the samples of an elastic stage that ran; else 0."""
        actual = self._actuals(row)
        return actual.samples if actual and self.decision.question.needs[self.table.stage[row]].elastic else 0

    def _expected_ms(self, row: int) -> int:
        samples, columns = self._samples(row), self.table
        if not samples:
            return int(columns.est_ms[row])
        between = int(columns.min_samples[row]), int(columns.samples[row])
        return interpolate(samples, between, (int(columns.min_est_ms[row]), int(columns.est_ms[row])))

    def _working_ms(self, row: int) -> int:
        return max(0, self.expected[row] - int(self.table.startup_ms[row] + self.table.loss_ms[row]))

    def _chosen(self) -> dict[int, int]:
        """Return stage number -> row that ran: the selected one for this stage; for a later one, by its
        target and format.
        """
        columns, found, question = self.table, dict[int, int](), self.decision.question
        dag = build_dag(question.needs, question.upstream)
        combinations = formats_read(question, self.candidates, dag)
        for number in range(len(self.needs)):
            rows: list[int] = np.flatnonzero(columns.stage == number).tolist()
            written = {
                each: int(columns.writes[found[each]]) for each in dag.sources[number] if each in found
            }
            readable = {
                code
                for code, formats in combinations[number].items()
                if self._matches(dag.sources[number], formats, written)
            }
            row = (
                selected_row(self.decision)
                if number == 0
                else next((row for row in rows if self._ran(row, readable)), None)
            )
            if row is not None:
                found[number] = row
        return found

    def _matches(self, sources: tuple[int, ...], formats: tuple[int, ...], written: dict[int, int]) -> bool:
        """Return True if these formats match the data sets that the completed stages wrote."""
        return all(
            written.get(source, NONE if source >= 0 else stored) == stored
            for source, stored in zip(sources, formats, strict=True)
        )

    def _ran(self, row: int, readable: set[int]) -> bool:
        """Return True if the stage of this offer ran on it."""
        columns, actual = self.table, self._actuals(row)
        if (
            actual is None
            or columns.exclusion[row] != NONE
            or actual.target != self.target(row)
            or columns.reads[row] not in readable
        ):
            return False
        return bool(columns.writes[row] == NONE) or self.candidates.stored_format(columns.writes[row]) == (
            actual.writes,
            actual.storage_class,
        )

    def cost(self, row: int, knowing: frozenset[str]) -> PlanCost:
        """Return the cost of an offer for the work that was done, knowing only the facts in `knowing`."""
        columns, actual = self.table, self._actuals(row)
        if actual is None or columns.exclusion[row] != NONE:
            return PlanCost(int(columns.est_microusd[row]), int(columns.est_ms[row]))
        working = self._known_working_ms(row, actual) if "speed" in knowing else self._working_ms(row)
        startup = (
            self._known_startup_ms(row, actual) if "start-up" in knowing else int(columns.startup_ms[row])
        )
        same = actual.target == self.target(row)
        loss = actual.lost_ms if same and "preemption" in knowing else int(columns.loss_ms[row])
        price = int(columns.usd_per_hour_micro[row])
        price = self.known.prices.get(self.target(row), price) if "price" in knowing else price
        ms, fees = (
            startup + working + loss,
            int(columns.transfer_microusd[row] + columns.storage_microusd[row]),
        )
        if (
            row == self.chosen.get(int(columns.stage[row]))
            and knowing >= set(KNOWABLE_ASSUMPTIONS)
            and price == columns.usd_per_hour_micro[row]
        ):
            return PlanCost(actual.paid_microusd - actual.fees_microusd + fees, ms)
        return PlanCost(-(-price * ms // MS_PER_HOUR) + fees, ms)

    def _known_working_ms(self, row: int, actual: StageActuals) -> int:
        stage = self.candidates.stages[self.table.stage[row]]
        chosen = self.chosen.get(int(self.table.stage[row]))
        if row == chosen:
            return actual.working_ms
        rate = self.known.speed_ratios.get((stage, self.target(row)[0]))
        if rate is not None and actual.target[0] != self.target(row)[0]:
            return round(self._prior_ms(row) * rate)
        before = self._working_ms(chosen) if chosen is not None else 0
        return -(-self._working_ms(row) * actual.working_ms // before) if before else self._working_ms(row)

    def _prior_ms(self, row: int) -> int:
        samples, columns = self._samples(row), self.table
        fixed, most, prior = int(columns.fixed_ms[row]), int(columns.samples[row]), int(columns.prior_ms[row])
        return fixed + (prior - fixed) * samples // most if samples and most else prior

    def _known_startup_ms(self, row: int, actual: StageActuals) -> int:
        """Return the start-up time of an offer; 0 if the actual run was not charged for start-up."""
        if actual.target[0] == self.target(row)[0] or not actual.startup_ms:
            return actual.startup_ms
        return int(self.table.startup_ms[row])
