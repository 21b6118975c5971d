"""Stages in branches that a pipeline does not take, on one machine: the run is done without them."""

from pathlib import Path
from typing import NamedTuple

import pytest
from kfp import dsl
from local_runs import run_few

from shoestring.core.types import Need
from shoestring.pipelines.routed import RunParameters, routed, settle_step, stages_from

NAMES = ("small", "never", "large", "tiny", "joined")
STAGES = (
    Need(stage="first", after=(), setup_s=1.0),
    Need(stage="never", branch="none/taken", after=("first",), setup_s=1.0),
    Need(stage="small", branch="size/small", after=("first",), setup_s=1.0),
    Need(stage="large", branch="size/large", after=("first",), setup_s=5.0),
    Need(stage="tiny", after=("first",), setup_s=1.0),
    Need(stage="joined", after=("small", "large"), setup_s=1.0),
)


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def count(text: str) -> NamedTuple("Counted", [("size", str), ("rows", int)]):  # type: ignore[valid-type]
    from typing import NamedTuple

    return NamedTuple("Counted", [("size", str), ("rows", int)])(text, len(text))


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def work(text: str) -> str:
    if text == "fail":
        raise ValueError("it failed")
    return text


@dsl.pipeline(name="conditions")
def conditions(recipe: str, run_id: str, world: str, size: str) -> None:
    """Conditions on outputs with a name: alone, with an `Else` and on a number. One stage reads the branch
    that was taken.
    """
    run = RunParameters(world, run_id, recipe, budget_usd="", deadline_s=0.0, seed=0)
    with dsl.ExitHandler(settle_step(run), name="spend"):
        first = routed(count, stages_from(STAGES, "first"), run, text=size)
        with dsl.If(first.outputs["size"] == "never"):
            routed(work, stages_from(STAGES, "never"), run, text="never")
        with dsl.If(first.outputs["size"] == "small"):
            small = routed(work, stages_from(STAGES, "small"), run, text="small")
        with dsl.Else():
            large = routed(work, stages_from(STAGES, "large"), run, text=size)
        with dsl.If(first.outputs["rows"] < 5):
            routed(work, stages_from(STAGES, "tiny"), run, text="tiny")
        either = dsl.OneOf(small.output, large.output)
        routed(work, stages_from(STAGES, "joined"), run, text=either)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "not_taken"),
    [("small", ["never", "large", "tiny"]), ("mini", ["small", "never"])],
)
def test_a_run_is_done_without_the_branches_that_it_did_not_take(
    laptop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: str, not_taken: list[str]
) -> None:
    run = run_few(conditions, laptop, tmp_path, monkeypatch, size=size)
    summary = run.summary
    assert run.succeeded, run.log
    assert (summary.status, sorted(summary.not_taken)) == ("done", sorted(not_taken)), summary.reason
    assert {stage.name for stage in summary.stages} == {"first", *NAMES} - {*not_taken}


@pytest.mark.slow
def test_a_run_whose_branch_fails_is_failed(
    laptop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_few(conditions, laptop, tmp_path, monkeypatch, size="fail")
    summary = run.summary
    assert not run.succeeded, run.log
    assert summary.status == "failed" and summary.not_taken == ()
    assert summary.reason == "large failed: exit code 1: ValueError: it failed"
