"""Fees: transfer and storage of a stage's data are settled like the price of its time."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Literal

import pytest
from runtime_world import (
    CHAIN,
    FakeCluster,
    SetClock,
    StartedAttempt,
    attempt_in_pod,
    begin,
    on_cluster,
    run_request,
    small_world,
    world_in_other_region,
)

from shoestring.core.interfaces import PodLifetime
from shoestring.core.receipt import Receipt
from shoestring.data.run_records import read_record
from shoestring.reporting.charges import read_charges
from shoestring.runtime.settlement.settle import settle_run
from shoestring.runtime.supervisor.child import ChildResult
from shoestring.runtime.supervisor.extension import extend_or_stop
from shoestring.runtime.supervisor.run_stage import settle_and_record
from shoestring.runtime.supervisor.supervisor import write_heartbeat
from shoestring.spending.audit.verify import load_anchors, verify
from shoestring.spending.meter import cost_usd

POD = "ns.1.preprocess"
TARIFFS = {"egress_usd_per_gb": {"away->here": "0.09", "here->away": "0.05"}, "storage_usd_per_gb_month": "5"}


@pytest.fixture
def began(laptop: Path, flights_slice: Path, tmp_path: Path) -> StartedAttempt:
    """A preprocess attempt in another region than its store, on a cluster that reports its pods' times."""
    path = world_in_other_region(laptop, tmp_path, TARIFFS)
    return begin(
        on_cluster(small_world(path, tmp_path, SetClock()))[0], run_request(flights_slice, needs=CHAIN[1:2])
    )


def settle_after_two_seconds(began: StartedAttempt, status: Literal["done", "failed"]) -> Receipt:
    """Settle the attempt after two seconds of its supervisor."""
    attempt = attempt_in_pod(began, POD)
    write_heartbeat(attempt, "running")
    began.world.clock.sleep(2)
    settle_and_record(attempt, ChildResult(status=status))
    return read_record(began.world.store, "runs/r/receipts/preprocess-1.json", Receipt)


def test_the_price_of_an_offer_is_its_time_plus_its_fees(began: StartedAttempt) -> None:
    choice = began.attempt.choice
    assert min(choice.transfer_in_usd, choice.transfer_out_usd, choice.storage_usd) > 0
    assert choice.est_usd - choice.fees_usd == pytest.approx(
        cost_usd(choice.usd_per_hour, choice.est_s), abs=Decimal("0.000001")
    )


def test_a_completed_attempt_pays_for_all_transfers_and_storage(began: StartedAttempt) -> None:
    choice, receipt = began.attempt.choice, settle_after_two_seconds(began, "done")
    assert receipt.fees_usd == choice.fees_usd
    assert receipt.spent_usd == choice.fees_usd + cost_usd(choice.usd_per_hour, 2)
    settle_run(began.world, "r")
    verify(began.world.store, load_anchors(began.world.store))
    (charge,) = [each for each in read_charges(began.world.store)[0] if each.entry.stage == "preprocess"]
    assert (charge.parts.transfer_microusd, charge.parts.storage_microusd) == (
        int((choice.transfer_in_usd + choice.transfer_out_usd).scaleb(6)),
        int(choice.storage_usd.scaleb(6)),
    )


def test_a_failed_attempt_pays_only_for_what_it_read(began: StartedAttempt) -> None:
    choice, receipt = began.attempt.choice, settle_after_two_seconds(began, "failed")
    assert receipt.fees_usd == choice.transfer_in_usd
    assert receipt.spent_usd == choice.transfer_in_usd + cost_usd(choice.usd_per_hour, 2)


def test_a_lost_attempt_pays_for_what_it_read(began: StartedAttempt) -> None:
    write_heartbeat(attempt_in_pod(began, POD), "running")
    began.world.clock.sleep(60)
    assert isinstance(began.world.cluster, FakeCluster)
    began.world.cluster.lifetimes[POD] = PodLifetime(alive=False)
    settle_run(began.world, "r")
    receipt = read_record(began.world.store, "runs/r/receipts/preprocess-1.json", Receipt)
    choice = began.attempt.choice
    assert (receipt.status, receipt.fees_usd) == ("lost", choice.transfer_in_usd)
    assert receipt.spent_usd == choice.transfer_in_usd + cost_usd(
        choice.usd_per_hour, began.world.policy.heartbeat_s
    )


def test_a_pods_own_times_change_only_its_cost_of_time(began: StartedAttempt) -> None:
    settle_after_two_seconds(began, "done")
    now = began.world.clock.now()
    assert isinstance(began.world.cluster, FakeCluster)
    began.world.cluster.lifetimes[POD] = PodLifetime(
        alive=False, started_at=now - timedelta(seconds=5), finished_at=now
    )
    settle_run(began.world, "r")
    choice = began.attempt.choice
    assert began.ledger.state(began.account).settled_usd["preprocess-1"] == choice.fees_usd + cost_usd(
        choice.usd_per_hour, 5
    )


def test_time_never_uses_the_money_reserved_for_fees(began: StartedAttempt) -> None:
    """The meter ends, and the supervisor requests an extension, while all fees can still be paid."""
    attempt = attempt_in_pod(began, POD)
    assert attempt.meter().limit_usd == attempt.reserved_usd - attempt.exit_usd - attempt.choice.fees_usd
    assert attempt.spent_usd() >= attempt.choice.fees_usd

    class RequestCounter:
        def __init__(self) -> None:
            self.count = 0

        def ask(self, request: object) -> None:
            self.count += 1

        def answer(self, within_s: float) -> None:
            return None

    ledger_io, poor = RequestCounter(), replace(attempt, reserved_usd=attempt.choice.fees_usd)
    extend_or_stop(poor, began.ledger, ledger_io)
    assert ledger_io.count == 1
