"""Pipelines of commands: a job instead of a recipe, and users' containers with and without a meter."""

import importlib
import json
import signal
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from argo_by_hand import ArgoByHand
from commands import shoestring
from engine_scenarios.own_package import AUTHORED
from kfp import dsl

from shoestring.components.ingest import ingest
from shoestring.core import store_layout
from shoestring.core.errors import UsageError
from shoestring.core.receipt import Receipt
from shoestring.core.types import Need
from shoestring.data.job import Job
from shoestring.data.run_records import open_run, read_record
from shoestring.pipelines import argo
from shoestring.pipelines.kubeflow import write
from shoestring.pipelines.local_runner import run_locally
from shoestring.pipelines.routed import RunParameters, routed, settle_step
from shoestring.reporting.run_reader import read_run_story
from shoestring.reporting.summary import summarise_run
from shoestring.runtime.open_world import open_world
from shoestring.runtime.settlement.settle import finish
from shoestring.stages import ingest as ingest_stage
from shoestring.stages.command import command_need

JOB = Job(name="digits", budget_usd=Decimal("0.05"))
FIT = """\
import json, os, pathlib, sys, time
files = pathlib.Path(os.environ["SHOESTRING_CHECKPOINTS"])
budget = json.loads(pathlib.Path(os.environ["SHOESTRING_BUDGET"]).read_text())
assert float(budget["usd_left"]) > 0
(files / "count").write_text("1" if not (files / "count").exists() else "2")
while sys.argv[3] == "wait" and (files / "count").read_text() == "1": time.sleep(0.05)
pathlib.Path(sys.argv[2]).write_text(sys.argv[1])
"""


@dsl.container_component
def prepare(rows: int, where: dsl.OutputPath(str)):  # type: ignore[no-untyped-def,valid-type]
    return dsl.ContainerSpec("python:3.11", ["sh", "-c", 'echo "0.$0" > "$1"'], [rows, where])


@dsl.container_component
def fit(data: str, how: str, accuracy: dsl.OutputPath(str)):  # type: ignore[no-untyped-def,valid-type]
    return dsl.ContainerSpec("me/fit:1", [sys.executable, "-c", FIT], [data, accuracy, how])


@dsl.container_component
def entry_point_of_its_image(data: str):  # type: ignore[no-untyped-def]
    return dsl.ContainerSpec("me/fit:1")


@dsl.container_component
def with_run_id(run_id: str):  # type: ignore[no-untyped-def]
    return dsl.ContainerSpec("me/fit:1", ["echo"], [run_id])


@dsl.component(base_image="python:3.11")
def in_python(text: str) -> str:
    return text


STAGES = (Need(stage="prepare", setup_s=2.0), command_need("fit", memory_gb=0.2, grace_s=2.5))


def pipeline_of(how: str) -> Any:
    @dsl.pipeline(name="digits")
    def pipeline(
        run_id: str = "", world: str = "", budget_usd: str = "", deadline_s: float = 0.0, seed: int = -1
    ) -> None:
        run = RunParameters(world, run_id, JOB, budget_usd, deadline_s, seed)
        with dsl.ExitHandler(settle_step(run), name="spend"):
            where = routed(prepare, STAGES, run, rows=91).outputs["where"]
            fitted = routed(fit, STAGES[1:], run, metered=True, data=where, how=how)
            fitted.set_env_variable("MODE", "fast")

    return pipeline


def by_hand(laptop: Path, folder: Path, how: str) -> ArgoByHand:
    # The world's store is that of all tests.
    return ArgoByHand(argo.workflow_template(pipeline_of(how)), laptop, folder.name, folder)


def test_kubeflow_gets_the_command_behind_its_meter_in_its_own_image(tmp_path: Path) -> None:
    spec, platform = yaml.safe_load_all(write(pipeline_of("end"), tmp_path / "digits.yaml").read_text())
    container = spec["deploymentSpec"]["executors"]["exec-fit"]["container"]
    assert (container["image"], container["command"]) == ("me/fit:1", ["shoestring"])
    cut = container["args"].index("--")
    assert container["args"][cut + 1 : cut + 3] == [sys.executable, "-c"]
    assert "accuracy={{$.outputs.parameters['accuracy'].output_file}}" in container["args"][:cut]
    assert container["args"][container["args"].index("--grace") + 1] == "2.5"
    assert container["env"] == [{"name": "MODE", "value": "fast"}]
    assert "recipe" not in spec["root"]["inputDefinitions"]["parameters"]
    mounts = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["exec-fit"]
    assert {each["configMapName"] for each in mounts["configMapAsVolume"]} >= {"shoestring-world"}
    theirs = spec["deploymentSpec"]["executors"]["exec-prepare"]["container"]
    assert theirs["command"][0] == "sh"


def test_argo_retries_only_the_command_with_a_meter_and_gives_it_the_world() -> None:
    document = argo.workflow_template(pipeline_of("end"))
    templates = {each["name"]: each for each in document["spec"]["templates"]}
    assert "retryStrategy" in templates["fit-routed"] and "retryStrategy" not in templates["prepare-routed"]
    names = [each["name"] for each in templates["fit"]["container"]["env"]]
    assert {"AWS_SECRET_ACCESS_KEY", "SHOESTRING_POD_UID", "MODE"} <= {*names}
    assert "env" not in templates["prepare"]["container"] or not templates["prepare"]["container"]["env"]
    given = {each["name"]: each.get("value") for each in document["spec"]["arguments"]["parameters"]}
    assert given["recipe"] == ""


def test_a_command_reads_what_one_with_a_meter_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(AUTHORED))
    templates = argo.workflow_template(importlib.import_module("commanded").commands)["spec"]["templates"]
    tasks = {
        task["name"]: task for each in templates if each["name"] == "run" for task in each["dag"]["tasks"]
    }
    given = {each["name"]: each["value"] for each in tasks["ends"]["arguments"]["parameters"]}
    assert given["input-number"] == "{{tasks.counts.outputs.parameters.number}}"
    assert tasks["ends"]["depends"] == "begins && counts"


@pytest.mark.slow
def test_commands_run_as_on_argo_and_pass_on_their_outputs(laptop: Path, tmp_path: Path) -> None:
    hand = by_hand(laptop, tmp_path, "end")
    for stage in ("prepare", "fit"):
        assert (ran := hand.route(stage)).code == 0, ran.err
        if stage == "prepare":
            assert "nothing in its pod meters it" in ran.out
        else:
            assert hand.patch["terminationGracePeriodSeconds"] == 23
        assert (ran := hand.run(hand.stage_line(stage))).code == 0, ran.err
        hand.finish(stage)
    assert hand.outputs == {"prepare": {"where": "0.91"}, "fit": {"accuracy": "0.91"}}
    world = open_world(str(laptop))
    finish(world, hand.run_id, "", "")
    record = open_run(world.store, hand.run_id).record
    assert record.job.name == "digits" and record.recipe is None and record.command is not None
    assert record.command.text == """sh -c 'echo "0.$0" > "$1"' '{rows}' '{where}'"""
    summary = summarise_run(read_run_story(world.store, hand.run_id))
    assert summary.status == "done" and summary.quality == {"accuracy": 0.91}
    assert [stage.name for stage in summary.stages] == ["prepare", "fit"]
    assert 0 < summary.spent_usd <= JOB.budget_usd


@pytest.mark.slow
@pytest.mark.parametrize("all_at_once", [False, True])
def test_a_command_that_is_ended_continues_in_its_next_attempt(
    laptop: Path, tmp_path: Path, all_at_once: bool
) -> None:
    """Also where the signal reaches its supervisor and the command itself at the same time."""
    hand = by_hand(laptop, tmp_path, "wait")
    hand.outputs["prepare"] = {"where": "0.5"}
    assert hand.route("fit").code == 0
    store = open_world(str(laptop)).store
    process = subprocess.Popen(hand.stage_line("fit"), cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    due_s = time.monotonic() + 60
    while not any(store.list(store_layout.checkpoint_pointer(hand.run_id, "fit"))):
        assert process.poll() is None and time.monotonic() < due_s
        time.sleep(0.1)
    for each in psutil.Process(process.pid).children(recursive=True) if all_at_once else ():
        each.terminate()
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "received SIGTERM" in err and "it resumes from its" in err, err
    assert hand.route("fit").code == 0
    assert (ran := hand.run(hand.stage_line("fit"))).code == 0, ran.err
    hand.finish("fit")
    assert hand.outputs["fit"] == {"accuracy": "0.5"}
    keys = [store_layout.receipt(hand.run_id, f"fit-{number}") for number in (1, 2)]
    first, second = (read_record(store, key, Receipt) for key in keys)
    assert (first.status, second.status) == ("stopped", "done")
    # The pod of an attempt that is done, created once more, has its outputs without running it again.
    (tmp_path / "fit" / "accuracy").unlink()
    assert hand.run(hand.stage_line("fit")).code == 0
    hand.finish("fit")
    assert hand.outputs["fit"] == {"accuracy": "0.5"}


def test_a_command_without_its_output_fails_with_the_file_that_it_has_to_write(
    laptop: Path, tmp_path: Path
) -> None:
    hand = by_hand(laptop, tmp_path, "end")
    hand.outputs["prepare"] = {"where": "0.5"}
    assert hand.route("fit").code == 0
    line = hand.stage_line("fit")
    cut = line.index("--")
    assert (ran := hand.run([*line[: cut + 1], "true"])).code == 1
    assert f"it has to write the file {tmp_path / 'fit' / 'accuracy'}" in ran.err


def routed_alone(component: Any, need: Need, recipe: Any = JOB, **inputs: Any) -> Any:
    @dsl.pipeline(name="alone")
    def alone() -> None:
        run = RunParameters("", "", recipe, "", 0.0, -1)
        with dsl.ExitHandler(settle_step(run), name="spend"):
            routed(component, (need,), run, **inputs)

    return alone


@pytest.mark.parametrize(
    ("component", "need", "more", "why"),
    [
        (in_python, command_need("fit"), {"metered": True, "text": "a"}, "make it|dsl.container_component"),
        (entry_point_of_its_image, command_need("fit"), {"metered": True, "data": "a"}, "name one in its"),
        (with_run_id, command_need("fit"), {"metered": True, "run_id": "a"}, "rename the input"),
        (prepare, Need(stage="train"), {"rows": 1}, "one of Shoestring's"),
        (ingest, ingest_stage.NEED, {}, "reads a recipe"),
        (
            prepare,
            Need(stage="prepare"),
            {"rows": 1, "metered": True, "recipe": "{}"},
            "of commands",
        ),
    ],
)
def test_what_no_pipeline_of_commands_can_run_is_refused_with_a_sentence(
    component: Any, need: Need, more: dict[str, Any], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        routed_alone(component, need, **more)


def test_the_local_runner_names_exec_for_a_container(laptop: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="shoestring exec"):
        run_locally({"world": str(laptop)}, tmp_path / "log.txt", pipeline_of("end"))


def test_a_recipe_that_is_passed_to_commands_is_refused(laptop: Path, tmp_path: Path) -> None:
    hand = by_hand(laptop, tmp_path, "end")
    hand.values["workflow.parameters.recipe"] = json.dumps({"name": "x"})
    ran = hand.route("prepare")
    assert ran.code == 2 and "leave `recipe` empty" in ran.err


@pytest.mark.parametrize("gpu", [False, True])
def test_a_command_with_seconds_is_planned_with_them(gpu: bool) -> None:
    need = command_need("fit", seconds=60.0, gpu=gpu, grace_s=4.0)
    assert (need.elastic, need.by_time, need.setup_s, need.checkpoint_s) == (False, False, 60.0, 5.0)
    assert need.gpu == ("must" if gpu else "no")


@pytest.mark.parametrize(
    ("more", "why"),
    [(("--recipe", "flights"), "takes no recipe"), (("--budget", "0.01"), "127.0.0.1:9")],
)
def test_an_upload_of_commands_takes_a_budget_and_no_recipe(
    tmp_path: Path, more: tuple[str, ...], why: str
) -> None:
    file = write(pipeline_of("end"), tmp_path / "digits.yaml")
    ran = shoestring("upload", "--host", "http://127.0.0.1:9", "--file", file, "--run", *more)
    assert ran.code in (1, 2) and why in ran.err
