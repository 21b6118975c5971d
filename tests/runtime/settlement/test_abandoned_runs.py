"""Runs that their engine has left: the reaper closes their accounts, and writes their reports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from reaper_world import (
    ABANDONED_S,
    Queue,
    ingest_attempt,
    kill_pod,
    pending_pod,
    shares_world,
)
from runtime_world import INGEST, FakeCluster, StartedAttempt, attempt_in_pod, begin, run_request

from shoestring.core.pod_ref import WORKFLOW_VARIABLE, ClusterPod
from shoestring.data.run_records import read_record
from shoestring.reporting.summary import RunSummary
from shoestring.runtime.admission.admit import find_or_admit
from shoestring.runtime.records.overhead import overhead_timer
from shoestring.runtime.settlement.reap import reap
from shoestring.runtime.supervisor.child import ChildResult
from shoestring.runtime.supervisor.run_stage import settle_and_record
from shoestring.spending.audit.verify import load_anchors, verify


@pytest.fixture
def began(laptop: Path, flights_slice: Path, tmp_path: Path) -> StartedAttempt:
    return ingest_attempt(laptop, flights_slice, tmp_path)


def test_an_abandoned_run_is_closed_its_money_released_and_its_report_written(
    began: StartedAttempt,
) -> None:
    kill_pod(began)
    began.world.clock.sleep(ABANDONED_S + 5)
    reap(began.world, Queue())
    month = began.ledger.state(f"{began.run.start.started_at:%Y-%m}")
    assert began.ledger.state("r").closed and month.held_usd == 0
    assert month.spent_usd == began.ledger.state("r").spent_usd > 0
    summary = read_record(began.world.store, "runs/r/summary.json", RunSummary)
    assert (summary.status, summary.spent_usd) == ("failed", month.spent_usd)
    assert b"ingest" in began.world.store.fetch("runs/r/report.html").read_bytes()
    verify(began.world.store, load_anchors(began.world.store))


@pytest.mark.parametrize("node", ["", "worker-1"])
def test_a_run_with_a_pending_or_running_pod_is_not_abandoned(began: StartedAttempt, node: str) -> None:
    began.world.clock.sleep(ABANDONED_S + 5)
    pod = replace(pending_pod(began.world, 10, node=node), pending=not node)
    assert reap(began.world, Queue(pod)) == []
    assert "ingest-1" in began.ledger.state("r").reservations


def test_a_run_whose_route_step_waits_for_another_run_is_not_abandoned(began: StartedAttempt) -> None:
    settle_and_record(attempt_in_pod(began, "ns.1.ingest"), ChildResult(status="done"))
    with overhead_timer(began.world, began.run, "route-preprocess"):
        began.world.clock.sleep(2 * ABANDONED_S)
        assert reap(began.world, Queue()) == []
        assert not began.ledger.state("r").closed
    began.world.clock.sleep(ABANDONED_S + 5)
    reap(began.world, Queue())
    assert began.ledger.state("r").closed


def test_a_run_that_waits_for_a_person_is_not_abandoned_at_once(began: StartedAttempt) -> None:
    settle_and_record(attempt_in_pod(began, "ns.1.ingest"), ChildResult(status="done"))
    began.world.clock.sleep(ABANDONED_S - 5)
    assert reap(began.world, Queue()) == []
    assert not began.ledger.state("r").closed


@pytest.mark.parametrize(
    ("phase", "has_ended"),
    [("Failed", True), ("Error", True), ("Succeeded", True), ("", True), ("Running", False), (None, False)],
)
def test_a_run_whose_workflow_has_ended_without_an_exit_step_is_closed_within_a_minute(
    laptop: Path,
    flights_slice: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    phase: str | None,
    has_ended: bool,
) -> None:
    """Also one that was deleted. One that runs, or that may not be read, is not; nor is one with a pod
    that is alive.
    """
    monkeypatch.setenv(WORKFLOW_VARIABLE, "flights-wf")
    world = replace(shares_world(laptop, tmp_path), pod=ClusterPod("ns", "7", "route"))
    began = begin(world, run_request(flights_slice, needs=INGEST))
    assert began.run.start.workflow == "ns/flights-wf"
    kill_pod(began)
    assert isinstance(began.world.cluster, FakeCluster)
    began.world.cluster.workflows["ns/flights-wf"] = phase
    reap(began.world, Queue(replace(pending_pod(began.world, 10, node="worker-1"), pending=False)))
    assert not began.ledger.state("r").closed
    reap(began.world, Queue())
    assert began.ledger.state("r").closed == has_ended
    if has_ended:
        summary = read_record(began.world.store, "runs/r/summary.json", RunSummary)
        assert (summary.status, summary.spent_usd) == ("failed", began.ledger.state("r").spent_usd)
        assert b"ingest" in began.world.store.fetch("runs/r/report.html").read_bytes()


def test_a_closed_run_starts_again_when_its_engine_retries_it(
    began: StartedAttempt, flights_slice: Path
) -> None:
    began.world.clock.sleep(ABANDONED_S + 5)
    reap(began.world, Queue())
    run = find_or_admit(began.world, run_request(flights_slice, needs=INGEST))
    assert (run.start.number, run.start.account) == (2, "r.2")
    assert began.ledger.state("r.2").cap_usd == run.start.budget_usd - began.ledger.state("r").spent_usd
