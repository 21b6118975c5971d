"""The look-ahead over a chain is exact: brute force over all plans finds nothing better."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor

import numpy as np
from brute_force import every_plan
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from routing_cases import answered, questions, tight_questions
from sample_prices import taking_the_most

from shoestring.core.money import microusd
from shoestring.routing.decide import decide
from shoestring.routing.decision import Decision
from shoestring.routing.offers.offer_table import OfferTable, full_offer_table
from shoestring.routing.planner.partial_plans import undominated
from shoestring.routing.question import Question


def samples_and_price(question: Question, columns: OfferTable, plan: list[int]) -> tuple[int, int]:
    """Return a plan's expected samples of this stage and its expected micro-dollars, in exact arithmetic."""
    row, later = plan[0], plan[1:]
    later_micro = sum(columns.est_microusd[each] for each in later)
    if not question.needs[0].elastic:
        return columns.samples[row], columns.est_microusd[row] + later_micro
    money = microusd(question.left_usd)
    money -= sum(columns.min_p95_microusd[each] for each in later)
    if (cap := question.stage_budgets.get(question.stage)) is not None:
        money = min(money, microusd(cap))
    share = Fraction(1)
    if columns.est_microusd[row] > money:
        share = Fraction(
            money - columns.min_est_microusd[row],
            columns.est_microusd[row] - columns.min_est_microusd[row],
        )
    if question.deadline_left_s is not None:
        ms = int(question.deadline_left_s * 1000) - sum(columns.min_p95_ms[each] for each in later)
        if columns.est_ms[row] > ms:
            share = min(
                share,
                Fraction(ms - columns.min_est_ms[row], columns.est_ms[row] - columns.min_est_ms[row]),
            )
    growing_micro = columns.est_microusd[row] - columns.min_est_microusd[row]
    samples = columns.min_samples[row] + floor((columns.samples[row] - columns.min_samples[row]) * share)
    return samples, columns.min_est_microusd[row] + ceil(growing_micro * share) + later_micro


def fits(question: Question, columns: OfferTable, plan: list[int]) -> bool:
    left_micro = microusd(question.left_usd)
    in_time = question.deadline_left_s is None or sum(columns.min_p95_ms[row] for row in plan) <= int(
        question.deadline_left_s * 1000
    )
    return in_time and sum(columns.min_p95_microusd[row] for row in plan) <= left_micro


def total_est_micro(decision: Decision) -> int:
    assert decision.choice is not None
    return microusd(decision.choice.est_usd + sum(each.est_usd for each in decision.plan))


def best_of_all_plans(question: Question) -> Decision:
    """Return the decision, after checking that no plan is better."""
    question = taking_the_most(question)
    decision = decide(question)
    columns = full_offer_table(decision.candidates)
    found = [
        samples_and_price(question, columns, plan)
        for plan in every_plan(question, decision.candidates)
        if fits(question, columns, plan)
    ]
    assert (decision.choice is None) == (not found)
    if decision.choice is None:
        return decision
    most = max(samples for samples, _ in found)
    # The code divides in floating point, which can lose the last sample or micro-dollar.
    assert abs(decision.choice.samples - most) <= 1
    assert (
        total_est_micro(decision)
        <= min(price for samples, price in found if samples >= decision.choice.samples) + 1
    )
    return decision


@examples(150)
@given(st.one_of(questions(), tight_questions(), answered(), answered(questions(2))))
def test_no_plan_is_better_than_the_choice(question: Question) -> None:
    best_of_all_plans(question)


@examples(100)
@given(st.one_of(questions(), answered()))
def test_the_smallest_budget_is_that_of_the_cheapest_plan(question: Question) -> None:
    broke = question.model_copy(update={"budget_usd": question.spent_usd})
    decision = decide(broke)
    rich = broke.model_copy(update={"budget_usd": question.budget_usd + 10**6})
    columns = full_offer_table(decision.candidates)
    needed = [
        sum(columns.min_p95_microusd[row] for row in plan)
        for plan in every_plan(rich, decision.candidates)
        if fits(rich, columns, plan)
    ]
    if decision.choice is None:
        smallest = decision.smallest_budget_usd
        assert (
            None if smallest is None else microusd(smallest - question.spent_usd - question.held_usd)
        ) == min(needed, default=None)


@given(st.lists(st.tuples(*[st.integers(0, 6)] * 3), max_size=40))
def test_undominated_points_are_those_that_no_other_dominates(points: list[tuple[int, int, int]]) -> None:
    columns = np.array(points, dtype=np.int64).reshape(-1, 3)
    kept = undominated(columns[:, 0], columns[:, 1], columns[:, 2])
    beaten = {
        one
        for one in points
        for other in points
        if other != one and all(a <= b for a, b in zip(other, one, strict=True))
    }
    assert [tuple(columns[row].tolist()) for row in kept] == sorted(set(points) - beaten)
