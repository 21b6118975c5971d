"""Stages that branch: what is found is what trying everything finds, and a chain that says so is a chain."""

from __future__ import annotations

from decimal import Decimal

from examples import examples
from graph_cases import DIAMOND, Every, branching, wide
from hypothesis import given
from routing_cases import INGEST, TRAIN, laptop_question, questions

from shoestring.core.money import microusd
from shoestring.core.record import record_bytes
from shoestring.routing.analysis.replay import replay
from shoestring.routing.decide import choose, decide
from shoestring.routing.decision import Decision
from shoestring.routing.offers.enumerate import enumerate_offers
from shoestring.routing.pages.explain import as_text
from shoestring.routing.planner.dag_lookahead import DagLookahead
from shoestring.routing.planner.partial_plans import Limits
from shoestring.routing.planner.search import planned
from shoestring.routing.question import Question


def total_micro(decision: Decision) -> int:
    assert decision.choice is not None
    return microusd(decision.choice.est_usd + sum((each.est_usd for each in decision.plan), Decimal(0)))


@examples(200)
@given(branching())
def test_a_plan_over_stages_that_branch_is_as_good_as_trying_every_one(question: Question) -> None:
    made = enumerate_offers(question)
    decision, every = choose(question, made), Every(question, made)
    samples, price = every.fitting()
    assert (decision.choice is None) == (not len(samples))
    if decision.choice is None:
        smallest = decision.smallest_budget_usd
        needed = None if smallest is None else microusd(smallest - question.spent_usd - question.held_usd)
        assert needed == every.least_p95()
        return
    # Floating point can lose the last sample or micro-dollar.
    assert abs(decision.choice.samples - samples.max()) <= 1
    assert total_micro(decision) <= price[samples >= decision.choice.samples].min() + 1


@examples(60)
@given(questions(4))
def test_a_chain_that_says_what_comes_after_what_is_decided_byte_for_byte_as_one_that_does_not(
    question: Question,
) -> None:
    needs = [
        question.needs[0],
        *(
            need.model_copy(update={"after": (last.stage,)})
            for last, need in zip(question.needs, question.needs[1:], strict=False)
        ),
    ]
    said = decide(question.model_copy(update={"needs": tuple(needs)}))
    assert record_bytes(said.model_copy(update={"question": question})) == record_bytes(decide(question))


@examples(40)
@given(branching())
def test_a_decision_about_stages_that_branch_is_made_again_to_the_byte(question: Question) -> None:
    decision = decide(question)
    assert replay(record_bytes(decision)) is None
    assert question.stage in as_text(decision)


def test_stages_side_by_side_share_the_money_and_not_the_time() -> None:
    decision = decide(laptop_question(DIAMOND, "1"))
    kept = {each.stage: each.reserved_s for each in decision.plan}
    assert decision.choice is not None and decision.choice.reserved_later_usd == sum(
        each.reserved_usd for each in decision.plan
    )
    one_s = decision.choice.p95_s + max(kept["left"], kept["right"]) + kept["join"]
    in_time = decide(laptop_question(DIAMOND, "1", deadline_left_s=one_s + 0.001))
    assert in_time.choice is not None
    assert (
        decide(
            laptop_question(
                tuple(need.model_copy(update={"after": None}) for need in DIAMOND), "1", deadline_left_s=20
            )
        ).choice
        is None
    )


def test_what_does_not_wait_for_a_stage_has_to_be_in_time_as_well() -> None:
    needs = (
        INGEST.model_copy(update={"setup_s": 0.1}),
        TRAIN.model_copy(update={"stage": "slow", "elastic": False, "reads": "none", "after": ()}),
    )
    decision = decide(laptop_question(needs, "1", deadline_left_s=30))
    assert decision.choice is None
    assert "the stages that do not wait for it take" in decision.refusals[0].sentence


def test_where_stages_branch_in_many_ways_the_plan_is_within_what_it_says_of_the_best() -> None:
    question = wide(6, 24)
    made, limits = enumerate_offers(question), Limits.of(question)
    exact = planned(question, made, limits, (10**6,))
    assert (
        exact.best is not None
        and exact.optimality_gap_ppm == 0
        and isinstance(exact.plans.ahead, DagLookahead)
        and exact.plans.ahead.is_exact
    )
    best_micro = int(exact.plans.best.total[exact.best])
    lacking = []
    for most in (2, 4, 8):
        found = planned(question, made, limits, (most,))
        assert isinstance(found.plans.ahead, DagLookahead) and not found.plans.ahead.is_exact
        assert found.best is not None and found.optimality_gap_ppm is not None
        total_micro = int(found.plans.best.total[found.best])
        assert best_micro <= total_micro
        assert (total_micro - best_micro) * 10**6 <= found.optimality_gap_ppm * total_micro
        lacking.append(found.optimality_gap_ppm)
    assert lacking[0] > 0


@examples(60)
@given(branching(5))
def test_what_was_not_looked_at_is_never_worth_more_than_is_said(question: Question) -> None:
    made, limits = enumerate_offers(question), Limits.of(question)
    exact, found = (planned(question, made, limits, (most,)) for most in (10**6, 2))
    assert exact.optimality_gap_ppm == 0
    if found.best is None or exact.best is None:
        assert exact.best is None or found.optimality_gap_ppm is None
        return
    assert found.optimality_gap_ppm is not None
    fewer = int(exact.plans.best.samples[exact.best] - found.plans.best.samples[found.best])
    dearer = int(found.plans.best.total[found.best] - exact.plans.best.total[exact.best])
    of_it = exact.plans.best.samples[exact.best] if fewer else found.plans.best.total[found.best]
    assert fewer >= 0 and (fewer or dearer) * 10**6 <= found.optimality_gap_ppm * of_it


def test_a_page_says_how_near_the_best_a_plan_is_where_not_all_were_looked_at() -> None:
    decision = decide(laptop_question(DIAMOND, "1"))
    assert "looked at" not in as_text(decision)
    near = as_text(decision.model_copy(update={"optimality_gap_ppm": 1234}))
    assert (
        "looked at  not every way in which its stages branch: this one is within 0.12% of the best possible"
        in near
    )
    assert "it is not known that none of the others would have fitted" in as_text(
        decision.model_copy(update={"optimality_gap_ppm": None})
    )
