"""A router decides after everything that its stage reads or comes after is there, on both engines."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from documented import blocks
from google.protobuf.json_format import MessageToDict
from kfp import dsl

from shoestring.components.ingest import ingest
from shoestring.components.preprocess import preprocess
from shoestring.core.errors import UsageError
from shoestring.core.types import Need
from shoestring.pipelines.argo import workflow_template
from shoestring.pipelines.routed import RunParameters, own_stage, routed, settle_step, stages_from
from shoestring.pipelines.train import CHAIN, train_pipeline
from shoestring.stages import ingest as some_module

RUN = RunParameters(world="", run_id="", recipe="", budget_usd="", deadline_s=0.0, seed=0)
ORIGIN = own_stage(some_module)
STAGES = (
    CHAIN[0],
    Need(stage="shallow", after=("ingest",)),
    Need(stage="deep", after=("ingest",)),
    Need(stage="compare", after=("shallow", "deep")),
)


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def own(world: str, run_id: str, job_id: str, decision_key: str, origin: str, data: str) -> str:
    """An author's own stage."""
    return data


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def echo(text: str) -> str:
    """The component of another author."""
    return text


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def join(parts: list) -> str:  # type: ignore[type-arg]
    """The component of another author, which reads a list."""
    return str(parts)


def compiled(body: Callable[[Any], object]) -> Any:
    """Return a pipeline whose body gets the key of what its first stage wrote, and the first stage's task."""

    @dsl.pipeline(name="tested")
    def tested(flag: str = "") -> None:
        with dsl.ExitHandler(settle_step(RUN), name="spend"):
            body(routed(ingest, STAGES, RUN))

    return tested


def key(task: Any) -> Any:
    return task.outputs["Output"]


def waits(pipeline: Any) -> dict[str, set[str]]:
    """Return what each task of a compiled pipeline waits for, by the names that Kubeflow shows."""
    spec = MessageToDict(pipeline.pipeline_spec)
    dags = [spec["root"]["dag"], *(each["dag"] for each in spec["components"].values() if "dag" in each)]
    tasks = {name: task for dag in dags for name, task in dag["tasks"].items()}
    shown = {name: task["taskInfo"]["name"] for name, task in tasks.items()}
    return {
        shown[name]: {shown[each] for each in task.get("dependentTasks", [])} for name, task in tasks.items()
    }


def argo_waits(pipeline: Any) -> dict[str, set[str]]:
    """Return what each pair of route and stage waits for in the WorkflowTemplate of a pipeline."""
    templates = {each["name"]: each for each in workflow_template(pipeline)["spec"]["templates"]}
    return {
        task["name"]: set(task["depends"].split(" && "))
        for task in templates["run"]["dag"]["tasks"]
        if task["template"] == f"{task['name']}-routed"
    }


def test_each_router_of_the_training_pipeline_waits_for_what_its_stage_reads() -> None:
    reads = {"preprocess": {"ingest"}, "train": {"preprocess"}, "evaluate": {"preprocess", "train"}}
    found = waits(train_pipeline)
    assert {stage: found[f"route {stage}"] for stage in reads} == reads
    assert argo_waits(train_pipeline) == {"ingest": {"approve"}} | reads


def test_the_pages_router_of_the_comparison_waits_for_both_branches(tmp_path: Path) -> None:
    (text,) = (each.text for each in blocks() if each.text.startswith("# dedupe_rows/forked.py"))
    (tmp_path / "forked.py").write_text(text)
    spec = importlib.util.spec_from_file_location("forked", tmp_path / "forked.py")
    assert spec is not None
    assert spec.loader is not None
    forked = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(forked)
    found = waits(forked.pipeline)
    assert found["route compare"] == {"ingest", "shallow", "deep"}
    assert found["route shallow"] == found["route deep"] == {"ingest"}


def test_on_both_engines_the_router_of_a_comparison_waits_for_both_branches() -> None:
    def body(raw: Any) -> None:
        for stage in ("shallow", "deep", "compare"):
            # Only the Need says that compare comes after the branches.
            routed(own, stages_from(STAGES, stage), RUN, upstream=key(raw), data=key(raw), origin=ORIGIN)

    pipeline = compiled(body)
    assert waits(pipeline)["route compare"] == {"ingest", "shallow", "deep"}
    assert argo_waits(pipeline)["compare"] == {"ingest", "shallow", "deep"}
    assert argo_waits(pipeline)["deep"] == {"ingest"}


def test_a_need_without_after_comes_after_the_stage_before_it() -> None:
    chain = (*STAGES[:2], Need(stage="notify"))

    def body(raw: Any) -> None:
        routed(own, chain[1:], RUN, upstream=key(raw), data=key(raw), origin=ORIGIN)
        routed(own, chain[2:], RUN, upstream=key(raw), data=key(raw), origin=ORIGIN)

    pipeline = compiled(body)
    assert waits(pipeline)["route notify"] == {"ingest", "shallow"}
    assert argo_waits(pipeline)["notify"] == {"ingest", "shallow"}


def test_a_router_waits_for_the_producers_of_every_kind_of_input() -> None:
    def body(raw: Any) -> None:
        one, two, three, four = (echo(text=name).set_display_name(name) for name in "abcd")
        with dsl.ParallelFor(["x", "y"]) as item:
            looped = dsl.Collected(echo(text=item).output)
        parts, needs = [one.output, f"is {two.output}"], stages_from(STAGES, "shallow")
        routed(join, needs, RUN, upstream=key(raw), parts=parts, after=three)
        routed(join, stages_from(STAGES, "deep"), RUN, upstream=key(raw), parts=looped).after(four)

    found = waits(compiled(body))
    assert found["route shallow"] == {"ingest", "a", "b", "c"}
    assert found["route deep"] == {"ingest", "for-loop-3", "d"}
    assert found["deep"] == {"route deep", "for-loop-3", "d"}


def test_a_router_waits_for_the_branches_of_a_condition() -> None:
    chain = (CHAIN[0], Need(stage="fit"), Need(stage="compare", after=("fit",)))

    def body(raw: Any) -> None:
        with dsl.If(key(raw) == "a"):
            first = routed(echo, chain[1:], RUN, upstream=key(raw), text=key(raw))
        with dsl.Else():
            second = routed(echo, chain[1:], RUN, upstream=key(raw), text=key(raw))
        either = dsl.OneOf(first.output, second.output)
        routed(echo, chain[2:], RUN, upstream=key(raw), text=either)

    assert waits(compiled(body))["route compare"] == {"ingest", "condition-branches-2"}


def test_a_stage_in_a_condition_that_the_router_cannot_wait_for_is_refused() -> None:
    def body(raw: Any) -> None:
        with dsl.If(key(raw) == "a"):
            routed(echo, stages_from(STAGES, "shallow"), RUN, upstream=key(raw), text="x")
        routed(echo, (Need(stage="compare", after=("shallow",)),), RUN, upstream=key(raw), text="x")

    with pytest.raises(UsageError, match=r"after shallow, which is inside a dsl.If: .* in dsl.OneOf"):
        compiled(body)


def test_after_reaches_the_router_on_both_engines() -> None:
    for by_argument in (True, False):

        def body(raw: Any, by_argument: bool = by_argument) -> None:
            first = routed(
                own, stages_from(STAGES, "shallow"), RUN, upstream=key(raw), data=key(raw), origin=ORIGIN
            )
            needs, given = stages_from(STAGES, "deep"), {"after": [first]} if by_argument else {}
            second = routed(own, needs, RUN, upstream=key(raw), data=key(raw), origin=ORIGIN, **given)
            if not by_argument:
                assert second.after(first) is second

        pipeline = compiled(body)
        assert waits(pipeline)["route deep"] == {"ingest", "shallow"}
        assert argo_waits(pipeline)["deep"] == {"ingest", "shallow"}


def test_argo_refuses_a_task_that_is_not_routed() -> None:
    def body(raw: Any) -> None:
        routed(
            own, stages_from(STAGES, "shallow"), RUN, upstream=key(raw), data=key(raw), origin=ORIGIN
        ).after(echo(text="x"))

    with pytest.raises(UsageError, match="echo is not routed, and Argo runs routed stages only"):
        workflow_template(compiled(body))


def test_a_stage_that_reads_data_without_upstream_is_refused_and_told_what_to_type() -> None:
    def without(raw: Any) -> None:
        routed(preprocess, CHAIN[1:], RUN, data=key(raw))

    told = r'preprocess reads what ingest returns.* upstream=X.outputs\["Output"\], .* routed\(\) of ingest'
    with pytest.raises(UsageError, match=told):
        compiled(without)
    compiled(lambda raw: routed(preprocess, CHAIN[1:], RUN, upstream=key(raw), data=key(raw)))


def test_data_that_passed_through_other_components_has_an_upstream_too() -> None:
    def body(raw: Any) -> None:
        passed = routed(echo, stages_from(STAGES, "shallow"), RUN, upstream=key(raw), text=key(raw))
        routed(echo, stages_from(STAGES, "deep"), RUN, text=echo(text=passed.output).output)

    with pytest.raises(UsageError, match=r"deep reads what echo-2 returns.* of ingest returned"):
        compiled(body)


def test_data_from_one_of_two_branches_has_an_upstream_too() -> None:
    needs = stages_from(STAGES, "shallow")

    def body(raw: Any) -> None:
        with dsl.If(key(raw) == "a"):
            first = routed(own, needs, RUN, upstream=key(raw), data=key(raw), origin=ORIGIN)
        with dsl.Else():
            second = routed(own, needs, RUN, upstream=key(raw), data=key(raw), origin=ORIGIN)
        routed(echo, stages_from(STAGES, "deep"), RUN, text=dsl.OneOf(key(first), key(second)))

    with pytest.raises(
        UsageError, match=r"deep reads what condition-branches-2 returns.* of shallow returned"
    ):
        compiled(body)


def test_the_first_stage_reads_from_other_components_without_upstream() -> None:
    @dsl.pipeline(name="tested")
    def tested() -> None:
        with dsl.ExitHandler(settle_step(RUN), name="spend"):
            given = echo(text="x").set_display_name("download")
            routed(echo, (Need(stage="first"),), RUN, text=given.output)

    assert waits(tested)["route first"] == {"download"}


def test_a_stage_after_one_that_is_not_routed_is_refused() -> None:
    with pytest.raises(UsageError, match=r"compare comes after shallow, which .* not routed before it: call"):
        compiled(lambda raw: routed(echo, stages_from(STAGES, "compare"), RUN, upstream=key(raw), text="x"))


def test_a_stage_outside_a_pipeline_is_refused() -> None:
    with pytest.raises(UsageError, match=r"routed\(\) of ingest is not in a pipeline"):
        routed(ingest, CHAIN, RUN)
