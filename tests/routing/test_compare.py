"""Comparison of two decisions, and the reason why a pool was not selected."""

from __future__ import annotations

from decimal import Decimal

import pytest
from examples import examples
from hypothesis import given
from routing_cases import CPU_1, CPU_2, EVALUATE, INGEST, TRAIN, laptop_question, quote, tight_questions

from shoestring.config.preferences import Preferences, WorkloadClass
from shoestring.core.errors import UsageError
from shoestring.core.money import from_microusd, microusd
from shoestring.core.types import Market, MarketTerms
from shoestring.routing.analysis.compare import IDENTITY_FIELDS, INPUT_GROUPS, choice_text, compare, why_not
from shoestring.routing.decide import decide
from shoestring.routing.question import Question


def test_the_input_that_changes_the_choice_is_named() -> None:
    first = decide(laptop_question((EVALUATE,)))
    prices = (quote("cpu-1", "0.04"), quote("cpu-2", "0.01"))
    second = decide(laptop_question((EVALUATE,), quotes=prices, budget_usd="0.004", run_id="flights-2"))
    found = compare(first, second)
    assert (found.first_choice, found.second_choice, found.same_choice) == (
        "cpu-1 on-demand",
        "cpu-2 on-demand",
        False,
    )
    assert [(change.group, change.flips_choice, change.choice_alone) for change in found.changes] == [
        ("money", False, "cpu-1 on-demand"),
        ("prices", True, "cpu-2 on-demand"),
    ]
    assert found.sufficient_groups == ("prices",)
    assert found.changes[0].fields == ("budget_usd 0.003000 -> 0.004000",)
    assert "usd_per_hour=0.01" in found.changes[1].fields[0]


def test_two_inputs_that_change_the_choice_only_together_are_both_named() -> None:
    """A low price for a missing pool changes nothing, and neither does a pool without a price."""
    both = laptop_question(
        (EVALUATE,), pools=(CPU_1, CPU_2), quotes=(quote("cpu-1", "0.04"), quote("cpu-2", "0.01"))
    )
    first = decide(both.model_copy(update={"pools": (CPU_1,), "quotes": (quote("cpu-1", "0.04"),)}))
    found = compare(first, decide(both))
    assert [change.flips_choice for change in found.changes] == [False, False]
    assert set(found.sufficient_groups) == {"pools", "prices"}


@examples(25)
@given(tight_questions(), tight_questions())
def test_with_all_differing_inputs_the_first_chooses_as_the_second(one: Question, other: Question) -> None:
    first, second = (
        decide(one),
        decide(other.model_copy(update={"stage": one.stage}) if one.stage == other.stage else one),
    )
    found = compare(first, second)
    assert found.reproducible
    assert found.same_choice == (choice_text(first.choice) == choice_text(second.choice))
    assert bool(found.sufficient_groups) == (not found.same_choice)
    assert set(found.sufficient_groups) <= {change.group for change in found.changes}


def test_decisions_of_two_stages_are_not_compared() -> None:
    with pytest.raises(UsageError, match="the first decision is for ingest, the second for evaluate"):
        compare(decide(laptop_question((INGEST,))), decide(laptop_question((EVALUATE,))))


def test_a_decision_differs_from_itself_in_nothing() -> None:
    decision = decide(laptop_question())
    assert (compare(decision, decision).changes, compare(decision, decision).same_choice) == ((), True)


def test_changed_code_is_distinguished_from_changed_inputs() -> None:
    second = decide(laptop_question((EVALUATE,)))
    assert second.choice is not None
    other = second.model_copy(update={"choice": second.choice.model_copy(update={"pool": "cpu-2"})})
    found = compare(other, second)
    assert (found.changes, found.reproducible, found.sufficient_groups) == ((), False, ())


def test_input_groups_and_identity_fields_name_fields_of_a_question() -> None:
    assert set(INPUT_GROUPS) | IDENTITY_FIELDS <= set(Question.model_fields)
    assert not set(INPUT_GROUPS) & IDENTITY_FIELDS


def test_a_pool_is_selected_up_to_the_reported_price() -> None:
    question = laptop_question((EVALUATE,))
    found = why_not(decide(question), "cpu-2")
    assert [each.offer for each in found] == ["cpu-2 on-demand"]
    limit_usd = found[0].selected_at_usd_per_hour
    assert limit_usd is not None and found[0].usd_per_hour == Decimal("0.08")
    for more, pool in ((0, "cpu-2"), (1, "cpu-1")):
        price = from_microusd(microusd(limit_usd) + more)
        choice = decide(
            laptop_question((EVALUATE,), quotes=(quote("cpu-1", "0.04"), quote("cpu-2", str(price))))
        ).choice
        assert choice is not None and choice.pool == pool


def test_a_pool_over_budget_is_selected_with_the_reported_budget() -> None:
    question = laptop_question(
        (EVALUATE,), pools=(CPU_2,), quotes=(quote("cpu-2", "0.08"),), budget_usd="0.000100"
    )
    found = why_not(decide(question), "cpu-2")[0]
    assert found.selected_at_budget_usd is not None
    assert found.selected_at_budget_usd == decide(question).smallest_budget_usd
    for less, fits in ((0, True), (1, False)):
        budget_usd = found.selected_at_budget_usd - from_microusd(less)
        assert (decide(question.model_copy(update={"budget_usd": budget_usd})).choice is not None) == fits
    assert why_not(decide(laptop_question((EVALUATE,))), "cpu-2")[0].selected_at_budget_usd is None


def test_a_pool_that_cannot_be_used_has_a_reason_and_no_price() -> None:
    small = CPU_2.model_copy(update={"name": "small", "memory_gb": 0.1})
    question = laptop_question(
        (TRAIN, EVALUATE), pools=(CPU_1, small), quotes=(quote("cpu-1", "0.04"), quote("small", "0.01"))
    )
    found = why_not(decide(question), "small")[0]
    assert "GB of memory" in found.reason
    assert (found.selected_at_usd_per_hour, found.selected_at_budget_usd) == (None, None)


def test_why_not_of_an_unknown_pool_names_the_pools() -> None:
    with pytest.raises(UsageError, match="no pool called 'moon'; it has: cpu-1, cpu-2"):
        why_not(decide(laptop_question()), "moon")


def test_a_changed_record_is_shown_by_its_first_plain_fields() -> None:
    one = laptop_question((EVALUATE,))
    cheaper = one.model_copy(update={"quotes": (quote("cpu-1", "0.01"), *one.quotes[1:])})
    (change,) = compare(decide(one), decide(cheaper)).changes
    assert "pool=cpu-1 market=on-demand usd_per_hour=0.010000 as_of=2026-11-01" in change.fields[0]


def test_of_a_node_pools_shares_the_usable_ones_come_first_by_cost() -> None:
    """The smallest share is the cheapest, and has too little memory."""
    shares = [
        CPU_2.model_copy(update={"name": f"node/{name}", "node_pool": "node", "memory_gb": memory_gb})
        for name, memory_gb in (("a-small", 0.1), ("b-costly", 4), ("c-cheap", 4))
    ]
    prices = (
        quote("cpu-1", "0.04"),
        quote("node/a-small", "0.01"),
        quote("node/b-costly", "2"),
        quote("node/c-cheap", "1"),
    )
    found = why_not(decide(laptop_question((EVALUATE,), pools=(CPU_1, *shares), quotes=prices)), "node")
    assert [each.offer for each in found] == [
        "node/c-cheap on-demand",
        "node/b-costly on-demand",
        "node/a-small on-demand",
    ]
    assert [each.selected_at_usd_per_hour is None for each in found] == [False, False, True]


def test_why_not_lists_a_usable_market_before_a_cheaper_excluded_one() -> None:
    both = CPU_2.model_copy(update={"markets": {Market.ON_DEMAND: MarketTerms(), Market.SPOT: MarketTerms()}})
    on_demand = WorkloadClass(markets=(Market.ON_DEMAND,))
    question = laptop_question(
        (EVALUATE,),
        pools=(CPU_1, both),
        quotes=(quote("cpu-1", "0.04"), quote("cpu-2", "0.08"), quote("cpu-2", "0.06", Market.SPOT)),
        preferences=Preferences(workload_classes=dict.fromkeys(("compute", "data", "memory"), on_demand)),
    )
    found = why_not(decide(question), "cpu-2")
    assert [each.offer for each in found] == ["cpu-2 on-demand", "cpu-2 spot"]
    assert "only on on-demand" in found[1].reason
