"""The branches that needs name, and the conditions of the pipeline that make them exclude each other."""

from pathlib import Path
from typing import Any

import pytest
from kfp import dsl

from shoestring.core.errors import UsageError
from shoestring.core.types import Need
from shoestring.pipelines.kubeflow import write
from shoestring.pipelines.routed import RunParameters, routed, settle_step
from shoestring.routing.branches import MAX_WAYS

RUN = RunParameters(world="", run_id="", recipe="", budget_usd="", deadline_s=0.0, seed=0)


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def echo(text: str) -> str:
    return text


def stages(one: str, other: str, third: str = "") -> list[Need]:
    branches = {"first": "", "one": one, "other": other, "third": third}
    return [Need(stage=name, branch=branch, after=()) for name, branch in branches.items()]


def step(needs: list[Need], name: str) -> None:
    routed(echo, [need for need in needs if need.stage == name], RUN, text=name)


def with_else(needs: list[Need]) -> Any:
    """Return a pipeline with `one` and `other` in two branches of a group."""

    @dsl.pipeline(name="grouped")
    def grouped(text: str = "a") -> None:
        with dsl.ExitHandler(settle_step(RUN), name="spend"):
            step(needs, "first")
            with dsl.If(text == "a"):
                step(needs, "one")
            with dsl.Else():
                step(needs, "other")
                with dsl.If(text == "b"):
                    step(needs, "third")

    return grouped


def with_two(needs: list[Need]) -> Any:
    """Return a pipeline with `one` and `other` in conditions of their own, both of which may hold."""

    @dsl.pipeline(name="apart")
    def apart(text: str = "a") -> None:
        with dsl.ExitHandler(settle_step(RUN), name="spend"):
            step(needs, "first")
            with dsl.If(text == "a"):
                step(needs, "one")
            with dsl.If(text == "b"):
                step(needs, "other")

    return apart


def test_branches_that_the_conditions_of_a_pipeline_keep_apart_are_compiled(tmp_path: Path) -> None:
    for at, pipeline in enumerate(
        [
            with_else(stages("size/a", "size/b", "size/b/more/c")),
            with_else(stages("size/a", "", "size/c")),
            with_two(stages("a/a", "b/b")),
            with_two(stages("", "")),
        ]
    ):
        assert write(pipeline, tmp_path / f"{at}.yaml").exists()


def test_branches_of_one_group_that_a_run_may_both_take_are_refused(tmp_path: Path) -> None:
    sentence = (
        "one is in the branch size/a and other in size/b, and one run may take both: put them into dsl.If"
    )
    with pytest.raises(UsageError, match=sentence):
        write(with_two(stages("size/a", "size/b")), tmp_path / "apart.yaml")
    with pytest.raises(UsageError, match="other is in the branch size/b and third in size/c, and one run"):
        write(with_else(stages("size/a", "size/b", "size/c")), tmp_path / "within.yaml")


def test_a_branch_outside_of_a_condition_is_refused(tmp_path: Path) -> None:
    needs = stages("", "")
    needs[0] = needs[0].model_copy(update={"branch": "size/small"})
    with pytest.raises(UsageError, match=r"first is in the branch size/small, and in no dsl.If: leave out"):
        write(with_else(needs), tmp_path / "outside.yaml")


def test_more_ways_than_are_planned_are_refused_when_the_stage_is_routed() -> None:
    needs = [
        Need(stage=f"s{at}-{side}", branch=f"g{at}/{side}", after=()) for at in range(7) for side in "ab"
    ]
    with pytest.raises(UsageError, match=f"echo: the branches after s0-a combine in 64 ways, .* {MAX_WAYS}"):

        @dsl.pipeline(name="many")
        def many() -> None:
            with dsl.ExitHandler(settle_step(RUN), name="spend"):
                routed(echo, needs, RUN, text="a")
