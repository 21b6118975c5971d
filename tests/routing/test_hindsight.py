"""The road not taken: laws of regret, and which assumption is to blame."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from graph_cases import branching
from hypothesis import given, settings
from hypothesis import strategies as st
from routing_cases import CPU_1, CPU_2, EVALUATE, INGEST, TRAIN, laptop_question, questions, quote

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
BRANCHING = branching().map(lambda question: question.model_copy(update={"deadline_left_s": None}))
RATES = st.dictionaries(st.sampled_from(["pool-0", "pool-1", "pool-2"]), st.floats(0.1, 10))


def as_it_went(decision: Decision, slower: float = 1.0, **changes: Any) -> StageActuals:
    """The stage took what was expected of it, or so many times as long in working."""
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


def looked(
    decision: Decision, took: StageActuals, rates: dict[tuple[str, str], float] | None = None, **prices: int
) -> Hindsight:
    places = {(pool, Market.ON_DEMAND): price for pool, price in prices.items()}
    found = hindsight(decision, KnownFacts({decision.question.stage: took}, rates or {}, places))
    assert found is not None
    return found


@settings(max_examples=80)
@given(
    st.one_of(questions(), BRANCHING),
    st.floats(0.05, 20),
    st.dictionaries(st.sampled_from(["pool-0", "pool-1", "pool-2"]), st.floats(0.1, 10)),
)
def test_regret_is_exact_never_below_nothing_and_is_of_the_cheapest_road(
    question: Question, slower: float, rates: dict[str, float]
) -> None:
    decision = decide(question)
    if decision.choice is None or decision.choice.cached:
        return
    found = looked(
        decision, as_it_went(decision, slower), {(question.stage, pool): rate for pool, rate in rates.items()}
    )
    taken, best = (next(road for road in found.offers if getattr(road, name)) for name in ("selected", "best"))
    assert found.regret_usd == taken.total_usd - best.total_usd >= 0
    assert best.total_usd == min(road.total_usd for road in found.offers)
    assert (found.main_cause == "") == (found.regret_usd == 0)
    assert all(saved <= found.regret_usd for saved in found.saved_by_knowing.values())


@settings(max_examples=80)
@given(st.one_of(questions(), BRANCHING), st.floats(0.3, 1.5))
def test_a_road_that_would_have_been_late_is_none(question: Question, of_p95: float) -> None:
    easy = decide(question.model_copy(update={"deadline_left_s": None}))
    if easy.choice is None or easy.choice.cached:
        return
    needed_s = easy.choice.p95_s + sum(later.reserved_s for later in easy.plan)
    decision = decide(question.model_copy(update={"deadline_left_s": needed_s * of_p95}))
    if decision.choice is None or decision.choice.cached:
        return
    found = looked(decision, as_it_went(decision))
    taken, best = (next(road for road in found.offers if getattr(road, name)) for name in ("selected", "best"))
    assert max(road.total_s for road in found.offers) <= max(needed_s * of_p95, taken.total_s)
    assert found.regret_usd == taken.total_usd - best.total_usd >= 0
    assert best.total_usd == min(road.total_usd for road in found.offers)


@settings(max_examples=50)
@given(st.one_of(questions(), BRANCHING))
def test_a_stage_that_went_as_expected_leaves_nothing_to_regret_but_its_limits(question: Question) -> None:
    decision = decide(question)
    if decision.choice is None or decision.choice.cached:
        return
    found = looked(decision, as_it_went(decision))
    assert found.main_cause in ("", "work")


def test_the_taken_road_costs_what_was_paid() -> None:
    decision = decide(laptop_question((EVALUATE,)))
    found = looked(decision, as_it_went(decision, 1.7))
    taken = next(road for road in found.offers if road.selected)
    assert taken.stage_usd == taken.total_usd == found.paid_usd
    assert taken.stage_s == found.actual_s


def test_what_was_paid_for_data_is_counted_once() -> None:
    decision = decide(laptop_question((INGEST,)))
    took = as_it_went(decision, 1.7)
    assert decision.choice is not None and decision.choice.fees_usd > 0
    fees = microusd(decision.choice.fees_usd)
    found = looked(decision, replace(took, paid_microusd=took.paid_microusd + fees, fees_microusd=fees))
    taken = next(road for road in found.offers if road.selected)
    assert taken.stage_usd == found.paid_usd


def test_a_pool_that_receipts_know_to_be_fast_is_regretted_and_speed_is_to_blame() -> None:
    decision = decide(laptop_question((EVALUATE,)))
    assert decision.choice is not None and decision.choice.pool == "cpu-1"
    prior_s = stage_offer_table(decision.candidates, 0).prior_ms[1] / 1000
    found = looked(decision, as_it_went(decision, 3.0), {("evaluate", "cpu-2"): 0.5})
    best = found.offers[0]
    assert (best.pool, best.best, found.main_cause) == ("cpu-2", True, "speed")
    assert best.stage_s == pytest.approx(prior_s * 0.5, abs=0.002)
    assert found.regret_usd == found.paid_usd - best.total_usd > 0


def test_a_stage_that_was_slow_is_thought_to_be_as_slow_elsewhere() -> None:
    decision = decide(laptop_question((EVALUATE,)))
    found = looked(decision, as_it_went(decision, 3.0))
    assert found.regret_usd == 0
    other = next(road for road in found.offers if road.pool == "cpu-2")
    assert other.stage_usd == pytest.approx(3 * other.expected_usd, rel=Decimal("0.02"))


def test_a_price_that_fell_is_to_blame_when_todays_are_asked_for() -> None:
    decision = decide(laptop_question((EVALUATE,)))
    found = looked(decision, as_it_went(decision), **{"cpu-2": microusd(Decimal("0.01"))})
    assert found.main_cause == "price"
    assert next(road for road in found.offers if road.best).pool == "cpu-2"


def test_a_node_that_started_late_is_to_blame() -> None:
    slow = Pool(name="slow", cores=1, memory_gb=4, startup_s=5)
    quick = Pool(name="quick", cores=1, memory_gb=4, startup_s=20)
    prices = (quote("slow", "0.04"), quote("quick", "0.04"))
    decision = decide(laptop_question((EVALUATE,), pools=(slow, quick), quotes=prices, budget_usd="1"))
    assert decision.choice is not None and decision.choice.pool == "slow"
    more_micro = 40_000 * 85_000 // MS_PER_HOUR
    late = as_it_went(
        decision, startup_ms=90_000, paid_microusd=as_it_went(decision).paid_microusd + more_micro
    )
    found = looked(decision, late)
    assert (found.main_cause, found.regret_s) == ("start-up", pytest.approx(70.0))


def test_attempts_that_were_lost_are_what_preemption_is_to_blame_for() -> None:
    terms = {Market.ON_DEMAND: MarketTerms(), Market.SPOT: MarketTerms(preemptions_per_hour=0.01)}
    pool = CPU_1.model_copy(update={"markets": terms})
    prices = (quote("cpu-1", "0.04"), quote("cpu-1", "0.02", Market.SPOT))
    decision = decide(laptop_question((EVALUATE,), pools=(pool,), quotes=prices, budget_usd="1"))
    assert decision.choice is not None and decision.choice.market is Market.SPOT
    once = as_it_went(decision)
    lost = as_it_went(decision, lost_ms=3 * once.working_ms, paid_microusd=4 * once.paid_microusd)
    found = looked(decision, lost)
    assert found.main_cause == "preemption"
    assert next(road for road in found.offers if road.best).market is Market.ON_DEMAND


def test_a_training_is_compared_by_the_samples_that_it_did() -> None:
    decision = decide(laptop_question((TRAIN, EVALUATE)))
    assert decision.choice is not None
    half = decision.choice.samples // 2
    found_then = expected_cost(decision, half)
    assert found_then is not None
    took = as_it_went(decision, samples=half, working_ms=found_then[1], paid_microusd=found_then[0])
    found = looked(decision, took)
    taken = next(road for road in found.offers if road.selected)
    assert taken.expected_usd == pytest.approx(from_microusd(found_then[0]), abs=Decimal("0.000002"))
    # Expected of as many samples there, not of all that it could have used.
    other = next(road for road in found.offers if road.pool == CPU_2.name)
    assert other.expected_usd < 3 * taken.expected_usd


def test_what_later_stages_took_counts_in_what_a_format_saves() -> None:
    decision = decide(laptop_question((INGEST, EVALUATE)))
    later = StageActuals((CPU_1.name, Market.ON_DEMAND), 400, 36_000, 0, 0, 0)
    found = hindsight(decision, KnownFacts({"ingest": as_it_went(decision), "evaluate": later}, {}, {}))
    assert found is not None
    taken = next(road for road in found.offers if road.selected)
    assert taken.total_usd == taken.stage_usd + from_microusd(400)


def test_there_is_nothing_to_look_back_on_where_nothing_was_chosen_cached_or_never_done() -> None:
    refused = decide(laptop_question(budget_usd="0.000001"))
    assert refused.choice is None
    assert hindsight(refused, KnownFacts({}, {}, {})) is None
    chosen = decide(laptop_question())
    assert hindsight(chosen, KnownFacts({}, {}, {})) is None
    cached = decide(laptop_question(cached_outcome="cache/1.json", cached_format="packed"))
    assert cached.choice is not None and cached.choice.cached
    assert hindsight(cached, KnownFacts({"ingest": as_it_went(chosen)}, {}, {})) is None


def test_the_same_records_give_the_same_hindsight() -> None:
    decision = decide(laptop_question())
    seen = {looked(decision, as_it_went(decision, 1.3)).model_dump_json() for _ in range(3)}
    assert len(seen) == 1
    assert set(KNOWABLE_ASSUMPTIONS) | {"work"} == set(looked(decision, as_it_went(decision)).saved_by_knowing)
