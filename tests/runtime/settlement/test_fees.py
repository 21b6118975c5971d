"""What a stage pays beside its pod's time, for moving its data and holding what it wrote, is on the books like the rest of its price."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Literal

import pytest
from runtime_world import (
    CHAIN,
    Began,
    SetClock,
    TellingCluster,
    begin,
    far_away,
    in_pod,
    on_cluster,
    small_world,
    wish,
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
def began(laptop: Path, flights_slice: Path, tmp_path: Path) -> Began:
    """A preprocessing in another region than its store, on a cluster that tells its pods' times."""
    path = far_away(laptop, tmp_path, TARIFFS)
    return begin(
        on_cluster(small_world(path, tmp_path, SetClock()))[0], wish(flights_slice, needs=CHAIN[1:2])
    )


def ended(began: Began, status: Literal["done", "failed"]) -> Receipt:
    """Its frame ran for two seconds."""
    attempt = in_pod(began, POD)
    write_heartbeat(attempt, "running")
    began.world.clock.sleep(2)
    settle_and_record(attempt, ChildResult(status=status))
    return read_record(began.world.store, "runs/r/receipts/preprocess-1.json", Receipt)


def test_the_price_of_an_offer_is_its_time_and_its_fees(began: Began) -> None:
    choice = began.attempt.choice
    assert min(choice.transfer_in_usd, choice.transfer_out_usd, choice.storage_usd) > 0
    assert choice.est_usd - choice.fees_usd == pytest.approx(
        cost_usd(choice.usd_per_hour, choice.est_s), abs=Decimal("0.000001")
    )


def test_what_is_done_pays_for_all_that_it_moved_and_left(began: Began) -> None:
    choice, receipt = began.attempt.choice, ended(began, "done")
    assert receipt.fees_usd == choice.fees_usd
    assert receipt.spent_usd == choice.fees_usd + cost_usd(choice.usd_per_hour, 2)
    settle_run(began.world, "r")
    verify(began.world.store, load_anchors(began.world.store))
    (charge,) = [each for each in read_charges(began.world.store)[0] if each.entry.stage == "preprocess"]
    assert (charge.parts.transfer_microusd, charge.parts.storage_microusd) == (
        int((choice.transfer_in_usd + choice.transfer_out_usd).scaleb(6)),
        int(choice.storage_usd.scaleb(6)),
    )


def test_what_failed_has_read_and_left_nothing(began: Began) -> None:
    choice, receipt = began.attempt.choice, ended(began, "failed")
    assert receipt.fees_usd == choice.transfer_in_usd
    assert receipt.spent_usd == choice.transfer_in_usd + cost_usd(choice.usd_per_hour, 2)


def test_what_was_lost_pays_for_what_it_read(began: Began) -> None:
    write_heartbeat(in_pod(began, POD), "running")
    began.world.clock.sleep(60)
    assert isinstance(began.world.cluster, TellingCluster)
    began.world.cluster.lives[POD] = PodLifetime(alive=False)
    settle_run(began.world, "r")
    receipt = read_record(began.world.store, "runs/r/receipts/preprocess-1.json", Receipt)
    choice = began.attempt.choice
    assert (receipt.status, receipt.fees_usd) == ("lost", choice.transfer_in_usd)
    assert receipt.spent_usd == choice.transfer_in_usd + cost_usd(
        choice.usd_per_hour, began.world.policy.heartbeat_s
    )


def test_a_pods_own_times_change_what_it_paid_for_time_alone(began: Began) -> None:
    ended(began, "done")
    now = began.world.clock.now()
    assert isinstance(began.world.cluster, TellingCluster)
    began.world.cluster.lives[POD] = PodLifetime(
        alive=False, started_at=now - timedelta(seconds=5), finished_at=now
    )
    settle_run(began.world, "r")
    choice = began.attempt.choice
    assert began.ledger.state(began.account).settled_usd["preprocess-1"] == choice.fees_usd + cost_usd(
        choice.usd_per_hour, 5
    )


def test_time_never_takes_what_is_kept_for_fees(began: Began) -> None:
    """Its meter ends, and its frame asks for more, while all of them can still be paid."""
    attempt = in_pod(began, POD)
    assert attempt.meter().limit_usd == attempt.reserved_usd - attempt.exit_usd - attempt.choice.fees_usd
    assert attempt.spent_usd() >= attempt.choice.fees_usd

    class Asked:
        def __init__(self) -> None:
            self.count = 0

        def ask(self, request: object) -> None:
            self.count += 1

        def answer(self, within_s: float) -> None:
            return None

    clerk, bare = Asked(), replace(attempt, reserved_usd=attempt.choice.fees_usd)
    extend_or_stop(bare, began.ledger, clerk)
    assert clerk.count == 1
