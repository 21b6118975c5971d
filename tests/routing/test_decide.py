"""Properties of the choice, for random questions and for a laptop."""

from __future__ import annotations

from decimal import Decimal

import pytest
from examples import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from routing_cases import (
    EVALUATE,
    INGEST,
    PACKED,
    PARQUET,
    TRAIN,
    answered,
    computed,
    laptop_question,
    questions,
)

from shoestring.config.tariffs import Tariffs
from shoestring.core.money import from_microusd
from shoestring.core.record import record_bytes
from shoestring.core.types import Format
from shoestring.routing.candidates import RefusalCode
from shoestring.routing.decide import decide
from shoestring.routing.decision import Decision
from shoestring.routing.question import Question

MICRO = Decimal("0.000001")
many = examples(50)


def impossible(question: Question) -> Question:
    """Return the question with a last stage that needs more memory than any pool has."""
    last = question.needs[-1].model_copy(update={"memory_fixed_gb": 1000.0})
    return computed(question.model_copy(update={"needs": (*question.needs[:-1], last)}))


def total_est_usd(decision: Decision) -> Decimal:
    assert decision.choice is not None
    return decision.choice.est_usd + sum((each.est_usd for each in decision.plan), Decimal(0))


@many
@given(answered())
def test_the_p95_and_the_reserve_for_later_stages_always_fit_money_and_deadline(question: Question) -> None:
    decision = decide(question)
    choice = decision.choice
    assert choice is not None
    assert choice.est_usd <= choice.p95_usd <= choice.budget_usd and choice.est_s <= choice.p95_s
    assert choice.budget_usd + choice.reserved_later_usd <= question.left_usd
    assert choice.reserved_later_usd == sum(each.reserved_usd for each in decision.plan)
    assert choice.budget_usd <= question.stage_budgets.get(question.stage, choice.budget_usd)
    if question.deadline_left_s is not None:
        assert (
            choice.p95_s + sum(each.reserved_s for each in decision.plan) <= question.deadline_left_s + 1e-9
        )


@many
@given(answered(), st.integers(0, 10**6))
def test_a_larger_budget_never_raises_the_cost_or_lowers_the_samples(
    question: Question, more_micro: int
) -> None:
    smaller, larger = (
        decide(question),
        decide(question.model_copy(update={"budget_usd": question.budget_usd + from_microusd(more_micro)})),
    )
    assert smaller.choice is not None and larger.choice is not None
    assert larger.choice.samples >= smaller.choice.samples
    if not question.needs[0].elastic:
        assert total_est_usd(larger) <= total_est_usd(smaller)


@many
@given(answered())
def test_the_smallest_budget_is_accepted_and_a_micro_dollar_less_is_not(question: Question) -> None:
    without_money = decide(question.model_copy(update={"budget_usd": Decimal(0)}))
    assume(without_money.choice is None)  # Work that rounds to $0 fits every budget.
    smallest_usd = without_money.smallest_budget_usd
    assert smallest_usd is not None
    assert decide(question.model_copy(update={"budget_usd": smallest_usd})).choice is not None
    refused = decide(question.model_copy(update={"budget_usd": smallest_usd - MICRO}))
    assert refused.choice is None and refused.smallest_budget_usd == smallest_usd


@many
@given(questions())
def test_no_budget_is_named_when_none_is_enough(question: Question) -> None:
    decision = decide(question)
    if decision.choice is None and decision.smallest_budget_usd is None:
        assert decide(question.model_copy(update={"budget_usd": Decimal(10**9)})).choice is None
    refused = decide(impossible(question))
    assert refused.choice is None and refused.smallest_budget_usd is None
    assert decide(refused.question.model_copy(update={"budget_usd": Decimal(10**9)})).choice is None


@many
@given(questions())
def test_every_candidate_of_this_stage_is_chosen_or_refused_with_a_sentence(question: Question) -> None:
    decision = decide(question)
    this_stage = range(decision.candidates.first_offer(1))
    refused = [refusal.candidate for refusal in decision.refusals]
    assert len(refused) == len(set(refused)) == len(this_stage) - (decision.choice is not None)
    assert set(refused) <= set(this_stage) and all(refusal.sentence for refusal in decision.refusals)


@many
@given(questions(), st.randoms())
def test_the_order_of_pools_prices_and_formats_changes_nothing(question: Question, random: object) -> None:
    shuffled = {name: list(getattr(question, name)) for name in ("pools", "quotes", "speeds", "learned")}
    for values in shuffled.values():
        random.shuffle(values)  # type: ignore[attr-defined]
    again = decide(question.model_copy(update={name: tuple(values) for name, values in shuffled.items()}))
    decision = decide(question)
    assert (again.choice, again.plan, again.refusals, again.candidates) == (
        decision.choice,
        decision.plan,
        decision.refusals,
        decision.candidates,
    )


@many
@given(questions())
def test_the_same_question_gives_the_same_bytes(question: Question) -> None:
    assert record_bytes(decide(question)) == record_bytes(
        decide(Question.model_validate_json(record_bytes(question)))
    )


def test_an_elastic_stage_uses_all_money_that_later_stages_do_not_need() -> None:
    choice = decide(laptop_question((TRAIN, EVALUATE), "0.001")).choice
    assert choice is not None and choice.samples < 12 * 336_776
    assert choice.p95_usd + choice.reserved_later_usd == Decimal("0.001000")


def test_an_elastic_stage_takes_no_more_than_all_its_passes_cost() -> None:
    choice = decide(laptop_question((TRAIN, EVALUATE), "5")).choice
    assert choice is not None and choice.samples == 12 * 336_776
    assert choice.p95_usd < Decimal("0.01")


def test_with_a_deadline_an_elastic_stage_pays_for_the_faster_pool() -> None:
    relaxed, with_deadline = (
        decide(laptop_question((TRAIN,), "0.01")).choice,
        decide(laptop_question((TRAIN,), "0.01", deadline_left_s=50.0)).choice,
    )
    assert relaxed is not None and with_deadline is not None
    assert (relaxed.pool, with_deadline.pool) == ("cpu-1", "cpu-2")
    assert with_deadline.p95_s <= 50 and with_deadline.samples < relaxed.samples
    assert with_deadline.p95_usd <= Decimal("0.08") * 50 / 3600 + MICRO


def test_money_and_time_are_reserved_for_later_stages() -> None:
    question = laptop_question((TRAIN, EVALUATE), "0.01", deadline_left_s=50.0)
    decision = decide(question)
    reserved_s = sum(each.reserved_s for each in decision.plan)
    alone = decide(laptop_question((TRAIN,), "0.01", deadline_left_s=50.0 - reserved_s)).choice
    assert decision.choice is not None and alone is not None and reserved_s > 5
    assert (decision.choice.samples, decision.choice.est_s, decision.choice.p95_s) == (
        alone.samples,
        alone.est_s,
        alone.p95_s,
    )
    poor = decide(laptop_question((TRAIN, EVALUATE), "0.001")).choice
    assert poor is not None and poor.reserved_later_usd > 0
    left_usd = str(Decimal("0.001") - poor.reserved_later_usd)
    assert decide(laptop_question((TRAIN,), left_usd)).choice == poor.model_copy(
        update={"reserved_later_usd": Decimal(0)}
    )


def test_an_offer_that_allows_too_few_passes_is_refused() -> None:
    decision = decide(laptop_question((TRAIN.model_copy(update={"min_passes": 6.0}),), "0.0005"))
    assert decision.choice is None and decision.smallest_budget_usd is not None
    assert decision.refusals[0].sentence == "$0.000550 expected (P95 $0.001104), $0.000500 left"


def test_the_written_format_depends_on_its_reader() -> None:
    """Parquet is more expensive to read here and cheaper to store."""
    tariffs = Tariffs(storage_usd_per_gb_month=Decimal("0.05"), storage_held_hours=24 * 30)
    reader = EVALUATE.model_copy(update={"setup_s": 0.0, "cpu_us_per_row": 0.0})
    alone = decide(laptop_question((INGEST,), "1", tariffs=tariffs)).choice
    slow_to_read = PARQUET.model_copy(update={"scan_ns_per_row": 10**6})
    followed = decide(
        laptop_question((INGEST, reader), "1", tariffs=tariffs, speeds=(slow_to_read, PACKED))
    ).choice
    assert alone and followed and (alone.format, followed.format) == (Format.PARQUET, Format.PACKED)


def test_a_cached_result_costs_nothing_and_is_chosen() -> None:
    decision = decide(laptop_question(cached_outcome="cache/1.json", cached_format=Format.PARQUET))
    choice = decision.choice
    assert choice is not None and choice.cached and choice.est_usd == choice.p95_usd == 0
    assert (choice.pool, choice.format, choice.prior_s) == ("cpu-1", Format.PARQUET, 0.0)
    assert decision.placement is not None


def test_a_cached_result_of_unknown_format_is_chosen_too() -> None:
    choice = decide(laptop_question(cached_outcome="cache/1.json")).choice
    assert choice is not None and choice.cached and choice.format is None


def test_spent_and_held_money_is_not_left() -> None:
    smallest_usd = decide(laptop_question(budget_usd="0")).smallest_budget_usd
    later = decide(laptop_question(budget_usd="0", spent_usd="0.5", held_usd="0.25")).smallest_budget_usd
    assert smallest_usd is not None and later == smallest_usd + Decimal("0.75")


def test_a_declared_stage_budget_caps_the_stage() -> None:
    fixed = decide(laptop_question(stage_budgets={"ingest": Decimal("0.001")})).choice
    assert fixed is not None and fixed.p95_usd < fixed.budget_usd == Decimal("0.001000")
    elastic = decide(
        laptop_question((TRAIN, EVALUATE), "0.01", stage_budgets={"train": Decimal("0.0005")})
    ).choice
    assert elastic is not None and elastic.p95_usd == elastic.budget_usd == Decimal("0.000500")
    capped = decide(laptop_question(stage_budgets={"ingest": Decimal("0.00001")}))
    assert capped.choice is None and capped.smallest_budget_usd is None
    assert {refusal.code for refusal in capped.refusals} == {RefusalCode.OVER_STAGE_BUDGET}
    assert capped.refusals[0].sentence.endswith("the stage's own budget is $0.000010")


def test_the_prior_grows_with_the_samples() -> None:
    choice = decide(laptop_question((TRAIN,), "1")).choice
    assert choice is not None
    assert choice.prior_s_of(choice.samples) == choice.prior_s
    assert choice.prior_s_of(0) == choice.fixed_s == pytest.approx(3.0 + 336_776 * (30e-9 + 60e-9), abs=0.002)
    fixed = decide(laptop_question((INGEST,), "1")).choice
    assert fixed is not None and fixed.prior_s_of(0) == fixed.prior_s > fixed.fixed_s
