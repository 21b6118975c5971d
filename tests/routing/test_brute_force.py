"""The planner against all plans, one by one: as it is, and with the pruning of large fleets forced on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pytest
from brute_force import NO_LIMIT, AllPlans, left
from random_fleets import FleetDice

from shoestring.core.money import from_microusd, microusd
from shoestring.routing.candidates import MS_PER_HOUR, NONE, Candidates, RefusalCode
from shoestring.routing.decide import choose
from shoestring.routing.decision import Decision
from shoestring.routing.offers.enumerate import enumerate_offers
from shoestring.routing.offers.offer_table import full_offer_table
from shoestring.routing.planner.chain_planner import find_plans
from shoestring.routing.planner.partial_plans import RunLimits
from shoestring.routing.question import Question

QUESTIONS, BLOCKS = 640, 8
TOTALS = {RefusalCode.MORE_EXPENSIVE, RefusalCode.TIED}
OVER = {
    (True, False): RefusalCode.OVER_BUDGET,
    (False, True): RefusalCode.OVER_DEADLINE,
    (False, False): RefusalCode.OVER_BUDGET_OR_DEADLINE,
    (True, True): RefusalCode.OVER_BUDGET,
}
"""By what the minima of an offer's plans exceed: the budget, the deadline."""


@dataclass(frozen=True, slots=True)
class Case:
    """A question with limits, its offers and all its plans."""

    shape: str
    question: Question
    made: Candidates
    plans: AllPlans

    @classmethod
    def draw(cls, seed: int) -> Case:
        """Return a question whose limits are those that one of its good plans needs, or near them."""
        rng = np.random.default_rng([14, seed])
        drawn = FleetDice(rng).draw()
        made = enumerate_offers(drawn.question)
        question = with_stage_budgets(drawn.question, made, rng)
        plans = AllPlans(question, made)
        return cls(drawn.shape, with_limits(question, plans, rng), made, plans)


    def sample_price(self, row: int) -> int:
        """Return the micro-dollars of one more sample of an offer, with its delay, rounded up."""
        table, rate = self.plans.table, self.question.delay_microusd_per_hour(self.question.needs[0])
        samples = max(int(table.samples[row] - table.min_samples[row]), 1)
        micro = int(table.est_microusd[row] - table.min_est_microusd[row])
        ms = int(table.est_ms[row] - table.min_est_ms[row])
        return -(-(micro + ms * rate // MS_PER_HOUR) // samples) + 2


def with_stage_budgets(question: Question, made: Candidates, rng: np.random.Generator) -> Question:
    """Return the question, in a third of the draws with budgets of some stages that some offers just keep."""
    if rng.random() < 2 / 3:
        return question
    table, budgets = full_offer_table(made), dict[str, Decimal]()
    for stage, need in enumerate(question.needs):
        needed = np.unique(table.min_p95_microusd[(table.stage == stage) & (table.exclusion == NONE)])
        if len(needed) and rng.random() < 0.6:
            at = int(len(needed) * rng.uniform(0.2, 1))
            budgets[need.stage] = from_microusd(int(needed[at]) - int(rng.integers(0, 2)))
    return question.model_copy(update={"stage_budgets": budgets})


def with_limits(question: Question, plans: AllPlans, rng: np.random.Generator) -> Question:
    """Return the question with the money and the time of one plan, or somewhat less or more.

    The plan trades cost for P95 dollars and for P95 time at drawn rates, so that cheaper plans often need more.
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


def check_every_candidate(case: Case, prune_above_offers: int) -> None:
    """Check that each offer of the first stage has its best plan.

    A plan of an elastic stage with more money left may take a part of a sample more, and pay for it.
    """
    question = case.question
    found = find_plans(question, case.made, RunLimits.of(question), prune_above_offers=prune_above_offers)
    best, expected = found.best, case.plans.fitting(question).best_by_row()
    assert np.flatnonzero(best.way >= 0).tolist() == list(expected)
    assert found.optimality_gap_ppm == 0
    for row, (samples, total, micro, ms) in expected.items():
        assert best.samples[row] == samples
        if question.needs[0].elastic:
            assert total <= best.total[row] <= total + case.sample_price(row)
            continue
        assert (best.total[row], best.needs_micro[row]) == (total, micro)
        if question.deadline_left_s is not None:
            assert best.needs_ms[row] == ms


def check_choice(case: Case, decision: Decision) -> None:
    """Check the chosen plan, offer by offer, against all plans that fit."""
    choice, question, plans = decision.choice, case.question, case.plans
    expected = plans.fitting(question).best_by_row()
    assert (choice is None) == (not expected)
    if choice is None:
        return
    steps = [choice, *decision.plan]
    one = plans.index([(each.pool, each.market, each.format, each.storage_class) for each in steps])
    chosen = plans.at(one).fitting(question)
    assert len(chosen.row) == 1 and chosen.row[0] == choice.candidate
    samples, total, micro, ms = expected[choice.candidate]
    assert choice.samples == chosen.samples[0] == samples == max(each[0] for each in expected.values())
    assert microusd(choice.reserved_later_usd) == plans.later_p95[one]
    if question.needs[0].elastic:
        return
    needed_ms = 0 if question.deadline_left_s is None else ms
    assert (total, micro, needed_ms, choice.candidate) == min(
        (*each[1:3], each[3] if needed_ms else 0, row) for row, each in expected.items()
    )
    assert (chosen.total[0], chosen.micro[0]) == (total, micro)
    assert microusd(sum((each.est_usd for each in steps), Decimal(0))) == plans.expected_micro(one)


def check_refusals(case: Case, decision: Decision) -> None:
    """Check the code of every refused offer, and the smallest budget."""
    question, plans, choice = case.question, case.plans, decision.choice
    codes = [decision.refusal_codes[each] if each >= 0 else None for each in decision.refusal_index.tolist()]
    fitting, (money, time_ms) = plans.fitting(question).best_by_row(), left(question)
    needs_micro, needs_ms = plans.first_minima(question)
    for row, code in enumerate(codes):
        if row in fitting and choice is not None:
            expected = None if row == choice.candidate else worse_by(fitting[row], fitting[choice.candidate])
            # Parts of a sample of an elastic stage are bought or not: see check_every_candidate.
            assert code == expected or (question.needs[0].elastic and code in TOTALS and expected in TOTALS)
        elif (exclusion := case.exclusion(row)) is not None:
            assert code == exclusion
        elif needs_micro[row] == NO_LIMIT:
            assert code is RefusalCode.LATER_STAGE_INFEASIBLE
        else:
            over = (needs_micro[row] > money, needs_ms[row] > time_ms)
            assert code is OVER[over]
    if choice is None:
        assert spare_micro(question, decision) == plans.min_p95(question)


def worse_by(plan: list[int], chosen: list[int]) -> RefusalCode:
    """Return why a plan that fits was not chosen."""
    if plan[0] < chosen[0]:
        return RefusalCode.FEWER_SAMPLES
    return RefusalCode.MORE_EXPENSIVE if plan[1] > chosen[1] else RefusalCode.TIED


def spare_micro(question: Question, decision: Decision) -> int | None:
    """Return the smallest budget without what is spent and held; None: no budget is enough."""
    smallest = decision.smallest_budget_usd
    return None if smallest is None else microusd(smallest - question.spent_usd - question.held_usd)


def without_question(decision: Decision) -> str:
    """Return all that a decision says of its choice and refusals, as text."""
    return decision.model_dump_json(exclude={"question", "candidates", "algorithm"})


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_plan_is_better_than_the_choice_with_and_without_pruning(block: int) -> None:
    seen = Counter[str]()
    for seed in range(block * QUESTIONS // BLOCKS, (block + 1) * QUESTIONS // BLOCKS):
        case = Case.draw(seed)
        for prune_above_offers in (PRUNE_ABOVE_OFFERS, 0):
            check_every_candidate(case, prune_above_offers)
        decision = choose(case.question, case.made)
        check_choice(case, decision)
        check_refusals(case, decision)
        pruned = choose(case.question, case.made, prune_above_offers=0)
        assert without_question(pruned) == without_question(decision)
        broke = case.question.model_copy(update={"budget_usd": Decimal(0)})
        refused = choose(broke, case.made, prune_above_offers=0)
        assert spare_micro(broke, refused) == case.plans.min_p95(broke) or refused.choice is not None
        seen.update(features(case, decision))
    for feature, share in MIN_SHARES.items():
        assert seen[feature] >= share * QUESTIONS / BLOCKS, (feature, seen)
