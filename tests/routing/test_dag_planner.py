"""DAGs of stages: brute force finds nothing better, and an explicit chain is decided as a chain."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from brute_force import AllPlans
from dag_cases import DIAMOND, branching, wide
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from routing_cases import INGEST, TRAIN, answered, laptop_question, questions
from sample_prices import taking_the_most

from shoestring.core.money import microusd
from shoestring.core.record import record_bytes
from shoestring.routing.analysis.replay import replay
from shoestring.routing.decide import choose, decide
from shoestring.routing.decision import Decision
from shoestring.routing.offers.enumerate import enumerate_offers
from shoestring.routing.pages.explain import as_text
from shoestring.routing.planner.chain_planner import find_plans
from shoestring.routing.planner.dag.lookahead import DagLookahead
from shoestring.routing.planner.partial_plans import RunLimits
from shoestring.routing.question import Question


def total_micro(decision: Decision) -> int:
    assert decision.choice is not None
    return microusd(decision.choice.est_usd + sum((each.est_usd for each in decision.plan), Decimal(0)))


@examples(200)
@given(st.one_of(branching(), answered(branching())))
def test_no_plan_over_a_dag_is_better_than_the_choice(question: Question) -> None:
    question = taking_the_most(question)
    candidates = enumerate_offers(question)
    decision, plans = choose(question, candidates), AllPlans(question, candidates)
    fitting = plans.fitting(question)
    samples, price = fitting.samples, fitting.total
    assert (decision.choice is None) == (not len(samples))
    if decision.choice is None:
        smallest = decision.smallest_budget_usd
        needed = None if smallest is None else microusd(smallest - question.spent_usd - question.held_usd)
        assert needed == plans.min_p95(question)
        return
    # Floating point can lose the last sample or micro-dollar.
    assert abs(decision.choice.samples - samples.max()) <= 1
    assert total_micro(decision) <= price[samples >= decision.choice.samples].min() + 1


@examples(60)
@given(questions(4))
def test_an_explicit_chain_is_decided_byte_for_byte_as_an_implicit_one(
    question: Question,
) -> None:
    needs = [
        question.needs[0],
        *(
            need.model_copy(update={"after": (last.stage,)})
            for last, need in zip(question.needs, question.needs[1:], strict=False)
        ),
    ]
    explicit = decide(question.model_copy(update={"needs": tuple(needs)}))
    assert record_bytes(explicit.model_copy(update={"question": question})) == record_bytes(decide(question))


@examples(40)
@given(branching())
def test_a_decision_about_a_dag_replays_to_the_byte(question: Question) -> None:
    decision = decide(question)
    assert replay(record_bytes(decision)).verdict == "same"
    assert question.stage in as_text(decision)


def test_parallel_stages_share_the_money_and_not_the_time() -> None:
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


def test_stages_that_do_not_wait_for_the_current_one_meet_the_deadline_too() -> None:
    needs = (
        INGEST.model_copy(update={"setup_s": 0.1}),
        TRAIN.model_copy(update={"stage": "slow", "elastic": False, "reads": "none", "after": ()}),
    )
    decision = decide(laptop_question(needs, "1", deadline_left_s=30))
    assert decision.choice is None
    assert "the stages that do not wait for it take" in decision.refusals[0].sentence


def test_the_gap_bounds_the_distance_from_the_best_plan_of_a_wide_dag() -> None:
    question = wide(6, 24)
    candidates, limits = enumerate_offers(question), RunLimits.of(question)
    exact = find_plans(question, candidates, limits, (10**6,))
    assert (
        exact.chosen is not None
        and exact.optimality_gap_ppm == 0
        and isinstance(exact.lookahead, DagLookahead)
        and exact.lookahead.is_exact
    )
    best_micro = int(exact.best.total[exact.chosen])
    lacking = []
    for most in (2, 4, 8):
        found = find_plans(question, candidates, limits, (most,))
        assert isinstance(found.lookahead, DagLookahead) and not found.lookahead.is_exact
        assert found.chosen is not None and found.optimality_gap_ppm is not None
        total_micro = int(found.best.total[found.chosen])
        assert best_micro <= total_micro
        assert (total_micro - best_micro) * 10**6 <= found.optimality_gap_ppm * total_micro
        lacking.append(found.optimality_gap_ppm)
    assert lacking[0] > 0


@examples(60)
@given(st.one_of(branching(5), answered(branching(5))))
def test_pruned_plans_are_never_better_than_the_gap_allows(question: Question) -> None:
    candidates, limits = enumerate_offers(question), RunLimits.of(question)
    exact, found = (find_plans(question, candidates, limits, (most,)) for most in (10**6, 2))
    assert exact.optimality_gap_ppm == 0
    if found.chosen is None or exact.chosen is None:
        assert exact.chosen is None or found.optimality_gap_ppm is None
        return
    assert found.optimality_gap_ppm is not None
    ours, theirs, gap = found.best, exact.best, Fraction(found.optimality_gap_ppm, 10**6)
    price, lowest = ours.price(found.chosen), theirs.price(exact.chosen)
    samples, enough = int(ours.samples[found.chosen]), theirs.min_samples
    assert price - lowest <= gap * price or price < lowest
    assert not question.needs[0].elastic or enough - samples <= gap * enough


def test_a_page_shows_the_gap_where_not_all_plans_were_compared() -> None:
    decision = decide(laptop_question(DIAMOND, "1"))
    assert "not all plans" not in as_text(decision)
    near = as_text(decision.model_copy(update={"optimality_gap_ppm": 1234}))
    assert "search    not all plans were compared: this one is within 0.12% of the best possible" in near
    assert "not all plans were compared, and one of the others may fit" in as_text(
        decision.model_copy(update={"optimality_gap_ppm": None})
    )
