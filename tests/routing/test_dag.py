"""Dependencies between stages: which are valid, and which stages a router considers."""

from __future__ import annotations

import pytest
from dag_cases import DIAMOND
from pydantic import ValidationError
from routing_cases import EVALUATE, INGEST, PREPROCESS, TRAIN, laptop_question

from shoestring.routing.dag import FIRST_SOURCE, build_dag, stages_from, without_stages


@pytest.mark.parametrize(
    ("after", "sentence"),
    [
        ({"left": ("left",)}, "left comes after itself"),
        ({"left": ("join",)}, "the stages wait for each other in a cycle: left after join after left"),
        (
            {"left": ("ingest", "right")},
            "left comes after right, which is listed later: list right first",
        ),
        (
            {"join": ("left", "fit")},
            "join comes after fit, which does not exist: there is ingest, left, right, join",
        ),
    ],
)
def test_invalid_dependencies_are_refused(after: dict[str, tuple[str, ...]], sentence: str) -> None:
    needs = tuple(need.model_copy(update={"after": after.get(need.stage, need.after)}) for need in DIAMOND)
    with pytest.raises(ValidationError, match=sentence):
        laptop_question(needs)


def test_more_data_sets_than_the_planner_allows_are_refused() -> None:
    roots = tuple(INGEST.model_copy(update={"stage": f"ingest-{number}", "after": ()}) for number in range(7))
    names = tuple(need.stage for need in roots)
    with pytest.raises(ValidationError, match="join reads 5 data sets, and the planner allows 4"):
        laptop_question((*roots[:5], EVALUATE.model_copy(update={"stage": "join", "after": names[:5]})))
    crossed = [
        EVALUATE.model_copy(update={"stage": f"join-{one}", "after": (names[one], names[(one + 3) % 7])})
        for one in range(7)
    ]
    last = EVALUATE.model_copy(update={"after": tuple(need.stage for need in crossed)})
    with pytest.raises(
        ValidationError,
        match=r"reads \d data sets|data sets are open at once, and the planner allows 6",
    ):
        laptop_question((*roots, *crossed, last))


def test_two_stages_of_the_same_name_are_refused_where_stages_name_dependencies() -> None:
    with pytest.raises(ValidationError, match="two stages have the same name"):
        laptop_question((*DIAMOND, DIAMOND[1]))


def test_a_router_considers_all_stages_that_do_not_come_before_its_own() -> None:
    assert [need.stage for need in stages_from(DIAMOND, "ingest")] == ["ingest", "left", "right", "join"]
    assert [need.stage for need in stages_from(DIAMOND, "right")] == ["right", "left", "join"]
    assert [need.stage for need in stages_from(DIAMOND, "join")] == ["join"]
    chain = (INGEST, PREPROCESS, TRAIN, EVALUATE)
    assert [stages_from(chain, need.stage) for need in chain] == [chain[place:] for place in range(4)]


def test_a_concurrent_stage_may_wait_for_one_that_was_routed_before_this_one_and_reads_as_much() -> None:
    other = TRAIN.model_copy(update={"stage": "other", "after": ("ingest",)})
    for after in (None, ("preprocess",)):
        needs = (INGEST, PREPROCESS, EVALUATE.model_copy(update={"after": after}), other)
        found = stages_from(needs, "evaluate")
        assert [(need.stage, need.after) for need in found] == [
            ("evaluate", ("preprocess",)),
            ("other", ("ingest",)),
        ]
        dag = build_dag(found)
        assert dag.before == ((), ()) and dag.sources == ((FIRST_SOURCE,), (FIRST_SOURCE,))


def test_a_stage_with_an_implicit_dependency_names_it_when_the_order_changes() -> None:
    needs = (
        INGEST,
        PREPROCESS,
        TRAIN.model_copy(update={"stage": "other", "after": ("preprocess",)}),
        EVALUATE,
    )
    assert [(need.stage, need.after) for need in stages_from(needs, "other")] == [
        ("other", ("preprocess",)),
        ("evaluate", None),
    ]
    assert [(need.stage, need.after) for need in without_stages(needs, {"other"})][-1] == (
        "evaluate",
        ("other",),
    )
    assert build_dag(stages_from(needs, "other")).is_chain
