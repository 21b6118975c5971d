"""Adjustments: the exit step adjusts the ledger to the pods' own times, up and down, within the cap."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
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

from shoestring.config.policy import Policy
from shoestring.config.world import World
from shoestring.core.interfaces import PodLifetime
from shoestring.core.pod_ref import PodRef
from shoestring.core.receipt import Receipt
from shoestring.core.record import record_bytes
from shoestring.data.run_records import read_record
from shoestring.reporting.run_reader import read_run_story
from shoestring.reporting.summary import summarise_run
from shoestring.runtime.records.overhead import OverheadTime, overhead_timer
from shoestring.runtime.settlement.adjust import adjust_to_pod_times
from shoestring.runtime.settlement.settle import settle_run
from shoestring.runtime.supervisor.child import ChildResult
from shoestring.runtime.supervisor.run_stage import settle_and_record
from shoestring.runtime.supervisor.supervisor import write_heartbeat
from shoestring.spending.audit.verify import load_anchors, verify
from shoestring.spending.meter import cost_usd

POD = "ns.1.ingest"


def cluster_of(world: World) -> FakeCluster:
    assert isinstance(world.cluster, FakeCluster)
    return world.cluster


def settle_after_two_seconds(began: StartedAttempt) -> Decimal:
    """Run the attempt's supervisor for two seconds and settle; return the recorded cost."""
    attempt = attempt_in_pod(began, POD)
    write_heartbeat(attempt, "running")
    began.world.clock.sleep(2)
    settle_and_record(attempt, ChildResult(status="done"))
    return read_record(began.world.store, "runs/r/receipts/ingest-1.json", Receipt).spent_usd


def lifetime_of(began: StartedAttempt, before_s: float, after_s: float) -> PodLifetime:
    """Return a lifetime from `before` the supervisor started to `after` now."""
    now = began.world.clock.now()
    began_at = now - timedelta(seconds=began.world.clock.monotonic_s() - began.attempt.started_s)
    return PodLifetime(
        alive=False,
        started_at=began_at - timedelta(seconds=before_s),
        finished_at=now + timedelta(seconds=after_s),
    )


@pytest.fixture
def began(laptop: Path, flights_slice: Path, tmp_path: Path) -> StartedAttempt:
    return begin(
        on_cluster(small_world(laptop, tmp_path, SetClock()))[0], run_request(flights_slice, needs=INGEST)
    )


@pytest.mark.parametrize(("before_s", "after_s"), [(3, 1.5), (0, 0.25), (-0.5, 0), (0, 0)])
def test_a_pod_is_settled_by_its_times_on_the_clusters_clock(
    began: StartedAttempt, before_s: float, after_s: float
) -> None:
    settle_after_two_seconds(began)
    cluster_of(began.world).lifetimes[POD] = lifetime_of(began, before_s, after_s)
    settle_run(began.world, "r")
    true_usd = cost_usd(began.attempt.choice.usd_per_hour, 2 + before_s + after_s)
    state = began.ledger.state(began.account)
    assert (state.settled_usd["ingest-1"], state.closed) == (true_usd, True)
    assert summarise_run(read_run_story(began.world.store, "r")).stages[0].spent_usd == true_usd
    verify(began.world.store, load_anchors(began.world.store))


def test_a_lost_pod_is_settled_by_its_own_times_and_not_by_its_last_heartbeat(began: StartedAttempt) -> None:
    write_heartbeat(attempt_in_pod(began, POD), "running")
    began.world.clock.sleep(20)
    cluster_of(began.world).lifetimes[POD] = lifetime_of(began, 1, -5)
    settle_run(began.world, "r")
    assert began.ledger.state(began.account).settled_usd["ingest-1"] == cost_usd(
        began.attempt.choice.usd_per_hour, 16
    )
    assert read_record(began.world.store, "runs/r/receipts/ingest-1.json", Receipt).status == "lost"


def test_a_pod_whose_end_is_unknown_keeps_its_own_settlement(began: StartedAttempt) -> None:
    spent_usd = settle_after_two_seconds(began)
    cluster_of(began.world).lifetimes[POD] = PodLifetime(alive=False, started_at=began.world.clock.now())
    settle_run(began.world, "r")
    assert began.ledger.state(began.account).settled_usd["ingest-1"] == spent_usd


def test_an_adjustment_that_is_repeated_is_one_ledger_entry(began: StartedAttempt) -> None:
    settle_after_two_seconds(began)
    cluster_of(began.world).lifetimes[POD] = lifetime_of(began, 3, 1)
    for _ in range(2):
        assert adjust_to_pod_times(began.world, began.run, began.run.start, Decimal(0)) == []
    entries = began.ledger.state(began.account).entries
    settle_run(began.world, "r")
    settle_run(began.world, "r")
    # The overhead's settlement, and the close.
    assert began.ledger.state(began.account).entries == entries + 2


def test_an_adjustment_beyond_the_cap_is_made_up_to_the_cap_and_reported(
    began: StartedAttempt,
) -> None:
    settle_after_two_seconds(began)
    cluster_of(began.world).lifetimes[POD] = lifetime_of(began, 0, 100_000)
    sentences = settle_run(began.world, "r")
    state = began.ledger.state(began.account)
    assert (state.left_usd, state.spent_usd) == (0, began.run.start.budget_usd)
    true_usd = cost_usd(began.attempt.choice.usd_per_hour, 100_002)
    assert (
        f"ingest-1 is recorded at ${state.settled_usd['ingest-1']}, but its pod's own times cost ${true_usd}"
        in sentences[-1]
    )
    assert "the cap allows no more" in sentences[-1]
    verify(began.world.store, load_anchors(began.world.store))


def test_unreadable_decisions_do_not_keep_an_account_open(began: StartedAttempt) -> None:
    """Neither the pods' own times nor the engine's can be worked out without the decisions."""
    spent_usd = settle_after_two_seconds(began)
    cluster_of(began.world).lifetimes[POD] = lifetime_of(began, 3, 1)
    store = began.world.store
    first = read_record(store, "runs/r/receipts/ingest-1.json", Receipt)
    later = first.started_at + timedelta(minutes=1), first.finished_at + timedelta(minutes=1)
    next_stage = {"stage": "train", "started_at": later[0], "finished_at": later[1]}
    store.put("runs/r/receipts/train-1.json", record_bytes(first.model_copy(update=next_stage)))
    store.put(first.decision_key, b"{")
    adjusted, sampled = settle_run(began.world, "r")
    assert "ingest-1 is not adjusted to its pod's own times" in adjusted
    assert "what the engine took is not recorded" in sampled
    state = began.ledger.state(began.account)
    assert (state.settled_usd["ingest-1"], state.closed) == (spent_usd, True)


def test_decreases_pay_for_increases_in_any_order_of_names(began: StartedAttempt) -> None:
    settle_after_two_seconds(began)
    rate, left_usd = began.attempt.choice.usd_per_hour, began.ledger.state(began.account).left_usd
    assert left_usd is not None
    # The last attempt by name was settled at all remaining money, but its pod ran only briefly.
    decision = began.attempt.decision.model_copy(
        update={"question": began.attempt.decision.question.model_copy(update={"attempt": 2})}
    )
    began.ledger.reserve(began.account, "ingest-2", "ingest", 2, left_usd)
    began.world.store.put("runs/r/decisions/ingest-2.json", record_bytes(decision))
    began.ledger.settle(began.account, "ingest-2", left_usd)
    first = read_record(began.world.store, "runs/r/receipts/ingest-1.json", Receipt)
    second = first.model_copy(
        update={
            "attempt": 2,
            "pod": PodRef.parse("ns.2.ingest"),
            "decision_key": "runs/r/decisions/ingest-2.json",
        }
    )
    began.world.store.put("runs/r/receipts/ingest-2.json", record_bytes(second))
    now = began.world.clock.now()
    cluster_of(began.world).lifetimes[POD] = lifetime_of(began, 30, 0)
    cluster_of(began.world).lifetimes["ns.2.ingest"] = PodLifetime(
        alive=False, started_at=now - timedelta(seconds=1), finished_at=now
    )
    assert adjust_to_pod_times(began.world, began.run, began.run.start, Decimal(0)) == []
    settled_usd = began.ledger.state(began.account).settled_usd
    assert (settled_usd["ingest-1"], settled_usd["ingest-2"]) == (cost_usd(rate, 32), cost_usd(rate, 1))


def test_a_supervisor_reserves_the_price_of_the_end_of_its_pod(
    laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    world = on_cluster(small_world(laptop, tmp_path, SetClock()), rules=Policy(pod_exit_s=2.0))[0]
    began = begin(world, run_request(flights_slice, needs=INGEST))
    rate = began.attempt.choice.usd_per_hour
    assert began.attempt.exit_usd >= cost_usd(rate, 2.5)
    assert settle_after_two_seconds(began) == cost_usd(rate, 4.0)


def test_overhead_pods_are_paid_by_their_own_times_at_their_first_price(
    began: StartedAttempt,
) -> None:
    with overhead_timer(began.world, began.run, "route-ingest"):
        began.world.clock.sleep(1)
    (key,) = began.world.store.list("runs/r/overhead/1/")
    rate = read_record(began.world.store, key, OverheadTime).usd_per_hour
    now = began.world.clock.now()
    cluster_of(began.world).lifetimes["ns.0.router"] = PodLifetime(
        alive=False, started_at=now - timedelta(seconds=4), finished_at=now
    )
    settle_run(began.world, "r")
    assert began.ledger.state(began.account).settled_usd["overhead-1"] == cost_usd(rate, 4)
