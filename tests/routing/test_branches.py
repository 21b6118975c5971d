"""Branches of which a run takes one: the money is held for the dearest of them."""

from decimal import Decimal

import pytest
from routing_cases import EVALUATE, TRAIN, laptop_question

from shoestring.core.record import record_bytes
from shoestring.core.types import Need
from shoestring.routing.analysis.replay import replay
from shoestring.routing.branches import MAX_WAYS, branches_of, ways
from shoestring.routing.dag import build_dag
from shoestring.routing.decide import decide
from shoestring.routing.decision import Decision


def need(stage: str, branch: str = "", after: tuple[str, ...] | None = None) -> Need:
    return Need(stage=stage, branch=branch, after=after)


def names(found: list[tuple[Need, ...]]) -> list[list[str]]:
    return [[each.stage for each in way] for way in found]


SIZES = (
    need("first", after=()),
    need("small", "size/small"),
    need("large", "size/large", ("first",)),
    need("tuned", "size/large/tune/yes"),
    need("plain", "size/large/tune/no", ("large",)),
    need("extra", "more/yes", ("first",)),
    need("joined", after=("small", "tuned", "plain")),
)


def test_a_way_takes_one_branch_of_each_group_and_every_group_of_one() -> None:
    assert names(ways(SIZES)) == [
        ["first", "small", "extra", "joined"],
        ["first", "large", "tuned", "extra", "joined"],
        ["first", "large", "plain", "extra", "joined"],
    ]
    assert branches_of(SIZES[3]) == {"size": "large", "size/large/tune": "yes"}


def test_a_stage_that_waits_for_one_of_another_branch_waits_for_what_that_one_waits_for() -> None:
    after = [next(each.after for each in way if each.stage == "joined") for way in ways(SIZES)]
    assert after == [("small", "first"), ("first", "tuned", "large"), ("first", "large", "plain")]


def test_from_within_a_branch_the_others_of_its_group_are_left_out() -> None:
    assert names(ways(SIZES[2:])) == [
        ["large", "tuned", "extra", "joined"],
        ["large", "plain", "extra", "joined"],
    ]
    assert names(ways(SIZES[1:])) == [["small", "extra", "joined"]]


def test_a_chain_whose_stage_is_left_out_stays_a_chain() -> None:
    chain = (need("a"), need("b", "g/1"), need("c", "g/2"), need("d"))
    found = ways(chain)
    assert names(found) == [["a", "b", "d"], ["a", "c", "d"]]
    assert all(build_dag(way).is_chain for way in found)


def test_a_pipeline_with_too_many_ways_is_refused_with_their_number() -> None:
    needs = [need("a")] + [need(f"s{at}-{side}", f"g{at}/{side}", ("a",)) for at in range(6) for side in "ab"]
    with pytest.raises(ValueError, match=f"combine in 64 ways, and the planner allows {MAX_WAYS}"):
        ways(needs)


FIRST, LAST = need("first", after=()), need("last", after=("cheap", "dear"))
CHEAP = Need(stage="cheap", branch="size/small", after=("first",), setup_s=20)
DEAR = Need(stage="dear", branch="size/large", after=("first",), setup_s=200)


def decided(*needs: Need, budget_usd: str = "0.01") -> Decision:
    return decide(laptop_question(needs, budget_usd))


def later_usd(*needs: Need) -> Decimal:
    choice = decided(*needs).choice
    assert choice is not None
    return choice.reserved_later_usd


def test_what_is_held_is_the_dearest_branch_in_any_order_and_not_their_sum() -> None:
    plain = [each.model_copy(update={"branch": "", "after": None}) for each in (DEAR, LAST)]
    assert (
        later_usd(FIRST, CHEAP, DEAR, LAST) == later_usd(FIRST, DEAR, CHEAP, LAST) == later_usd(FIRST, *plain)
    )
    unnamed = [each.model_copy(update={"branch": ""}) for each in (CHEAP, DEAR)]
    assert later_usd(FIRST, *unnamed, LAST) > later_usd(FIRST, CHEAP, DEAR, LAST)


def test_the_plan_names_what_it_leaves_out_and_its_record_keeps_all_stages() -> None:
    found = decided(FIRST, CHEAP, DEAR, LAST)
    question = found.question
    assert [each.stage for each in found.plan] == ["dear", "last"]
    assert [each.stage for each in question.may_be_routed] == ["first", "cheap", "dear", "last"]
    assert question.notes[-1].startswith("planned without cheap: a run takes one branch of a group")
    assert replay(record_bytes(found)).verdict == "same"
    assert decide(question) == found


def test_a_run_that_cannot_pay_one_of_its_branches_is_refused_with_what_that_one_needs() -> None:
    needs = (FIRST, CHEAP, DEAR, LAST)
    assert decided(FIRST, CHEAP, budget_usd="0.002").choice is not None
    refused = decided(*needs, budget_usd="0.002")
    assert refused.choice is None and refused.smallest_budget_usd is not None
    enough = refused.smallest_budget_usd
    assert decided(*needs, budget_usd=str(enough)).choice is not None
    assert decided(*needs, budget_usd=str(enough - Decimal("0.000001"))).choice is None


def test_each_of_two_branches_may_train() -> None:
    small, large = (
        TRAIN.model_copy(update={"stage": each, "branch": f"size/{each}", "after": ("first",)})
        for each in ("a", "b")
    )
    last = EVALUATE.model_copy(update={"after": ("a", "b")})
    found = decided(FIRST, small, large, last)
    assert found.choice is not None and len(found.plan) == 2
    both = large.model_copy(update={"branch": ""})
    with pytest.raises(ValueError, match="more than one elastic stage"):
        laptop_question((FIRST, small, both, last))
