"""The planner against all plans, one by one: as it is, and with the pruning of large fleets forced on."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from brute_force import NO_LIMIT, AllPlans, left
from examples import scaled
from limited_fleets import Case
from random_fleets import AMPLE_USD, FleetDice
from routing_cases import CPU_1, EVALUATE, INGEST, PACKED, PARQUET, laptop_question, quote
from sample_prices import best_of, order_of

from shoestring.config.tariffs import Tariffs
from shoestring.core.money import microusd
from shoestring.core.types import Format
from shoestring.routing.candidates import RefusalCode
from shoestring.routing.decide import choose
from shoestring.routing.decision import Decision
from shoestring.routing.offers.enumerate import enumerate_offers
from shoestring.routing.planner.chain_planner import find_plans
from shoestring.routing.planner.partial_plans import RunLimits
from shoestring.routing.planner.stage_options import PRUNE_ABOVE_OFFERS
from shoestring.routing.question import Question

QUESTIONS, BLOCKS = 400, 4
MIN_SHARES = {
    "DAG": 0.35,
    "elastic": 0.3,
    "answered": 0.6,
    "several offers fit": 0.45,
    "limits exclude the best plan": 0.18,
    "refused": 0.08,
    "targets are pruned": 0.4,
}
"""What the questions of each block are drawn for, and the share of them that has to have it."""

OVER = {
    (True, False): RefusalCode.OVER_BUDGET,
    (False, True): RefusalCode.OVER_DEADLINE,
    (False, False): RefusalCode.OVER_BUDGET_OR_DEADLINE,
    (True, True): RefusalCode.OVER_BUDGET,
}
"""By what the minima of an offer's plans exceed: the budget, the deadline."""


def check_every_candidate(case: Case, prune_above_offers: int) -> None:
    """Check that each offer of the first stage has its best plan."""
    question = case.question
    found = find_plans(
        question, case.candidates, RunLimits.of(question), prune_above_offers=prune_above_offers
    )
    best, expected = found.best, case.best
    assert np.flatnonzero(best.way >= 0).tolist() == list(expected)
    assert found.optimality_gap_ppm == 0
    columns = best.samples, best.total, best.needs_micro, best.needs_ms
    for row, plan in expected.items():
        assert [int(each[row]) for each in columns] == plan


def check_choice(case: Case, decision: Decision) -> None:
    """Check the chosen plan, offer by offer, against all plans that fit."""
    choice, question, plans = decision.choice, case.question, case.plans
    fitting, expected = case.fitting, case.best
    assert (choice is None) == (not expected)
    if choice is None:
        return
    one = plans.index(choice.candidate, decision.plan)
    chosen = plans.at(one).fitting(question)
    assert len(chosen.row) == 1 and chosen.row[0] == choice.candidate
    assert best_of(expected, fitting.fewest)[-1] == choice.candidate
    samples, total, micro, ms = expected[choice.candidate]
    assert choice.samples == chosen.samples[0] == samples >= fitting.fewest
    assert microusd(choice.reserved_later_usd) == plans.later_p95[one]
    assert (chosen.total[0], chosen.micro[0], chosen.ms[0]) == (total, micro, ms)


def check_refusals(case: Case, decision: Decision) -> None:
    """Check the code of every refused offer, and the smallest budget."""
    question, plans, choice = case.question, case.plans, decision.choice
    codes = [decision.refusal_codes[each] if each >= 0 else None for each in decision.refusal_index.tolist()]
    fitting, (money, time_ms) = case.best, left(question)
    needs_micro, needs_ms = plans.first_minima(question)
    for row, code in enumerate(codes):
        if row in fitting and choice is not None:
            others = fitting[row], fitting[choice.candidate], case.fitting.fewest
            assert code == (None if row == choice.candidate else worse_by(*others))
        elif (exclusion := case.exclusion(row)) is not None:
            assert code == exclusion
        elif needs_micro[row] == NO_LIMIT:
            assert code is RefusalCode.LATER_STAGE_INFEASIBLE
        else:
            over = (needs_micro[row] > money, needs_ms[row] > time_ms)
            assert code is OVER[over]
    if choice is None:
        assert spare_micro(question, decision) == plans.min_p95(question)


def worse_by(plan: list[int], chosen: list[int], fewest: int) -> RefusalCode:
    """Return why a plan that fits was not chosen."""
    counts, price, *_ = order_of(plan, fewest)
    if counts == 0 and price > order_of(chosen, fewest)[1]:
        return RefusalCode.MORE_EXPENSIVE
    return RefusalCode.FEWER_SAMPLES if plan[0] < chosen[0] else RefusalCode.TIED


def spare_micro(question: Question, decision: Decision) -> int | None:
    """Return the smallest budget without what is spent and held; None: no budget is enough."""
    smallest = decision.smallest_budget_usd
    return None if smallest is None else microusd(smallest - question.spent_usd - question.held_usd)


def without_question(decision: Decision) -> str:
    """Return all that a decision says of its choice and refusals, as text."""
    return decision.model_dump_json(exclude={"question", "candidates", "algorithm"})


def features(case: Case, decision: Decision) -> list[str]:
    """Return which of the interesting things a case has."""
    ample = case.question.model_copy(update={"budget_usd": AMPLE_USD, "deadline_left_s": None})
    all_plans = case.plans.fitting(ample)
    best, unlimited = case.best, all_plans.best_by_row()
    has = {
        "DAG": case.shape != "chain",
        "elastic": case.question.needs[0].elastic,
        "answered": decision.choice is not None,
        "several offers fit": len(best) > 1,
        "limits exclude the best plan": bool(best)
        and best_of(best, case.fitting.fewest) != best_of(unlimited, all_plans.fewest),
        "refused": decision.choice is None,
        "targets are pruned": case.is_pruned(),
    }
    return [name for name, holds in has.items() if holds]


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_plan_is_better_than_the_choice_with_and_without_pruning(block: int) -> None:
    seen, count = Counter[str](), scaled(QUESTIONS) // BLOCKS
    for number in range(count):
        case = Case.draw(number * BLOCKS + block)
        for prune_above_offers in (PRUNE_ABOVE_OFFERS, 0):
            check_every_candidate(case, prune_above_offers)
        decision = choose(case.question, case.candidates)
        check_choice(case, decision)
        check_refusals(case, decision)
        pruned = choose(case.question, case.candidates, prune_above_offers=0)
        assert without_question(pruned) == without_question(decision)
        broke = case.question.model_copy(update={"budget_usd": Decimal(0)})
        refused = choose(broke, case.candidates, prune_above_offers=0)
        assert spare_micro(broke, refused) == case.plans.min_p95(broke) or refused.choice is not None
        seen.update(features(case, decision))
    for feature, share in MIN_SHARES.items():
        assert seen[feature] >= share * count, (feature, seen)


def test_fewer_samples_are_chosen_where_they_are_cheaper() -> None:
    """Trainings that time limits, not money, and whose policy lets them take down to half of the most."""
    chosen = fewer = 0
    for number in range(scaled(240)):
        case = Case.draw(10**6 + number)
        if not case.question.needs[0].elastic or case.question.deadline_left_s is None:
            continue
        preferences = case.question.preferences.model_copy(update={"min_sample_share": 0.5})
        changes = {"budget_usd": AMPLE_USD, "stage_budgets": {}, "preferences": preferences}
        case = replace(case, question=case.question.model_copy(update=changes))
        case = replace(case, plans=AllPlans(case.question, case.candidates))
        decision = choose(case.question, case.candidates)
        for prune_above_offers in (PRUNE_ABOVE_OFFERS, 0):
            check_every_candidate(case, prune_above_offers)
        check_choice(case, decision)
        check_refusals(case, decision)
        if decision.choice is not None:
            chosen += 1
            fewer += decision.choice.samples < case.fitting.samples.max()
    assert fewer >= 0.1 * chosen > 0


@pytest.mark.parametrize("seed", range(24))
def test_pruning_a_large_fleet_changes_nothing(seed: int) -> None:
    """Each later stage of these fleets has thousands of offers, so that it is pruned without being forced."""
    rng = np.random.default_rng([15, seed])
    question = FleetDice(rng).draw(targets=int(rng.integers(1100, 1500))).question
    candidates = enumerate_offers(question)
    ample = choose(question, candidates, prune_above_offers=10**9)
    assert without_question(choose(question, candidates)) == without_question(ample)
    broke = question.model_copy(update={"budget_usd": Decimal(0)})
    smallest_usd = choose(broke, candidates).smallest_budget_usd
    if smallest_usd is None:
        assert choose(broke, candidates, prune_above_offers=10**9).smallest_budget_usd is None
        return
    tight = question.model_copy(update={"budget_usd": smallest_usd * Decimal("1.1")})
    decision = choose(tight, candidates)
    assert decision.choice is not None
    assert without_question(decision) == without_question(choose(tight, candidates, prune_above_offers=10**9))


def test_a_target_that_is_best_only_in_the_slower_format_is_not_pruned() -> None:
    """One pool starts at once and costs twice as much. The format that is quick to write is slow to read."""
    slow_to_write = PARQUET.model_copy(update={"write_ns_per_row": 1_000_000, "scan_ns_per_row": 50_000})
    slow_to_read = PACKED.model_copy(update={"write_ns_per_row": 5000, "scan_ns_per_row": 500_000})
    late = CPU_1.model_copy(update={"name": "late", "startup_s": 60.0})
    question = laptop_question(
        (INGEST, EVALUATE.model_copy(update={"setup_s": 0.0, "cpu_us_per_row": 0.0})),
        "10",
        rows=200_000,
        pools=(CPU_1, late),
        quotes=(quote("cpu-1", "0.08"), quote("late", "0.04")),
        speeds=(slow_to_write, slow_to_read),
        tariffs=Tariffs(storage_held_hours=0.0),
    )
    for prune_above_offers in (PRUNE_ABOVE_OFFERS, 0):
        decision = choose(question, enumerate_offers(question), prune_above_offers)
        assert decision.choice is not None and decision.choice.format is Format.PACKED
        assert [each.pool for each in decision.plan] == ["late"]
