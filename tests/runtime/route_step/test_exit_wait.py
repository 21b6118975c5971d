"""The exit step of a run waits for what its launcher still has to end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from runtime_world import INGEST, SetClock, attempt_in_pod, begin, on_cluster, run_request, small_world

from shoestring.core.interfaces import PodLifetime
from shoestring.core.pod_ref import LAUNCHER_VARIABLE
from shoestring.core.receipt import Receipt
from shoestring.data.run_records import read_record
from shoestring.runtime.settlement.settle import settle_run, settle_start
from shoestring.runtime.supervisor.attempt_receipt import write_attempt_receipt
from shoestring.runtime.supervisor.child import ChildResult
from shoestring.runtime.supervisor.run_stage import settle_and_record, settle_attempt
from shoestring.runtime.supervisor.supervisor import write_heartbeat
from shoestring.spending.audit.verify import load_anchors, verify
from shoestring.spending.heartbeat import last_heartbeat, record_lost
from shoestring.spending.meter import cost_usd

POD = "ns.1.ingest"


class ReportingClock(SetClock):
    """A clock with a launcher that ends a dead supervisor's processes while others wait."""

    report: Callable[[], None] | None = None

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.report:
            self.report()


def test_the_exit_step_waits_until_the_launcher_has_ended_what_a_dead_supervisor_left(
    laptop: Path, tmp_path: Path, flights_slice: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LAUNCHER_VARIABLE, "ns.2.launcher")
    clock = ReportingClock()
    world, cluster = on_cluster(small_world(laptop, tmp_path, clock))
    began = begin(world, run_request(flights_slice, needs=INGEST))
    clock.sleep(2)
    write_heartbeat(attempt_in_pod(began, POD), "running")
    cluster.lifetimes[POD] = PodLifetime(alive=False)
    killed_at = clock.now()

    def report() -> None:
        if clock.now() - killed_at > timedelta(seconds=3):
            record_lost(world.store, "r", "ingest-1", clock.now())

    clock.report = report
    settle_run(world, "r")
    last = last_heartbeat(world.store, "r", "ingest-1")
    assert last is not None
    ended_s = (last.at - last.started_at).total_seconds()
    assert ended_s > 5
    settled = began.ledger.state(began.account)
    paid_usd = settled.settled_usd["ingest-1"] + settled.overruns_usd.get("ingest-1", Decimal(0))
    assert paid_usd == cost_usd(began.attempt.usd_per_hour, ended_s) + began.attempt.choice.incurred_usd(
        done=False
    )


def test_the_account_is_closed_once_the_receipt_of_a_settled_attempt_is_written(
    laptop: Path, tmp_path: Path, flights_slice: Path
) -> None:
    """The entry that closes it holds the digest of the receipt."""
    clock = ReportingClock()
    world, _ = on_cluster(small_world(laptop, tmp_path, clock))
    began = begin(world, run_request(flights_slice, needs=INGEST))
    attempt = attempt_in_pod(began, POD)
    write_heartbeat(attempt, "running")
    settle_attempt(attempt, began.ledger, "done", done=True)
    settle_start(world, began.run, began.run.start)
    assert not began.ledger.state(began.account).closed
    exits_at = clock.now() + timedelta(seconds=1)
    result = ChildResult(status="stopped", cause="stop-requested", reason="it was told to")

    def report() -> None:
        if clock.now() > exits_at:
            write_attempt_receipt(attempt, result, Decimal(0))

    clock.report = report
    settle_run(world, "r")
    assert began.ledger.state(began.account).closed
    receipt = read_record(world.store, "runs/r/receipts/ingest-1.json", Receipt)
    assert (receipt.status, receipt.reason) == ("stopped", "it was told to")
    verify(world.store, load_anchors(world.store))


def test_a_supervisor_that_was_taken_for_dead_leaves_the_records_of_a_closed_run(
    laptop: Path, tmp_path: Path, flights_slice: Path
) -> None:
    world, cluster = on_cluster(small_world(laptop, tmp_path, SetClock()))
    began = begin(world, run_request(flights_slice, needs=INGEST))
    attempt = attempt_in_pod(began, POD)
    write_heartbeat(attempt, "running")
    cluster.lifetimes[POD] = PodLifetime(alive=False)
    settle_run(world, "r")
    settle_and_record(attempt, ChildResult(status="done"))
    assert read_record(world.store, "runs/r/receipts/ingest-1.json", Receipt).status == "lost"
    verify(world.store, load_anchors(world.store))
