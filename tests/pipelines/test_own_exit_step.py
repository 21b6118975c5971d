"""A pipeline whose author has an exit step: the routed part is a nested pipeline that Shoestring settles."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import dsl
from local_runs import run_few

from shoestring.core.types import Need
from shoestring.pipelines.kubeflow import write
from shoestring.pipelines.routed import RunParameters, routed, settle_step

STAGES = (Need(stage="work", setup_s=1.0),)


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def work(text: str) -> str:
    if text == "fail":
        raise ValueError("it failed")
    return text


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def notify(path: str, status: dsl.PipelineTaskFinalStatus):  # type: ignore[no-untyped-def]
    from pathlib import Path

    Path(path).write_text(f"{status.pipeline_task_name} {status.state}")


@dsl.pipeline(name="routed-part")
def routed_part(recipe: str, run_id: str, world: str, text: str) -> None:
    run = RunParameters(world, run_id, recipe, budget_usd="", deadline_s=0.0, seed=0)
    with dsl.ExitHandler(settle_step(run), name="spend"):
        routed(work, STAGES, run, text=text)


@dsl.pipeline(name="notified")
def notified(recipe: str, run_id: str, world: str, text: str, path: str) -> None:
    with dsl.ExitHandler(notify(path=path), name="theirs"):
        routed_part(recipe=recipe, run_id=run_id, world=world, text=text)


def test_their_status_is_that_of_all_that_is_routed_and_not_of_the_exit_step(tmp_path: Path) -> None:
    spec: dict[str, Any] = next(yaml.safe_load_all(write(notified, tmp_path / "notified.yaml").read_text()))
    theirs = spec["root"]["dag"]["tasks"]["notify"]
    (handler,) = theirs["dependentTasks"]
    assert theirs["triggerPolicy"]["strategy"] == "ALL_UPSTREAM_TASKS_COMPLETED"
    assert theirs["inputs"]["parameters"]["status"]["taskFinalStatus"]["producerTask"] == handler
    within = spec["components"][spec["root"]["dag"]["tasks"][handler]["componentRef"]["name"]]["dag"]["tasks"]
    assert list(within) == ["routed-part"]


@pytest.mark.slow
@pytest.mark.parametrize(("text", "state"), [("rows", "SUCCEEDED"), ("fail", "FAILED")])
def test_the_exit_step_of_shoestring_has_settled_when_theirs_begins(
    laptop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, state: str
) -> None:
    path = tmp_path / "status"
    run = run_few(notified, laptop, tmp_path, monkeypatch, text=text, path=str(path))
    assert run.succeeded == (state == "SUCCEEDED"), run.log
    assert path.read_text() == f"exit-handler-1 {state}"
    assert run.summary.status == ("done" if run.succeeded else "failed"), run.summary.reason
