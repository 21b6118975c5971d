"""Items of loops: each is planned by its own router, with those that are not routed yet."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from routing_cases import laptop_question

from shoestring.core.attempt_id import AttemptId, declared_stage, item_of, item_stage
from shoestring.core.errors import UsageError
from shoestring.core.pod_ref import LabelledPod, PodRef, item_of_node
from shoestring.core.record import record_bytes
from shoestring.core.types import Need
from shoestring.routing.analysis.replay import replay
from shoestring.routing.dag import build_dag
from shoestring.routing.decide import decide
from shoestring.routing.decision import Decision
from shoestring.routing.loop_items import (
    Loop,
    LoopItem,
    budgets_of,
    has_others,
    loop_item,
    needs_of_item,
    with_open_items,
)
from shoestring.routing.pages.refusal_text import refusal_head

KUBEFLOW_NODE = (
    "wf.root.exit-handler-1.for-loop-3.iteration-iterations(2:2).iteration-item.for-loop-5."
    "iteration-iterations(1:1).iteration-item.work.executor(0)"
)
WORK = Need(stage="work", after=("first",), setup_s=20.0, items=4)
JOINED = Need(stage="joined", setup_s=2.0)
OTHER = Need(stage="other", after=("first",), setup_s=2.0)
THIRD = LoopItem("2", 4, 4, "digest")


def names(needs: tuple[Need, ...]) -> list[tuple[str, int, tuple[str, ...] | None]]:
    return [(need.stage, need.items, need.after) for need in needs]


@pytest.mark.parametrize(
    ("node", "item"),
    [
        (KUBEFLOW_NODE, "2.1"),
        ("wf.run.loop(12:12).work(0).stage", "12"),
        ("wf.root.exit-handler-1.work.executor(0)", ""),
        ("wf.run(0).work(1).stage(0)", ""),
        ("", ""),
    ],
)
def test_an_item_is_its_number_in_each_loop_by_the_name_of_its_node(node: str, item: str) -> None:
    assert item_of_node(node) == item


@given(st.lists(st.integers(0, 999), max_size=3), st.integers(1, 99))
def test_the_names_of_items_are_read_back(numbers: list[int], attempt: int) -> None:
    item = ".".join(map(str, numbers))
    name = item_stage("work-2", item)
    assert (declared_stage(name), item_of(name)) == ("work-2", item)
    assert Need(stage=name).stage == name
    assert AttemptId.parse("r", str(AttemptId("r", name, attempt))) == AttemptId("r", name, attempt)
    pod = LabelledPod.with_labels("ns", {"stage": "work-2", "run": "r"}, item)
    assert PodRef.parse(str(pod)) == pod


def test_the_router_of_an_item_plans_the_others_and_what_waits_for_all_of_them() -> None:
    needs = needs_of_item((WORK, JOINED, OTHER), THIRD)
    assert names(needs) == [
        ("work.2", 1, ("first",)),
        ("work", 3, ("first",)),
        ("joined", 1, ("work.2", "work")),
        ("other", 1, ("first",)),
    ]
    assert has_others(needs) and build_dag(needs).depth == 2
    assert not has_others((WORK, JOINED))
    only = needs_of_item((WORK, JOINED), LoopItem("0", 1, 1, ""))
    assert names(only) == [("work.0", 1, ("first",)), ("joined", 1, ("work.0",))]


def test_items_that_are_routed_are_planned_no_more() -> None:
    needs = needs_of_item((WORK, JOINED), THIRD)
    # Its own earlier attempt is none of the others.
    assert names(with_open_items(needs, {"work.0", "work.2", "other.1"}))[1] == ("work", 2, ("first",))
    assert names(with_open_items(needs, {"work.0", "work.1", "work.3"})) == [
        ("work.2", 1, ("first",)),
        ("joined", 1, ("work.2",)),
    ]
    # For the router of another stage, all of them may be routed.
    assert names(with_open_items((OTHER, WORK), {f"work.{item}" for item in range(6)}))[1][1] == 0


def test_an_item_is_found_in_the_lists_that_are_known() -> None:
    loops = (Loop(items=("a", "b", "c"), at_once=2), Loop())
    found = loop_item(WORK, loops, ["x", "y"], KUBEFLOW_NODE)
    assert (found.name, found.count, found.at_once) == ("2.1", 6, 4)
    other = loop_item(WORK, (Loop(items=("a", "b", "d")), Loop()), ["x", "y"], KUBEFLOW_NODE)
    assert other.sha256 != found.sha256
    # KFP passes no list on: as many as the Need expects.
    unknown = loop_item(WORK, loops, None, KUBEFLOW_NODE)
    assert (unknown.name, unknown.count, unknown.at_once) == ("2.1", 4, 0)
    with pytest.raises(UsageError, match="work works on item 2 of a loop of 2 items"):
        loop_item(WORK, (Loop(items=("a", "b")), Loop()), ["x", "y"], KUBEFLOW_NODE)
    with pytest.raises(UsageError, match="work is in 1 loops, and its route step runs as an unknown node"):
        loop_item(WORK, (Loop(),), ["x"], "")


def test_an_item_may_use_what_is_left_for_its_loop_and_the_others_their_share() -> None:
    left = {"work": Decimal("0.8"), "other": Decimal("0.1")}
    found = budgets_of(left, needs_of_item((WORK,), THIRD))
    assert found == {"work.2": Decimal("0.8"), "work": Decimal("0.6"), "other": Decimal("0.1")}
    assert budgets_of(left, (OTHER, WORK)) == left


def decided(*needs: Need, budget_usd: str = "0.01") -> Decision:
    return decide(laptop_question(needs, budget_usd))


def test_all_items_are_held_before_the_first_is_routed_and_one_is_reserved_for_each() -> None:
    first = Need(stage="first", after=(), setup_s=2.0)
    one = WORK.model_copy(update={"items": 1})
    choice, single = decided(first, WORK).choice, decided(first, one).choice
    assert choice is not None and single is not None
    assert choice.reserved_later_usd == 4 * single.reserved_later_usd
    none = decided(first, WORK.model_copy(update={"items": 0})).choice
    assert none is not None and none.reserved_later_usd == 0
    item = decided(*needs_of_item((WORK.model_copy(update={"after": ()}),), THIRD)).choice
    assert item is not None and item.reserved_later_usd == 3 * item.p95_usd


def test_items_run_in_rounds_where_not_all_run_at_once() -> None:
    first = Need(stage="first", after=(), setup_s=2.0)

    def shortest_s(**changed: int) -> float:
        question = laptop_question((first, WORK.model_copy(update=changed)), "1")
        found = decide(question.model_copy(update={"deadline_left_s": 1.0}))
        assert found.smallest_deadline_s is not None
        return found.smallest_deadline_s

    assert shortest_s(at_once=4) == shortest_s() < shortest_s(at_once=3) == shortest_s(at_once=2)
    assert shortest_s(at_once=2) < shortest_s(at_once=1)


def test_a_loop_that_is_too_dear_is_refused_with_the_number_of_items_that_fit() -> None:
    needs = needs_of_item((WORK.model_copy(update={"after": ()}), JOINED), THIRD)
    enough = decided(*needs, budget_usd="0.000001").smallest_budget_usd
    assert enough is not None
    for budget_usd, fit in ((enough - Decimal("0.000001"), 3), (enough / 2, 1), (enough / 100, 0)):
        found = decided(*needs, budget_usd=f"{budget_usd:.6f}")
        assert found.choice is None and found.fitting_items == fit
        of_all = "of the 4 items of work that are left"
        text = f"or fewer items: {of_all}, {fit} fit" if fit else f"; {of_all}, none fits"
        assert refusal_head(found).endswith(text), refusal_head(found)
        assert replay(record_bytes(found)).verdict == "same"
    assert decided(*needs, budget_usd=str(enough)).fitting_items is None
