"""Pods that a node accepted but that wrote no heartbeat: they are paid for if the reaper saw them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from reaper_world import QUEUE_S, Queue, again, ingest_attempt, pending_pod
from runtime_world import FakeCluster, StartedAttempt

from shoestring.core.interfaces import PodLifetime, StagePod
from shoestring.core.receipt import Receipt
from shoestring.data.run_records import read_record
from shoestring.runtime.settlement.reap import reap
from shoestring.runtime.settlement.settle import settle_run
from shoestring.runtime.settlement.silent_pods import pod_of_reservation
from shoestring.spending.audit.verify import load_anchors, verify
from shoestring.spending.meter import cost_usd


@pytest.fixture
def began(laptop: Path, flights_slice: Path, tmp_path: Path) -> StartedAttempt:
    return ingest_attempt(laptop, flights_slice, tmp_path)


def test_a_pod_that_cannot_start_on_its_node_times_out_and_is_paid_for_but_is_no_stock_out(
    began: StartedAttempt,
) -> None:
    began.world.clock.sleep(1000)
    sentences = reap(
        began.world, Queue(pending_pod(began.world, QUEUE_S, node="worker-1", reason="ImagePullBackOff"))
    )
    assert sentences == [
        "ingest-pod timed out: ingest of r waited 300 s to start on worker-1: ImagePullBackOff"
    ]
    assert list(began.world.store.list("learned/stock-outs/")) == []
    receipt = read_record(began.world.store, "runs/r/receipts/ingest-1.json", Receipt)
    assert "ImagePullBackOff" in receipt.reason
    # Its node was taken for all that time, so it pays more than it reserved.
    paid_usd = cost_usd(began.attempt.choice.usd_per_hour, QUEUE_S)
    assert began.ledger.state("r").settled_usd["ingest-1"] == receipt.spent_usd == paid_usd
    assert paid_usd > began.attempt.choice.p95_usd
    assert (str(receipt.pod), receipt.seconds) == ("ns.7.ingest-pod", QUEUE_S)


def dead_pod(began: StartedAttempt, lived_s: float, reason: str = "") -> StagePod:
    """A pod that ran for this long until now, and wrote no heartbeat."""
    now = began.world.clock.now()
    life = PodLifetime(
        alive=False, started_at=now - timedelta(seconds=lived_s), finished_at=now, reason=reason
    )
    return replace(pending_pod(began.world, lived_s, node="worker-1"), pending=False, lifetime=life)


def test_a_pod_that_died_before_its_first_heartbeat_is_paid_by_its_own_times(
    began: StartedAttempt,
) -> None:
    began.world.clock.sleep(30)
    pod = dead_pod(began, 2, "OOMKilled")
    assert isinstance(began.world.cluster, FakeCluster)
    began.world.cluster.lifetimes[str(pod.ref)] = pod.lifetime
    (sentence,) = reap(began.world, Queue(pod))
    assert "ingest-1 settled at" in sentence and "ended before its first heartbeat: OOMKilled" in sentence
    receipt = read_record(began.world.store, "runs/r/receipts/ingest-1.json", Receipt)
    assert (receipt.pod, receipt.status, receipt.cause, receipt.seconds) == (
        pod.ref,
        "lost",
        "memory",
        2,
    )
    assert (
        began.ledger.state("r").settled_usd["ingest-1"]
        == receipt.spent_usd
        == cost_usd(began.attempt.choice.usd_per_hour, 2)
    )
    assert reap(began.world, Queue(pod)) == []
    verify(began.world.store, load_anchors(began.world.store))


def test_a_dead_pod_that_a_router_settled_as_never_started_is_paid_in_the_end(
    began: StartedAttempt, flights_slice: Path
) -> None:
    began.world.clock.sleep(120)
    pod = dead_pod(began, 2)
    assert isinstance(began.world.cluster, FakeCluster)
    began.world.cluster.lifetimes[str(pod.ref)] = pod.lifetime
    again(began, flights_slice)
    assert began.ledger.state("r").settled_usd["ingest-1"] == 0
    assert reap(began.world, Queue(pod)) == []
    assert read_record(began.world.store, "runs/r/receipts/ingest-1.json", Receipt).pod == pod.ref
    settle_run(began.world, "r")
    settled_usd = began.ledger.state("r").settled_usd
    assert (
        settled_usd["ingest-1"] == cost_usd(began.attempt.choice.usd_per_hour, 2)
        and settled_usd["ingest-2"] == 0
    )


def test_a_dead_pod_that_began_in_the_second_of_its_reservation_is_matched(began: StartedAttempt) -> None:
    open_ = began.ledger.state("r").reservations["ingest-1"]
    reserved_at = open_.reserved_at.replace(microsecond=400_000)
    reservation = open_.model_copy(update={"reserved_at": reserved_at})
    pod = dead_pod(began, 20)
    for since, is_own in ((timedelta(), True), (timedelta(seconds=-1), False)):
        started_at = reserved_at.replace(microsecond=0) + since
        dead = replace(pod, lifetime=replace(pod.lifetime, started_at=started_at))
        assert (pod_of_reservation(reservation, [dead]) is dead) == is_own


def test_a_dead_pod_of_an_earlier_attempt_is_not_matched_to_this_one(began: StartedAttempt) -> None:
    pod = dead_pod(began, 20)
    began.world.clock.sleep(30)
    assert reap(began.world, Queue(pod)) == []
    assert "ingest-1" in began.ledger.state("r").reservations
