"""The outline of a chain: its Pareto front of cost and time equals brute force."""

from __future__ import annotations

from brute_force import every_plan
from examples import examples
from hypothesis import given
from routing_cases import CPU_1, EVALUATE, laptop_question, questions, quote

from shoestring.core.money import from_microusd
from shoestring.pricing.learned.calibration import LearnedSpeed
from shoestring.routing.analysis.outline import pareto_front, stage_outlines
from shoestring.routing.decide import decide
from shoestring.routing.offers.enumerate import enumerate_offers
from shoestring.routing.offers.offer_table import full_offer_table
from shoestring.routing.question import Question


@examples(60)
@given(questions())
def test_the_pareto_front_equals_brute_force(question: Question) -> None:
    question = question.model_copy(update={"stage_budgets": {}})
    candidates = enumerate_offers(question)
    rows, needs = full_offer_table(candidates), question.needs
    # With all passes, whatever the stage.
    p95_ms, p95 = rows.p95_ms, rows.p95_microusd
    plans = [
        (
            sum(rows.est_microusd[row] for row in plan),
            sum(p95_ms[row] for row in plan),
            sum(p95[row] for row in plan),
        )
        for plan in every_plan(question, candidates)
    ]
    best = {
        (est, ms)
        for est, ms, _ in plans
        if not any(e <= est and m <= ms and (e, m) != (est, ms) for e, m, _ in plans)
    }
    found = pareto_front(question, candidates)
    assert [(each.est_usd, each.p95_s) for each in found] == [
        (from_microusd(est), ms / 1000) for est, ms in sorted(best)
    ]
    assert all(len(each.offers) == len(needs) for each in found)


def test_of_plans_with_equal_cost_only_the_fastest_is_on_the_front() -> None:
    """Both have an expected cost of one micro-dollar. The slower one has the lower P95 cost, which is not a
    criterion of the front.
    """
    learned = (LearnedSpeed(stage="evaluate", pool="slow", runs=20, log_mean=1.1, log_sd=0.0),)
    pools = (CPU_1.model_copy(update={"name": "fast"}), CPU_1.model_copy(update={"name": "slow"}))
    prices = (quote("fast", "0.000640"), quote("slow", "0.000350"))
    question = laptop_question((EVALUATE,), pools=pools, quotes=prices, learned=learned, rows=0)
    rows = full_offer_table(enumerate_offers(question))
    assert (
        rows.est_microusd.tolist() == [1, 1]
        and rows.p95_microusd.tolist() == [2, 1]
        and rows.p95_ms[0] < rows.p95_ms[1]
    )
    (only,) = pareto_front(question, enumerate_offers(question))
    assert only.p95_s == rows.p95_ms[0] / 1000


def test_each_stage_has_an_outline_with_its_offer_and_rejection_counts() -> None:
    decision = decide(laptop_question())
    lines = stage_outlines(decision)
    assert [line.stage for line in lines] == [need.stage for need in decision.question.needs]
    assert decision.choice is not None
    assert (lines[0].pool, lines[0].p95_usd) == (decision.choice.pool, decision.choice.p95_usd)
    assert [(line.pool, line.est_usd, line.p95_usd) for line in lines[1:]] == [
        (e.pool, e.est_usd, e.reserved_usd) for e in decision.plan
    ]
    assert sum(lines[0].rejected.values()) == len(decision.refusal_index) - 1


def test_a_plan_states_whether_it_fits_budget_and_deadline() -> None:
    question = laptop_question()
    every = pareto_front(question, enumerate_offers(question))
    limited = question.model_copy(update={"budget_usd": every[0].p95_usd, "deadline_left_s": every[0].p95_s})
    assert pareto_front(limited, enumerate_offers(limited))[0].fits
    short = question.model_copy(
        update={"budget_usd": every[0].p95_usd, "deadline_left_s": every[0].p95_s - 0.001}
    )
    assert not pareto_front(short, enumerate_offers(short))[0].fits
