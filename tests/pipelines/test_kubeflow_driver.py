"""The driver of the scenarios for Kubeflow against a server process: uploads, versions, arguments, waiting,
schedules, terminating and cleaning up.
"""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml
from engine_scenarios.argo_engine import LACKS
from engine_scenarios.engine import Engine, Job, Place
from engine_scenarios.kubeflow_engine import KubeflowEngine, KubeflowServer
from engine_scenarios.own_package import AUTHORED, forked_pipeline, strangers_pipeline, write_package
from engine_scenarios.pod_history import PodHistory
from engine_scenarios.preflight import RIGHTS, missing, report
from engine_scenarios.scenarios import SCENARIOS
from kfp_uploads import Serve

from shoestring.routing.placement import KUBEFLOW_RUN_LABEL

NOWHERE = Place("", "kubeflow")


def engine_of(host: str, folder: Path, **more: str) -> KubeflowEngine:
    server = KubeflowServer(host, NOWHERE, **more)
    return KubeflowEngine(server, PodHistory(folder, KUBEFLOW_RUN_LABEL), folder)


@pytest.mark.slow
def test_the_driver_uploads_runs_and_waits_and_the_same_pipeline_is_one_version(
    serve: Serve, tmp_path: Path
) -> None:
    server = serve("--states", "RUNNING,SUCCEEDED")
    engine = engine_of(server.host, tmp_path, registry="registry.example.com/ml")
    run = engine.start(Job("flights"))
    ended = run.wait()
    assert (run.engine_id, run.run_id, ended.code) == ("run-1", "run-1", 0), ended.err
    assert engine.state("run-1") == "succeeded"
    again = engine.start(Job("flights", budget_usd="0.004"), resume="run-1")
    assert (again.engine_id, again.run_id, again.wait().code) == ("run-2", "run-1", 0)
    sent = server.requests()
    (version,) = [each for each in sent if each["path"].endswith("upload_version")]
    text = yaml.safe_dump_all(version["body"])
    assert "registry.example.com/ml/shoestring-base" in text and "ghcr.io" not in text
    first, second = (
        each["body"]["runtime_config"]["parameters"] for each in sent if each["path"][-5:] == "/runs"
    )
    # The main job has the recipe's own budget and deadline, and Kubeflow's id.
    assert set(first) == {"recipe", "budget_usd"}
    assert (second["run_id"], second["budget_usd"]) == ("run-1", "0.004000")


@pytest.mark.slow
def test_a_failed_and_a_terminated_run_end_as_failed_and_can_be_retried(serve: Serve, tmp_path: Path) -> None:
    engine = engine_of(serve("--states", "RUNNING,RUNNING,FAILED").host, tmp_path)
    run = engine.start(Job("flights", strangers_pipeline("broken")))
    # An author's pipeline is run under an id of its own.
    assert run.run_id.startswith(engine.suite)
    ended = run.wait()
    assert (ended.code, ended.summary, engine.state(run.engine_id)) == (1, None, "failed")
    engine.retry(run.engine_id)
    assert engine.state(run.engine_id) == "running"
    waits = engine_of(serve("--states", "RUNNING").host, tmp_path)
    terminated = waits.start(Job("flights"))
    assert waits.state(terminated.engine_id) == "running"
    waits.terminate(terminated.engine_id)
    assert terminated.wait().code == 1
    assert waits.state(terminated.engine_id) == "failed"


@pytest.mark.slow
def test_cleaning_up_deletes_what_the_driver_made_and_nothing_else(serve: Serve, tmp_path: Path) -> None:
    server = serve()
    assert server.upload("--name", "theirs", "--run", "--recipe", "flights").code == 0
    engine = engine_of(server.host, tmp_path)
    schedule = engine.schedule(Job("flights"))
    assert engine.scheduled_runs(schedule) == []
    engine.unschedule(schedule)
    engine.start(Job("flights")).wait()
    engine.clean_up()
    deleted = [each["path"].removeprefix("/apis/v2beta1/") for each in server.requests("DELETE")]
    assert deleted == [
        f"recurringruns/{schedule}",
        "runs/run-2",
        "experiments/experiment-2",
        "pipelines/pipeline-2/versions/pipeline_version-2",
        "pipelines/pipeline-2",
    ]
    engine.clean_up()
    assert len(server.requests("DELETE")) == len(deleted)


@pytest.mark.slow
def test_all_pipelines_of_the_scenarios_compile_for_kubeflow(serve: Serve, tmp_path: Path) -> None:
    engine = engine_of(serve().host, tmp_path, registry="registry.example.com/ml")
    package = write_package(tmp_path, "registry.example.com/ml")
    text = engine.compiled(forked_pipeline(package)).read_text()
    assert "registry.example.com/ml/dedupe_rows:0.1.0" in text
    assert (package / "Dockerfile").read_text().count("FROM registry.example.com/ml/shoestring-base") == 1
    for name in ("good", "artifacts", "endless"):
        assert engine.compiled(strangers_pipeline(name)).name == f"scenario-{name}.yaml"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("recurring", "schedules no runs on Argo"), ("component_with_artifacts", "Argo stores no artifacts")],
)
def test_a_scenario_names_what_an_engine_lacks(name: str, reason: str, serve: Serve, tmp_path: Path) -> None:
    engine: Engine = engine_of(serve().host, tmp_path)
    engine.lacks = LACKS
    (scenario,) = (each for each in SCENARIOS if each.__name__ == name)
    with pytest.raises(pytest.skip.Exception, match=reason):
        scenario(engine, AUTHORED)


def test_the_preflight_lists_all_that_is_missing_in_one_message(tmp_path: Path) -> None:
    """A kubectl that finds nothing and grants nothing, and no server."""
    kubectl = tmp_path / "kubectl"
    kubectl.write_text("#!/bin/sh\necho no\nexit 1\n")
    kubectl.chmod(kubectl.stat().st_mode | stat.S_IEXEC)
    place = Place("no-such-context", "kubeflow", str(kubectl))
    server = KubeflowServer("http://127.0.0.1:9", place)
    message = report(server, missing(server))
    for each in ("the API server", "ConfigMap shoestring-world", "Secret shoestring-s3", "shoestring-reaper"):
        assert message.count(each) >= 1, each
    for verb, what in RIGHTS:
        assert f"the right to {verb} {what}, for you" in message
    for each in ("pipeline-runner", "node pool", "shoestring-train:", "dedupe_rows:0.1.0"):
        assert each in message, each
