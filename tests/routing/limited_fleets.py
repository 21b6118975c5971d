"""Random questions whose money and time bind, with all their plans."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

import numpy as np
from brute_force import AllPlans, FittingPlans
from random_fleets import FleetDice
from sample_prices import BestByRow

from shoestring.core.money import from_microusd, microusd
from shoestring.routing.candidates import NONE, Candidates, RefusalCode
from shoestring.routing.offers.enumerate import enumerate_offers
from shoestring.routing.offers.offer_table import full_offer_table
from shoestring.routing.planner.partial_plans import RunLimits
from shoestring.routing.planner.stage_options import StageOptions, TargetKinds
from shoestring.routing.question import Question


@dataclass(frozen=True)
class Case:
    """A question with limits, its offers and all its plans."""

    shape: str
    question: Question
    candidates: Candidates
    plans: AllPlans

    @classmethod
    def draw(cls, seed: int) -> Case:
        """Return a question whose limits are those that one of its good plans needs, or near them."""
        rng = np.random.default_rng([14, seed])
        drawn = FleetDice(rng).draw()
        candidates = enumerate_offers(drawn.question)
        question = with_sample_share(with_stage_budgets(drawn.question, candidates, rng), seed)
        plans = AllPlans(question, candidates)
        return cls(drawn.shape, with_limits(question, plans, rng), candidates, plans)

    @cached_property
    def fitting(self) -> FittingPlans:
        """The plans that keep the question's limits."""
        return self.plans.fitting(self.question)

    @cached_property
    def best(self) -> BestByRow:
        """The best of these plans, by offer of the first stage."""
        return self.fitting.best_by_row()

    def exclusion(self, row: int) -> RefusalCode | None:
        """Return why an offer of the first stage cannot be taken whatever the run's budget; None: it can."""
        offers, table = self.candidates.offers[0], self.plans.table
        if table.exclusion[row] != NONE:
            return offers.exclusions[table.exclusion[row]]
        cap = self.question.stage_budgets.get(self.question.stage)
        over = cap is not None and table.min_p95_microusd[row] > microusd(cap)
        return RefusalCode.OVER_STAGE_BUDGET if over else None

    def is_pruned(self) -> bool:
        """Return whether forced pruning removes targets of some later stage."""
        kinds, limits = TargetKinds(self.candidates), RunLimits.of(self.question)
        return any(
            len(StageOptions(self.question, self.candidates, limits, stage, kinds, 0).targets)
            < (self.candidates.offers[stage].exclusion == NONE).sum()
            for stage in range(1, len(self.question.needs))
        )


def with_stage_budgets(question: Question, candidates: Candidates, rng: np.random.Generator) -> Question:
    """Return the question, in a third of the draws with budgets of some stages that some offers just keep."""
    if rng.random() < 2 / 3:
        return question
    table, budgets = full_offer_table(candidates), dict[str, Decimal]()
    for stage, need in enumerate(question.needs):
        needed = np.unique(table.min_p95_microusd[(table.stage == stage) & (table.exclusion == NONE)])
        if len(needed) and rng.random() < 0.6:
            at = int(len(needed) * rng.uniform(0.2, 1))
            budgets[need.stage] = from_microusd(int(needed[at]) - int(rng.integers(0, 2)))
    return question.model_copy(update={"stage_budgets": budgets})


def with_sample_share(question: Question, seed: int) -> Question:
    """Return the question with one of several shares of the most samples that a training has to keep."""
    share = np.random.default_rng([16, seed]).choice([0.1, 0.2, 0.5, 0.8, 0.95, 1.0])
    preferences = question.preferences.model_copy(update={"min_sample_share": float(share)})
    return question.model_copy(update={"preferences": preferences})


def with_limits(question: Question, plans: AllPlans, rng: np.random.Generator) -> Question:
    """Return the question with the money and the time of one plan, or somewhat less or more.

    The plan trades cost for P95 dollars and P95 time at drawn rates, so that cheaper plans often need more.
    """
    if not len(plans):
        return question
    sums = (plans.later_cost + plans.table.est_microusd[plans.rows[0]], plans.p95, plans.last_ms)
    weights = rng.random(3) * (0.3, *rng.permutation([0.05, 2]))
    one = int(np.argmin(sum(each / max(each.mean(), 1) * w for each, w in zip(sums, weights, strict=True))))
    money, time_ms = int(plans.p95[one]), int(plans.last_ms[one])
    if question.needs[0].elastic:
        money, time_ms = (int(each * rng.uniform(1, 2)) for each in (money, time_ms))
    money -= int(rng.random() < 0.2)
    factor = rng.choice([0.9, 1.0, 1.0, 1.0, 1.02, 1.3, 1000.0])
    return question.model_copy(
        update={
            "budget_usd": from_microusd(max(int(money * factor), 0)),
            "deadline_left_s": None if rng.random() < 0.2 else (time_ms + 0.5) / 1000,
        }
    )
