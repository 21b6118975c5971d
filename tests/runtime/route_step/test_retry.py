"""Retries: a new decision that learns from earlier attempts, or a refusal where a retry cannot help."""

from __future__ import annotations

import threading
from dataclasses import replace
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
    on,
    on_cluster,
    run_request,
    small_world,
)

from shoestring.backends.folder_store import FolderStore
from shoestring.config.world import World
from shoestring.core.errors import Refused, StoreError
from shoestring.core.interfaces import PodLifetime
from shoestring.core.pod_ref import PodRef
from shoestring.core.receipt import Cause, Receipt
from shoestring.core.record import record_bytes
from shoestring.core.types import Market, Pool, StockOut
from shoestring.data.run_records import read_record
from shoestring.routing.analysis.replay import replay
from shoestring.routing.decision import Decision
from shoestring.routing.pages.explain import as_text
from shoestring.routing.question_parts import stage_memory_gb
from shoestring.runtime.admission.admit import admit
from shoestring.runtime.admission.stage_request import StageInputs
from shoestring.runtime.route_step.retry import EXIT_WAIT_S, ROUTER_RETRY_S
from shoestring.runtime.route_step.route import decide_and_reserve
from shoestring.runtime.settlement.settle import settle_run
from shoestring.runtime.supervisor.child import ChildResult
from shoestring.runtime.supervisor.run_stage import settle_and_record
from shoestring.runtime.supervisor.supervisor import write_heartbeat
from shoestring.spending.audit.verify import load_anchors, verify
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.meter import cost_usd

SMALL = Pool(name="cpu-1", cores=1, memory_gb=2)
LARGE = Pool(name="cpu-2", cores=2, memory_gb=4)
POD = "ns.1.ingest"


@pytest.fixture
def world(laptop: Path, tmp_path: Path) -> World:
    return on_cluster(small_world(laptop, tmp_path, SetClock()), (SMALL, LARGE))[0]


def cluster_of(world: World) -> FakeCluster:
    assert isinstance(world.cluster, FakeCluster)
    return world.cluster


@pytest.fixture
def began(world: World, flights_slice: Path) -> StartedAttempt:
    return begin(world, run_request(flights_slice, needs=INGEST))


def again(began: StartedAttempt, flights_slice: Path) -> Decision:
    decision, key = decide_and_reserve(
        began.world, began.run, run_request(flights_slice, needs=INGEST), StageInputs()
    )
    assert began.world.store.fetch(key).read_bytes() == record_bytes(decision)
    assert replay(record_bytes(decision)).verdict == "same"
    return decision


def settle_with(began: StartedAttempt, reason: str, cause: Cause, status: str = "failed") -> None:
    """Run the attempt's supervisor for two seconds and settle."""
    attempt = attempt_in_pod(began, POD)
    write_heartbeat(attempt, "running")
    began.world.clock.sleep(2)
    settle_and_record(attempt, ChildResult(status=status, cause=cause, reason=reason))


def kill_pod(began: StartedAttempt, **life: object) -> None:
    """Let the attempt's pod disappear after two seconds, without settling."""
    write_heartbeat(attempt_in_pod(began, POD), "running")
    began.world.clock.sleep(2)
    write_heartbeat(attempt_in_pod(began, POD), "running")
    cluster_of(began.world).lifetimes[POD] = PodLifetime(alive=False, **life)


def test_the_next_router_settles_a_lost_pod_writes_its_receipt_and_decides_again(
    began: StartedAttempt, flights_slice: Path
) -> None:
    kill_pod(began, reason="Evicted")
    decision = again(began, flights_slice)
    assert (decision.question.attempt, str(decision.question.attempt_id)) == (2, "ingest-2")
    lost = read_record(began.world.store, "runs/r/receipts/ingest-1.json", Receipt)
    assert (lost.status, lost.cause) == ("lost", "lost") and "Evicted" in lost.reason
    state = began.ledger.state(began.account)
    assert state.settled_usd["ingest-1"] == lost.spent_usd == cost_usd(began.attempt.choice.usd_per_hour, 3.0)
    assert decision.question.spent_usd == lost.spent_usd
    assert state.reservations.keys() == {"ingest-2", "overhead-1"}
    assert f"attempt 1 lost: {lost.reason}" in as_text(decision)
    verify(began.world.store, load_anchors(began.world.store))


@pytest.mark.parametrize("cause", ["stop-requested", "store", "lost"])
def test_an_attempt_that_was_stopped_from_outside_is_retried(
    began: StartedAttempt, flights_slice: Path, cause: Cause
) -> None:
    settle_with(began, "it was not its fault", cause)
    decision = again(began, flights_slice)
    assert decision.question.attempt == 2
    assert decision.question.notes == ("attempt 1 failed: it was not its fault",)


@pytest.mark.parametrize(("status", "cause"), [("failed", "code"), ("stopped", "money")])
def test_a_retry_that_would_end_in_the_same_way_is_refused_with_the_reason(
    began: StartedAttempt, flights_slice: Path, status: str, cause: Cause
) -> None:
    settle_with(began, "the loss is not a number", cause, status)
    with pytest.raises(Refused, match=f"not tried again.*attempt 1 {status}: the loss is not a number"):
        again(began, flights_slice)
    assert began.ledger.state(began.account).reservations.keys() == {"overhead-1"}
    assert list(began.world.store.list("runs/r/decisions/")) == ["runs/r/decisions/ingest-1.json"]


@pytest.mark.parametrize(
    "how", ["the cluster says so", "the cluster says so of a pod that failed", "the stage says so"]
)
def test_a_stage_that_ran_out_of_memory_gets_more(
    began: StartedAttempt, flights_slice: Path, how: str
) -> None:
    assert began.attempt.choice.pool == "cpu-1"
    if how == "the cluster says so":
        kill_pod(began, reason="OOMKilled")
    else:
        settle_with(began, "killed by SIGKILL", "memory" if "stage" in how else "lost")
        cluster_of(began.world).lifetimes[POD] = PodLifetime(
            alive=False, reason="OOMKilled" if "cluster" in how else ""
        )
    decision = again(began, flights_slice)
    assert decision.choice is not None and decision.choice.pool == "cpu-2"
    assert stage_memory_gb(decision.question.needs[0], decision.question.rows) == pytest.approx(3.0)
    assert (
        "it ran out of the 2 GB of memory that it had on cpu-1: the next attempt gets at least 3 GB"
        in as_text(decision)
    )


@pytest.mark.parametrize(("share", "grows"), [(0.95, True), (0.5, False), (None, False)])
def test_a_killed_container_counts_as_out_of_memory_where_it_was_close_to_its_limit(
    began: StartedAttempt, flights_slice: Path, share: float | None, grows: bool
) -> None:
    began.attempt.memory_share = share
    kill_pod(began, reason="Error, exit code 137")
    decision = again(began, flights_slice)
    lost = read_record(began.world.store, "runs/r/receipts/ingest-1.json", Receipt)
    assert lost.cause == ("memory" if grows else "lost")
    assert (decision.choice is not None) and (decision.choice.pool == "cpu-2") == grows


def test_more_memory_than_any_pool_has_is_refused_with_both_amounts(
    began: StartedAttempt, flights_slice: Path
) -> None:
    kill_pod(began, reason="OOMKilled")
    second = again(began, flights_slice)
    attempt = replace(began.attempt, decision=second, decision_key="runs/r/decisions/ingest-2.json")
    settle_and_record(
        replace(attempt, world=replace(began.world, pod=PodRef.parse("ns.2.ingest"))),
        ChildResult(status="failed", cause="memory", reason="memory"),
    )
    with pytest.raises(Refused, match=r"needs 6\.00 GB of memory, cpu-2 has 4"):
        again(began, flights_slice)


def test_a_router_waits_for_a_running_pod_and_then_refuses_a_second_one(
    began: StartedAttempt, flights_slice: Path
) -> None:
    write_heartbeat(attempt_in_pod(began, POD), "running")
    before_s = began.world.clock.monotonic_s()
    with pytest.raises(Refused, match="still runs: ingest-1"):
        again(began, flights_slice)
    assert began.world.clock.monotonic_s() - before_s >= EXIT_WAIT_S


def test_a_completed_attempt_whose_answer_was_lost_is_routed_again(
    began: StartedAttempt, flights_slice: Path
) -> None:
    settle_with(began, "", "", "done")
    assert again(began, flights_slice).question.notes == ()


def test_a_router_that_is_run_again_at_once_returns_the_same_decision(
    began: StartedAttempt, flights_slice: Path
) -> None:
    began.world.clock.sleep(ROUTER_RETRY_S - 1)
    assert again(began, flights_slice) == began.attempt.decision
    assert began.ledger.state(began.account).reservations.keys() == {"ingest-1", "overhead-1"}


def test_a_later_router_settles_a_pod_that_never_started(began: StartedAttempt, flights_slice: Path) -> None:
    began.world.clock.sleep(ROUTER_RETRY_S)
    decision = again(began, flights_slice)
    assert decision.question.notes == ("attempt 1 lost: its pod never started",)
    assert began.ledger.state(began.account).settled_usd == {"ingest-1": Decimal(0)}


def test_a_stage_budget_applies_to_all_attempts_of_a_start(world: World, flights_slice: Path) -> None:
    p95_usd = begin(world, run_request(flights_slice, run_id="ample", needs=INGEST)).attempt.choice.p95_usd
    request = run_request(flights_slice, needs=INGEST)
    capped = request.with_terms(stage_budgets_usd={"ingest": p95_usd})
    began = begin(world, capped)
    settle_with(began, "gone", "lost")
    with pytest.raises(Refused, match="the stage's own budget is"):
        decide_and_reserve(world, began.run, capped, StageInputs())


def test_the_next_attempt_avoids_a_pool_with_a_stock_out(world: World, flights_slice: Path) -> None:
    began = begin(world, run_request(flights_slice, needs=INGEST))
    began.ledger.settle(began.account, "ingest-1", Decimal(0), "given up")
    now = world.clock.now()
    found = StockOut(
        node_pool="cpu-1",
        market=Market.ON_DEMAND,
        at=now,
        until=now + timedelta(minutes=15),
        reason="300 s for nothing",
    )
    world.store.put("learned/stock-outs/cpu-1-on-demand.json", record_bytes(found))
    decision = again(began, flights_slice)
    assert decision.choice is not None and decision.choice.pool == "cpu-2"
    assert "300 s for nothing" in as_text(decision)
    world.clock.sleep(15 * 60)
    settle_run(world, "r")
    later = begin(world, run_request(flights_slice, run_id="later", needs=INGEST))
    assert (later.attempt.choice.pool, later.attempt.decision.question.stockouts) == ("cpu-1", ())


class DyingRouter(FolderStore):
    """A store that fails at the first write of a decision under its key."""

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = "standard"
    ) -> bool:
        if "/decisions/" in key:
            raise StoreError("the router died")
        return super().put(key, data, if_absent=if_absent, storage_class=storage_class)


@pytest.mark.parametrize(
    ("later_s", "hold", "pool"), [(1, "ingest-1", "cpu-1"), (ROUTER_RETRY_S + 1, "ingest-2", "cpu-2")]
)
def test_a_router_that_died_after_its_reservation_returns_its_decision_though_offers_have_changed(
    world: World, flights_slice: Path, tmp_path: Path, later_s: float, hold: str, pool: str
) -> None:
    request = run_request(flights_slice, needs=INGEST)
    run = admit(world, request)
    with pytest.raises(StoreError):
        decide_and_reserve(on(world, DyingRouter(tmp_path / "store")), run, request, StageInputs())
    world.clock.sleep(later_s)
    decision, key = decide_and_reserve(on_cluster(world, (LARGE,))[0], run, request, StageInputs())
    assert decision.choice is not None
    assert (key, decision.choice.pool) == (f"runs/r/decisions/{hold}.json", pool)
    state = Ledger(world.store, world.clock).state("r")
    assert {name: held.amount_usd for name, held in state.reservations.items() if name != "overhead-1"} == {
        hold: decision.choice.p95_usd
    }
    verify(world.store, load_anchors(world.store))


def test_concurrent_routers_of_one_attempt_return_the_same_decision(
    world: World, flights_slice: Path
) -> None:
    request = run_request(flights_slice, needs=INGEST)
    run, gate, found = admit(world, request), threading.Barrier(4), []

    def route(number: int) -> None:
        # Two of the four routers see both pools; the other two see only the large one.
        own_world = on_cluster(world, (SMALL, LARGE) if number % 2 else (LARGE,))[0]
        gate.wait()
        found.append(decide_and_reserve(own_world, run, request, StageInputs()))

    routers = [threading.Thread(target=route, args=(number,)) for number in range(4)]
    for router in routers:
        router.start()
    for router in routers:
        router.join()
    assert len(found) == 4
    assert {key for _, key in found} == {"runs/r/decisions/ingest-1.json"}
    assert len({record_bytes(decision) for decision, _ in found}) == 1
    state = Ledger(world.store, world.clock).state("r")
    assert state.reservations.keys() == {"ingest-1", "overhead-1"}
    assert state.reservations["ingest-1"].amount_usd == found[0][0].choice.p95_usd
