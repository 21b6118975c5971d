"""The attempt lock: a reservation is for one pod, which is known from its first moment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from runtime_world import (
    INGEST,
    FakeCluster,
    SetClock,
    StartedAttempt,
    attempt_in_pod,
    begin,
    on_cluster,
    run_request,
    small_world,
)

from shoestring.core.errors import StageFailed, UnknownName
from shoestring.core.interfaces import PodLifetime
from shoestring.core.pod_ref import PodRef
from shoestring.core.receipt import Receipt
from shoestring.data.run_records import read_record
from shoestring.runtime.admission.stage_request import StageInputs
from shoestring.runtime.route_step.route import decide_and_reserve
from shoestring.runtime.settlement.settle import settle_run
from shoestring.runtime.supervisor.run_stage import run_stage
from shoestring.runtime.supervisor.supervisor import write_heartbeat
from shoestring.spending.audit.verify import load_anchors, verify
from shoestring.spending.heartbeat import last_heartbeat
from shoestring.spending.meter import cost_usd

FIRST, SECOND = "ns.1.ingest", "ns.2.ingest"


@pytest.fixture
def began(laptop: Path, flights_slice: Path, tmp_path: Path) -> StartedAttempt:
    return begin(
        on_cluster(small_world(laptop, tmp_path, SetClock()))[0], run_request(flights_slice, needs=INGEST)
    )


def lifetimes_of(began: StartedAttempt) -> dict[str, PodLifetime]:
    assert isinstance(began.world.cluster, FakeCluster)
    return began.world.cluster.lifetimes


def second_pod(began: StartedAttempt) -> None:
    run_stage(replace(began.world, pod=PodRef.parse(SECOND)), "", "r", began.attempt.decision_key, {})


def test_a_pod_is_recorded_before_anything_in_it_can_fail(began: StartedAttempt, tmp_path: Path) -> None:
    (tmp_path / "store" / "runs" / "r" / "run.json").unlink()
    with pytest.raises(UnknownName):
        second_pod(began)
    heartbeat = last_heartbeat(began.world.store, "r", "ingest-1")
    assert heartbeat is not None and (str(heartbeat.pod), heartbeat.state) == (SECOND, "starting")


def test_a_pod_that_failed_at_its_start_is_paid_by_its_own_times(
    began: StartedAttempt, tmp_path: Path
) -> None:
    record = tmp_path / "store" / "runs" / "r" / "run.json"
    kept = record.read_bytes()
    record.unlink()
    with pytest.raises(UnknownName):
        second_pod(began)
    record.write_bytes(kept)
    now = began.world.clock.now()
    began.world.clock.sleep(2)
    lifetimes_of(began)[SECOND] = PodLifetime(
        alive=False, started_at=now, finished_at=began.world.clock.now()
    )
    settle_run(began.world, "r")
    assert began.ledger.state("r").settled_usd["ingest-1"] == cost_usd(began.attempt.choice.usd_per_hour, 2)


def test_a_second_pod_leaves_the_reservation_to_the_first_while_that_is_alive(began: StartedAttempt) -> None:
    write_heartbeat(attempt_in_pod(began, FIRST), "running")
    with pytest.raises(StageFailed, match=f"ingest-1 is already running in the pod {FIRST}"):
        second_pod(began)
    heartbeat = last_heartbeat(began.world.store, "r", "ingest-1")
    assert heartbeat is not None and str(heartbeat.pod) == FIRST
    assert "ingest-1" in began.ledger.state("r").reservations


def test_a_second_pod_settles_the_first_that_was_lost_and_the_stage_is_routed_again(
    began: StartedAttempt, flights_slice: Path
) -> None:
    write_heartbeat(attempt_in_pod(began, FIRST), "running")
    began.world.clock.sleep(2)
    write_heartbeat(attempt_in_pod(began, FIRST), "running")
    lifetimes_of(began)[FIRST] = PodLifetime(alive=False, reason="Evicted")
    with pytest.raises(StageFailed, match=f"ingest-1 was lost with its pod {FIRST}.*route the stage again"):
        second_pod(began)
    receipt = read_record(began.world.store, "runs/r/receipts/ingest-1.json", Receipt)
    paid_usd = cost_usd(began.attempt.choice.usd_per_hour, 2 + began.world.policy.heartbeat_s)
    assert (receipt.status, receipt.cause, str(receipt.pod), receipt.spent_usd) == (
        "lost",
        "lost",
        FIRST,
        paid_usd,
    )
    decision, _ = decide_and_reserve(
        began.world, began.run, run_request(flights_slice, needs=INGEST), StageInputs()
    )
    assert str(decision.question.attempt_id) == "ingest-2"
    assert any(f"second-ingest-1.{SECOND}" in key for key in began.world.store.list("runs/r/overhead/1/"))
    verify(began.world.store, load_anchors(began.world.store))
