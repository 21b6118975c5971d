"""Hindsight: laws of regret, and the assumption that caused it."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from dag_cases import branching
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from routing_cases import (
    CPU_1,
    CPU_2,
    EVALUATE,
    INGEST,
    TRAIN,
    affordable,
    answered,
    computed,
    laptop_question,
    numbers,
    questions,
    quote,
)

from shoestring.core.money import from_microusd, microusd
from shoestring.core.types import Market, MarketTerms, Pool
from shoestring.routing.analysis.hindsight import Hindsight, hindsight
from shoestring.routing.analysis.hindsight_pricing import KNOWABLE_ASSUMPTIONS, KnownFacts, StageActuals
from shoestring.routing.decide import decide
from shoestring.routing.decision import Decision
from shoestring.routing.offers.offer_table import stage_offer_table
from shoestring.routing.pages.decision_view import expected_cost, selected_row
from shoestring.routing.question import Question

MS_PER_HOUR = 3_600_000


def started(question: Question) -> Question:
    """Return the question without a cached result, on pools that take at least a second to start.

    Hindsight takes a start-up of 0 s for one that was not charged, on other pools, too.
    """
    pools = (each.model_copy(update={"startup_s": each.startup_s + 1}) for each in question.pools)
    return computed(question.model_copy(update={"pools": tuple(pools)}))


DRAWN = st.one_of(questions(), branching()).map(started)
ANSWERED = st.builds(affordable, DRAWN, numbers(0, 4), st.none())
"""Questions without a deadline that have an answer, in which something is computed."""

ANSWERED_IN_TIME = st.builds(affordable, DRAWN, numbers(0, 4), numbers(0, 1.5))
RATES = st.dictionaries(st.sampled_from(["pool-0", "pool-1", "pool-2"]), st.floats(0.1, 10))


def actuals_of(decision: Decision, slower: float = 1.0, **changes: Any) -> StageActuals:
    """Return the actuals of a stage whose working time was `slower` times the expected one."""
    row, columns, choice = selected_row(decision), stage_offer_table(decision.candidates, 0), decision.choice
    assert row is not None and choice is not None
    samples = choice.samples if decision.question.needs[0].elastic else 0
    found = expected_cost(decision, samples)
    assert found is not None
    startup, loss = columns.startup_ms[row], columns.loss_ms[row]
    working = round(max(0, found[1] - startup - loss) * slower)
    price = columns.usd_per_hour_micro[row]
    paid = -(-price * (startup + working + loss) // MS_PER_HOUR)
    facts = {
        "paid_microusd": paid,
        "working_ms": working,
        "startup_ms": startup,
        "lost_ms": loss,
        "samples": samples,
    }
    return StageActuals(target=(choice.pool, choice.market), **(facts | changes))


def hindsight_of(
    decision: Decision, took: StageActuals, rates: dict[tuple[str, str], float] | None = None, **prices: int
) -> Hindsight:
    places = {(pool, Market.ON_DEMAND): price for pool, price in prices.items()}
    found = hindsight(decision, KnownFacts({decision.question.stage: took}, rates or {}, places))
    assert found is not None
    return found


@examples(80)
@given(
    st.one_of(ANSWERED, answered(questions().map(started))),
    st.floats(0.05, 20),
    st.dictionaries(st.sampled_from(["pool-0", "pool-1", "pool-2"]), st.floats(0.1, 10)),
)
def test_regret_is_exact_and_never_negative(
    question: Question, slower: float, rates: dict[str, float]
) -> None:
    decision = decide(question)
    found = hindsight_of(
        decision, actuals_of(decision, slower), {(question.stage, pool): rate for pool, rate in rates.items()}
    )
    taken, best = (
        next(offer for offer in found.offers if getattr(offer, name)) for name in ("selected", "best")
    )
    assert found.regret_usd == taken.total_usd - best.total_usd >= 0
    assert best.total_usd == min(offer.total_usd for offer in found.offers)
    assert (found.main_cause == "") == (found.regret_usd == 0)
    # With a deadline, a choice that knows one assumption alone may be too late with all of them known.
    if question.deadline_left_s is None:
        assert all(saved <= found.regret_usd for saved in found.saved_by_knowing.values())


@examples(80)
@given(ANSWERED_IN_TIME)
def test_plans_that_miss_the_deadline_are_excluded(question: Question) -> None:
    decision = decide(question)
    assert question.deadline_left_s is not None
    found = hindsight_of(decision, actuals_of(decision))
    taken, best = (
        next(offer for offer in found.offers if getattr(offer, name)) for name in ("selected", "best")
    )
    assert max(offer.total_s for offer in found.offers) <= max(question.deadline_left_s, taken.total_s)
    assert found.regret_usd == taken.total_usd - best.total_usd >= 0
    assert best.total_usd == min(offer.total_usd for offer in found.offers)


@examples(50)
@given(st.one_of(ANSWERED, answered(questions().map(started))))
def test_a_stage_that_ran_as_estimated_has_regret_only_from_its_limits(question: Question) -> None:
    decision = decide(question)
    found = hindsight_of(decision, actuals_of(decision))
    assert found.main_cause in ("", "work")


def test_the_selected_offer_costs_what_was_paid() -> None:
    decision = decide(laptop_question((EVALUATE,)))
    found = hindsight_of(decision, actuals_of(decision, 1.7))
    taken = next(offer for offer in found.offers if offer.selected)
    assert taken.stage_usd == taken.total_usd == found.paid_usd
    assert taken.stage_s == found.actual_s


def test_data_fees_are_counted_once() -> None:
    decision = decide(laptop_question((INGEST,)))
    took = actuals_of(decision, 1.7)
    assert decision.choice is not None and decision.choice.fees_usd > 0
    fees = microusd(decision.choice.fees_usd)
    found = hindsight_of(decision, replace(took, paid_microusd=took.paid_microusd + fees, fees_microusd=fees))
    taken = next(offer for offer in found.offers if offer.selected)
    assert taken.stage_usd == found.paid_usd


def test_a_pool_with_fast_receipts_gives_regret_caused_by_speed() -> None:
    decision = decide(laptop_question((EVALUATE,)))
    assert decision.choice is not None and decision.choice.pool == "cpu-1"
    prior_s = stage_offer_table(decision.candidates, 0).prior_ms[1] / 1000
    found = hindsight_of(decision, actuals_of(decision, 3.0), {("evaluate", "cpu-2"): 0.5})
    best = found.offers[0]
    assert (best.pool, best.best, found.main_cause) == ("cpu-2", True, "speed")
    assert best.stage_s == pytest.approx(prior_s * 0.5, abs=0.002)
    assert found.regret_usd == found.paid_usd - best.total_usd > 0


def test_a_slow_stage_is_scaled_on_other_pools_too() -> None:
    decision = decide(laptop_question((EVALUATE,)))
    found = hindsight_of(decision, actuals_of(decision, 3.0))
    assert found.regret_usd == 0
    other = next(offer for offer in found.offers if offer.pool == "cpu-2")
    assert other.stage_usd == pytest.approx(3 * other.expected_usd, rel=Decimal("0.02"))


def test_a_price_drop_is_the_cause_when_current_prices_are_used() -> None:
    decision = decide(laptop_question((EVALUATE,)))
    found = hindsight_of(decision, actuals_of(decision), **{"cpu-2": microusd(Decimal("0.01"))})
    assert found.main_cause == "price"
    assert next(offer for offer in found.offers if offer.best).pool == "cpu-2"


def test_a_late_start_is_the_cause() -> None:
    slow = Pool(name="slow", cores=1, memory_gb=4, startup_s=5)
    quick = Pool(name="quick", cores=1, memory_gb=4, startup_s=20)
    prices = (quote("slow", "0.04"), quote("quick", "0.04"))
    decision = decide(laptop_question((EVALUATE,), pools=(slow, quick), quotes=prices, budget_usd="1"))
    assert decision.choice is not None and decision.choice.pool == "slow"
    more_micro = 40_000 * 85_000 // MS_PER_HOUR
    late = actuals_of(
        decision, startup_ms=90_000, paid_microusd=actuals_of(decision).paid_microusd + more_micro
    )
    found = hindsight_of(decision, late)
    assert (found.main_cause, found.regret_s) == ("start-up", pytest.approx(70.0))


def test_lost_attempts_are_caused_by_preemption() -> None:
    terms = {Market.ON_DEMAND: MarketTerms(), Market.SPOT: MarketTerms(preemptions_per_hour=0.01)}
    pool = CPU_1.model_copy(update={"markets": terms})
    prices = (quote("cpu-1", "0.04"), quote("cpu-1", "0.02", Market.SPOT))
    decision = decide(laptop_question((EVALUATE,), pools=(pool,), quotes=prices, budget_usd="1"))
    assert decision.choice is not None and decision.choice.market is Market.SPOT
    once = actuals_of(decision)
    lost = actuals_of(decision, lost_ms=3 * once.working_ms, paid_microusd=4 * once.paid_microusd)
    found = hindsight_of(decision, lost)
    assert found.main_cause == "preemption"
    assert next(offer for offer in found.offers if offer.best).market is Market.ON_DEMAND


def test_an_elastic_stage_is_compared_at_its_actual_samples() -> None:
    decision = decide(laptop_question((TRAIN, EVALUATE)))
    assert decision.choice is not None
    half = decision.choice.samples // 2
    found_then = expected_cost(decision, half)
    assert found_then is not None
    took = actuals_of(decision, samples=half, working_ms=found_then[1], paid_microusd=found_then[0])
    found = hindsight_of(decision, took)
    taken = next(offer for offer in found.offers if offer.selected)
    assert taken.expected_usd == pytest.approx(from_microusd(found_then[0]), abs=Decimal("0.000002"))
    # The expected cost there is that of as many samples, not of all samples that the money buys.
    other = next(offer for offer in found.offers if offer.pool == CPU_2.name)
    assert other.expected_usd < 3 * taken.expected_usd


def test_actuals_of_later_stages_count_in_the_total() -> None:
    decision = decide(laptop_question((INGEST, EVALUATE)))
    later = StageActuals((CPU_1.name, Market.ON_DEMAND), 400, 36_000, 0, 0, 0)
    found = hindsight(decision, KnownFacts({"ingest": actuals_of(decision), "evaluate": later}, {}, {}))
    assert found is not None
    taken = next(offer for offer in found.offers if offer.selected)
    assert taken.total_usd == taken.stage_usd + from_microusd(400)


def test_refused_cached_and_incomplete_stages_have_no_hindsight() -> None:
    refused = decide(laptop_question(budget_usd="0.000001"))
    assert refused.choice is None
    assert hindsight(refused, KnownFacts({}, {}, {})) is None
    chosen = decide(laptop_question())
    assert hindsight(chosen, KnownFacts({}, {}, {})) is None
    cached = decide(laptop_question(cached_outcome="cache/1.json", cached_format="packed"))
    assert cached.choice is not None and cached.choice.cached
    assert hindsight(cached, KnownFacts({"ingest": actuals_of(chosen)}, {}, {})) is None


def test_the_same_records_give_the_same_hindsight() -> None:
    decision = decide(laptop_question())
    seen = {hindsight_of(decision, actuals_of(decision, 1.3)).model_dump_json() for _ in range(3)}
    assert len(seen) == 1
    assert set(KNOWABLE_ASSUMPTIONS) | {"work"} == set(
        hindsight_of(decision, actuals_of(decision)).saved_by_knowing
    )
