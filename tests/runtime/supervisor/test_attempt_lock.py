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
    begin,
    on_cluster,
    run_request,
    small_world,
)

from shoestring.core.errors import UnknownName
from shoestring.core.interfaces import PodLifetime
from shoestring.core.pod_ref import PodRef
from shoestring.runtime.settlement.settle import settle_run
from shoestring.runtime.supervisor.run_stage import run_stage
from shoestring.spending.heartbeat import last_heartbeat
from shoestring.spending.meter import cost_usd

POD = "ns.2.ingest"


@pytest.fixture
def began(laptop: Path, flights_slice: Path, tmp_path: Path) -> StartedAttempt:
    return begin(
        on_cluster(small_world(laptop, tmp_path, SetClock()))[0], run_request(flights_slice, needs=INGEST)
    )


def lifetimes_of(began: StartedAttempt) -> dict[str, PodLifetime]:
    assert isinstance(began.world.cluster, FakeCluster)
    return began.world.cluster.lifetimes


def start_pod(began: StartedAttempt) -> None:
    run_stage(replace(began.world, pod=PodRef.parse(POD)), "", "r", began.attempt.decision_key, {})


def test_a_pod_is_recorded_before_anything_in_it_can_fail(began: StartedAttempt, tmp_path: Path) -> None:
    (tmp_path / "store" / "runs" / "r" / "run.json").unlink()
    with pytest.raises(UnknownName):
        start_pod(began)
    heartbeat = last_heartbeat(began.world.store, "r", "ingest-1")
    assert heartbeat is not None and (str(heartbeat.pod), heartbeat.state) == (POD, "starting")


def test_a_pod_that_failed_at_its_start_is_paid_by_its_own_times(
    began: StartedAttempt, tmp_path: Path
) -> None:
    record = tmp_path / "store" / "runs" / "r" / "run.json"
    kept = record.read_bytes()
    record.unlink()
    with pytest.raises(UnknownName):
        start_pod(began)
    record.write_bytes(kept)
    now = began.world.clock.now()
    began.world.clock.sleep(2)
    lifetimes_of(began)[POD] = PodLifetime(alive=False, started_at=now, finished_at=began.world.clock.now())
    settle_run(began.world, "r")
    assert began.ledger.state("r").settled_usd["ingest-1"] == cost_usd(began.attempt.choice.usd_per_hour, 2)
