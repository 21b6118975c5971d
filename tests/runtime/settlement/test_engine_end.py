"""A run that has ended on its engine, of which not all stages were routed: a condition did not hold, a task
failed, or that is not known.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from reaper_world import shares_world
from runtime_world import CHAIN, INGEST, FakeCluster, StartedAttempt, attempt_in_pod, begin, run_request

from shoestring.backends.local_tasks import LOCAL_TASKS_VARIABLE, LocalTask, LocalTasks
from shoestring.core.errors import Refused
from shoestring.core.pod_ref import NODE_VARIABLE, WORKFLOW_VARIABLE, ClusterPod
from shoestring.core.record import record_bytes
from shoestring.core.types import Need
from shoestring.data.run_records import read_record
from shoestring.reporting.publish import publish
from shoestring.reporting.summary import RunSummary
from shoestring.runtime.admission.result_keys import StageInputs
from shoestring.runtime.route_step.route import decide_and_reserve
from shoestring.runtime.settlement.settle import exit_step
from shoestring.runtime.supervisor.child import ChildResult
from shoestring.runtime.supervisor.run_stage import settle_and_record
from shoestring.spending.audit.verify import load_anchors, verify

OTHERS = ("preprocess", "train", "evaluate")
NODE = "wf.root.exit-handler-1.onExit.settle.executor(0)"


@pytest.fixture
def began(laptop: Path, flights_slice: Path, tmp_path: Path) -> StartedAttempt:
    """The ingest of a run of four stages, which is done."""
    world = replace(shares_world(laptop, tmp_path), pod=ClusterPod("ns", "7", "route"))
    found = begin(world, run_request(flights_slice, needs=CHAIN))
    settle_and_record(attempt_in_pod(found, "ns.1.ingest"), ChildResult(status="done"))
    assert isinstance(world.cluster, FakeCluster)
    return found


def end(began: StartedAttempt) -> RunSummary:
    """Do the exit step, and return the summary that it leaves."""
    exit_step(began.world, began.run)
    page = publish(began.world.store, "r")
    summary = read_record(began.world.store, "runs/r/summary.json", RunSummary)
    assert ("not taken" in page) == bool(summary.not_taken)
    verify(began.world.store, load_anchors(began.world.store))
    return summary


@pytest.mark.parametrize(
    ("phase", "status", "not_taken", "may_be_done"),
    [
        ("Succeeded", "done", OTHERS, False),
        ("Failed", "stopped", (), False),
        ("Running", "stopped", (), False),
        (None, "stopped", (), True),
        ("", "stopped", (), True),
    ],
)
def test_stages_that_were_not_routed_were_not_taken_where_the_group_of_the_exit_step_has_succeeded(
    began: StartedAttempt,
    monkeypatch: pytest.MonkeyPatch,
    phase: str | None,
    status: str,
    not_taken: tuple[str, ...],
    may_be_done: bool,
) -> None:
    monkeypatch.setenv(WORKFLOW_VARIABLE, "wf")
    monkeypatch.setenv(NODE_VARIABLE, NODE)
    assert isinstance(began.world.cluster, FakeCluster)
    began.world.cluster.workflows["ns/wf/wf.root.exit-handler-1"] = phase
    summary = end(began)
    assert (summary.status, summary.not_taken, summary.may_be_done) == (status, not_taken, may_be_done)
    sentence = "the run ended after ingest, "
    if may_be_done:
        sentence += (
            "and it is not known whether preprocess, train and evaluate were to run: its exit step may not "
            "read the engine's Workflow"
        )
    elif status == "stopped":
        sentence += "before the next stage was routed"
    assert summary.reason == ("" if status == "done" else sentence)


def test_a_run_is_not_done_where_a_stage_was_refused_that_only_its_own_router_lists(
    laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    world = replace(shares_world(laptop, tmp_path), pod=ClusterPod("ns", "7", "route"))
    began = begin(world, run_request(flights_slice, needs=INGEST))
    settle_and_record(attempt_in_pod(began, "ns.1.ingest"), ChildResult(status="done"))
    other = run_request(flights_slice, needs=(Need(stage="huge", after=("ingest",), memory_fixed_gb=1e5),))
    with pytest.raises(Refused, match="no offer fits huge"):
        decide_and_reserve(world, began.run, replace(other, metered=False), StageInputs())
    summary = end(began)
    assert summary.status == "stopped"
    assert summary.reason.startswith("no offer fits huge: no budget is enough"), summary


def report_tasks(patch: pytest.MonkeyPatch, folder: Path, **reasons: str) -> None:
    """Report to the next steps that these tasks have ended, and why they failed; empty: they did not."""
    at = datetime(2026, 11, 1, tzinfo=UTC)
    tasks = {name: LocalTask(started_at=at, finished_at=at, reason=each) for name, each in reasons.items()}
    (file := folder / "tasks.json").write_bytes(record_bytes(LocalTasks(tasks=tasks)))
    patch.setenv(LOCAL_TASKS_VARIABLE, str(file))


@pytest.mark.parametrize(("reason", "status"), [("", "done"), ("exit code 1", "stopped")])
def test_the_local_engine_says_whether_a_task_has_failed(
    began: StartedAttempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str, status: str
) -> None:
    report_tasks(monkeypatch, tmp_path, ingest="", train=reason)
    assert end(began).status == status


def test_what_an_exit_step_recorded_first_stays(
    began: StartedAttempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again where its pod was lost."""
    report_tasks(monkeypatch, tmp_path, ingest="")
    assert end(began).status == "done"
    report_tasks(monkeypatch, tmp_path, ingest="exit code 1")
    assert end(began).status == "done"
