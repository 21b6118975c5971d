"""A pool of uncertain speed is explored within the budget, and the choice states the bonus."""

from __future__ import annotations

from math import floor
from typing import Any

from brute_force import every_plan
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from routing_cases import CPU_1, EVALUATE, TRAIN, answered, laptop_question, questions, quote
from sample_prices import taking_the_most
from test_planner import fits, samples_and_price, total_est_micro

from shoestring.core.money import microusd
from shoestring.core.types import Need
from shoestring.pricing.learned.calibration import LearnedSpeed
from shoestring.routing.candidates import PPB, Candidates
from shoestring.routing.decide import decide
from shoestring.routing.decision import Decision
from shoestring.routing.offers.offer_table import OfferTable, full_offer_table
from shoestring.routing.question import Question

OTHER = CPU_1.model_copy(update={"name": "other"})


def decided(unknown_log_sd: float, log_sd: float = 0.5, need: Need = EVALUATE, **fields: Any) -> Decision:
    """Decide where the other pool costs 10% more and its speed is uncertain."""
    learned = (
        LearnedSpeed(stage=need.stage, pool="cpu-1", runs=20, log_mean=0.1, log_sd=0.1),
        LearnedSpeed(
            stage=need.stage, pool="other", runs=0, log_mean=0, log_sd=log_sd, unknown_log_sd=unknown_log_sd
        ),
    )
    prices = (quote("cpu-1", "0.040000"), quote("other", "0.044000"))
    return decide(laptop_question((need,), pools=(CPU_1, OTHER), quotes=prices, learned=learned, **fields))


def pool_of(decision: Decision) -> str:
    assert decision.choice is not None
    return decision.choice.pool


def test_an_uncertain_pool_is_explored_and_a_known_one_is_not() -> None:
    tried, known = decided(0.45), decided(0.0)
    assert (pool_of(tried), pool_of(known)) == ("other", "cpu-1")
    assert tried.choice is not None and "less an exploration bonus of" in tried.choice.sentence
    assert known.choice is not None and "exploration" not in known.choice.sentence


def test_the_bonus_changes_neither_the_estimate_nor_the_reservation() -> None:
    tried, known = decided(0.45), decided(0.0)
    for name in ("mean_ppb_by_machine", "p95_ppb_by_machine"):
        assert (
            getattr(tried.candidates.offers[0], name).tolist()
            == getattr(known.candidates.offers[0], name).tolist()
        )
    assert (
        tried.choice is not None and known.choice is not None and tried.choice.est_usd > known.choice.est_usd
    )


def test_a_pool_whose_p95_does_not_fit_is_not_explored() -> None:
    tried = decided(0.45).choice
    assert tried is not None
    assert pool_of(decided(0.45, budget_usd=str(tried.p95_usd))) == "other"
    assert pool_of(decided(0.45, budget_usd=str(tried.p95_usd - tried.p95_usd / 10))) == "cpu-1"


def test_an_elastic_stage_explores_only_where_it_can_migrate_and_all_passes_fit() -> None:
    stays, tries = (decided(0.45, need=TRAIN, budget_usd="10", exploration_sd=sd) for sd in (0.0, 1.0))
    assert (pool_of(stays), pool_of(tries)) == ("cpu-1", "other")
    assert tries.choice is not None and "all 4,041,312 samples fit" in tries.choice.sentence
    assert "less an exploration bonus of" in tries.choice.sentence
    assert stays.choice is not None and "exploration" not in stays.choice.sentence
    p95_usd = tries.choice.p95_usd
    assert pool_of(decided(0.45, need=TRAIN, budget_usd=str(p95_usd), exploration_sd=1.0)) == "other"
    short = decided(0.45, need=TRAIN, budget_usd=str(p95_usd - p95_usd / 100), exploration_sd=1.0)
    assert (
        pool_of(short) == "cpu-1" and short.choice is not None and "exploration" not in short.choice.sentence
    )


def test_a_cheaper_pool_with_fewer_samples_does_not_count_as_the_alternative_to_exploring() -> None:
    learned = tuple(
        LearnedSpeed(stage="train", pool=name, runs=20, log_mean=mean, log_sd=0.1)
        for name, mean in (("cpu-1", 0.0), ("other", 1.0))
    )
    prices = (quote("cpu-1", "0.040000"), quote("other", "0.010000"))
    question = laptop_question(
        (TRAIN,),
        "10",
        pools=(CPU_1, OTHER),
        quotes=prices,
        learned=learned,
        exploration_sd=1.0,
        deadline_left_s=60,
    )
    choice = decide(question).choice
    assert choice is not None and choice.pool == "cpu-1" and "the most samples that" in choice.sentence
    assert "exploration" not in choice.sentence


def test_a_later_stage_with_a_lower_p95_leaves_money_for_exploring() -> None:
    """Evaluating on cpu-1 has the lower expected cost, but reserving its P95 leaves no money to explore."""
    learned = (
        LearnedSpeed(stage="train", pool="cpu-1", runs=20, log_mean=0.1, log_sd=0.1),
        LearnedSpeed(stage="train", pool="other", runs=0, log_mean=0, log_sd=0.5, unknown_log_sd=0.45),
        LearnedSpeed(stage="evaluate", pool="cpu-1", runs=20, log_mean=0.0, log_sd=0.0, log_p95=1.0),
        LearnedSpeed(stage="evaluate", pool="other", runs=20, log_mean=0.0, log_sd=0.0, log_p95=0.0),
    )
    prices = (quote("cpu-1", "0.040000"), quote("other", "0.044000"))
    fields = {"pools": (CPU_1, OTHER), "quotes": prices, "learned": learned, "exploration_sd": 1.0}
    rich = decide(laptop_question((TRAIN, EVALUATE), "10", **fields))
    assert rich.choice is not None and (rich.choice.pool, rich.plan[0].pool) == ("other", "cpu-1")
    kept_usd = decide(laptop_question((EVALUATE,), "10", **fields | {"quotes": prices[1:]})).choice
    assert kept_usd is not None
    just = decide(laptop_question((TRAIN, EVALUATE), str(rich.choice.p95_usd + kept_usd.p95_usd), **fields))
    assert just.choice is not None and (just.choice.pool, just.plan[0].pool) == ("other", "other")


def bonus_micro(question: Question, candidates: Candidates, columns: OfferTable, plan: list[int]) -> int:
    """Return the bonus of a plan's first stage; 0 where not all of its work fits at P95."""
    row, later, offers = plan[0], plan[1:], candidates.offers[0]
    money = microusd(question.left_usd) - sum(columns.min_p95_microusd[each] for each in later)
    if (cap := question.stage_budgets.get(question.stage)) is not None:
        money = min(money, microusd(cap))
    ms = None if question.deadline_left_s is None else int(question.deadline_left_s * 1000)
    late = ms is not None and columns.p95_ms[row] > ms - sum(columns.min_p95_ms[each] for each in later)
    if (
        columns.p95_microusd[row] > money
        or late
        or columns.cached[row]
        or (question.needs[0].elastic and not question.exploration_sd)
    ):
        return 0
    share = offers.exploration_ppb_by_machine[candidates.machine[row // len(offers.writes)]] / PPB
    return floor(columns.est_microusd[row] * share)


def with_uncertain_speeds(question: Question, sds: tuple[float, ...], exploration_sd: float) -> Question:
    learned = [
        each.model_copy(update={"unknown_log_sd": sd})
        for each, sd in zip(question.learned, sds, strict=False)
    ]
    return question.model_copy(update={"learned": tuple(learned), "exploration_sd": exploration_sd})


UNKNOWN = st.lists(st.sampled_from([0.0, 0.2, 0.7]), min_size=12, max_size=12).map(tuple)


@examples(150)
@given(
    st.builds(
        with_uncertain_speeds,
        st.one_of(answered(), answered(questions(2))),
        UNKNOWN,
        st.sampled_from([0.0, 1.0, 2.0]),
    )
)
def test_no_plan_is_better_by_samples_then_by_cost_less_the_bonus(
    question: Question,
) -> None:
    decision = decide(question := taking_the_most(question))
    candidates, columns = decision.candidates, full_offer_table(decision.candidates)
    found = [
        (samples, price - bonus_micro(question, candidates, columns, plan))
        for plan in every_plan(question, candidates)
        if fits(question, columns, plan)
        for samples, price in [samples_and_price(question, columns, plan)]
    ]
    assert decision.choice is not None and found
    total = total_est_micro(decision)
    best_plans = [
        plan
        for plan in every_plan(question, candidates)
        if plan[0] == decision.choice.candidate and fits(question, columns, plan)
    ]
    best_plans = [
        plan for plan in best_plans if abs(samples_and_price(question, columns, plan)[1] - total) <= 1
    ]
    max_bonus = max(bonus_micro(question, candidates, columns, plan) for plan in best_plans)
    assert abs(decision.choice.samples - max(samples for samples, _ in found)) <= 1
    assert (
        total - max_bonus <= min(price for samples, price in found if samples >= decision.choice.samples) + 1
    )
