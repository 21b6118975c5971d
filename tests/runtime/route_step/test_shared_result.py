"""Runs that need the same result: one computes it, and the others wait for it before they reserve money."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from runtime_world import CHAIN, INGEST
from sharing_runs import HOLDER_POD, SharedStore, key_of, publish

from shoestring.core import store_layout
from shoestring.core.interfaces import PodLifetime
from shoestring.core.pod_ref import PodRef
from shoestring.data.storage.leases import Lease, newest_lease, take_lease
from shoestring.routing.analysis.engine_step import EngineStep, step_between
from shoestring.routing.decision import reserved_later_s
from shoestring.runtime.admission.result_keys import StageInputs, StageWork, record_libraries
from shoestring.runtime.records.overhead import OverheadPod, overhead_timer, read_overhead
from shoestring.runtime.records.receipts import AttemptResult, make_receipt
from shoestring.runtime.route_step.lease_holder import RESERVED_WITHIN_S
from shoestring.runtime.route_step.shared_result import MAX_WAIT_S, SharedResult, wait_limit
from shoestring.spending.heartbeat import MIN_SILENCE_S
from shoestring.spending.ledger.ledger import Ledger

FIVE_MINUTES_S = 300.0
SKEWS = pytest.mark.parametrize(
    ("holder_s", "waiter_s"),
    [(0.0, 0.0), (FIVE_MINUTES_S, -FIVE_MINUTES_S), (-FIVE_MINUTES_S, FIVE_MINUTES_S)],
)


@pytest.fixture
def shared(laptop: Path, flights_slice: Path, tmp_path: Path) -> SharedStore:
    return SharedStore(laptop, flights_slice, tmp_path)


def reserved(shared: SharedStore, name: str) -> set[str]:
    return set(Ledger(shared.store, shared.machine("reader").clock).state(name).reservations)


@SKEWS
def test_a_run_waits_for_the_result_and_pays_nothing_for_it(
    shared: SharedStore, holder_s: float, waiter_s: float
) -> None:
    held = shared.hold(skew_s=holder_s)
    shared.beats_until(held, 20, lambda: publish(held))
    waiter, pod = shared.machine("waiter", waiter_s), OverheadPod()
    decision = shared.route(waiter, shared.admit(waiter, "waiter"), pod)
    assert decision.choice is not None and decision.choice.cached
    assert reserved(shared, "waiter") == {"overhead-1"}
    assert 20 <= pod.waited_s < 23 and decision.question.waited_s == round(pod.waited_s, 3)
    assert decision.question.notes[-1] == (
        f"waited {pod.waited_s:.1f} s for holder, which computed the same ingest: nothing is paid for it"
    )
    assert shared.leases() == ["000001.json"]


@SKEWS
def test_a_holder_without_heartbeats_is_taken_over_from(
    shared: SharedStore, holder_s: float, waiter_s: float
) -> None:
    held = shared.hold(skew_s=holder_s)
    shared.beats_until(held, 4, lambda: None)
    waiter, pod = shared.machine("waiter", waiter_s), OverheadPod()
    decision = shared.route(waiter, shared.admit(waiter, "waiter"), pod)
    assert decision.choice is not None and not decision.choice.cached
    assert "ingest-1" in reserved(shared, "waiter")
    assert 3 + MIN_SILENCE_S < pod.waited_s < 3 + MIN_SILENCE_S + 5
    assert "left no result for other runs (its last heartbeat is 1" in decision.question.notes[-1]
    newest = newest_lease(shared.store, key_of(held))
    assert newest is not None and newest.lease is not None
    assert (newest.fence, newest.lease.run_id) == (2, "waiter")
    # The first holder wakes after all: its result counts only if it is the first.
    assert publish(held, rows=7).rows == 7
    assert publish(held, rows=8).rows == 7


def test_a_holder_whose_pod_has_ended_is_taken_over_from_at_once(shared: SharedStore) -> None:
    held = shared.hold()
    shared.beat(held)
    shared.lifetimes[HOLDER_POD] = PodLifetime(alive=False)
    waiter, pod = shared.machine("waiter"), OverheadPod()
    assert shared.route(waiter, shared.admit(waiter, "waiter"), pod).question.waited_s == 0
    assert shared.leases() == ["000001.json", "000002.json"]


def test_a_router_that_died_before_it_reserved_is_not_waited_for(shared: SharedStore) -> None:
    held = shared.hold()
    held.ledger.settle(held.account, "ingest-1", held.attempt.reserved_usd)
    waiter = shared.machine("waiter")
    shared.route(waiter, shared.admit(waiter, "waiter"))
    assert shared.leases() == ["000001.json", "000002.json"]


def lease_of(run_id: str, expected_s: float = 1.0, attempt: int = 1) -> Lease:
    return Lease(
        run_id=run_id,
        account=run_id,
        stage="ingest",
        attempt=attempt,
        router=PodRef.parse("router.3.3"),
        launcher=None,
        expected_s=expected_s,
    )


@pytest.mark.parametrize(("is_alive", "waited_s"), [(False, 0.0), (True, RESERVED_WITHIN_S)])
def test_a_lease_without_a_reservation_lasts_as_long_as_its_router_and_a_minute_at_most(
    shared: SharedStore, is_alive: bool, waited_s: float
) -> None:
    held = shared.hold("other")
    shared.time.tick = lambda at_s: None
    assert take_lease(
        shared.store, key_of(held), newest_lease(shared.store, key_of(held)), lease_of("other", 1, 2)
    )
    shared.lifetimes["router.3.3"] = PodLifetime(alive=is_alive)
    waiter, pod = shared.machine("waiter"), OverheadPod()
    shared.route(waiter, shared.admit(waiter, "waiter"), pod)
    assert waited_s <= pod.waited_s <= 1.2 * waited_s
    assert shared.leases()[-1] == "000003.json"


def test_a_wait_that_could_miss_the_deadline_is_not_begun(shared: SharedStore) -> None:
    held = shared.hold()
    shared.beats_until(held, 10_000, lambda: None)
    slow = lease_of("holder", expected_s=5000)
    assert take_lease(shared.store, key_of(held), newest_lease(shared.store, key_of(held)), slow)
    waiter, pod = shared.machine("waiter"), OverheadPod()
    decision = shared.route(waiter, shared.admit(waiter, "waiter", CHAIN, deadline_s=600), pod)
    assert decision.choice is not None and not decision.choice.cached
    assert pod.waited_s == 0
    assert (
        "computes by itself, although holder computes the same ingest, for 5000 s more"
        in (decision.question.notes[-1])
    )
    assert "could miss the deadline" in decision.question.notes[-1]
    # The holder keeps its lease.
    assert shared.leases() == ["000001.json", "000002.json"]


def test_a_wait_ends_while_the_deadline_can_still_be_met(shared: SharedStore) -> None:
    held = shared.hold()
    shared.beats_until(held, 10_000, lambda: None)
    waiter, pod = shared.machine("waiter"), OverheadPod()
    decision = shared.route(waiter, shared.admit(waiter, "waiter", INGEST, deadline_s=600), pod)
    assert decision.choice is not None and decision.question.deadline_left_s is not None
    assert 400 < pod.waited_s < 600
    spare_s = decision.question.deadline_left_s - decision.choice.p95_s - reserved_later_s(decision)
    assert 0 <= spare_s < 1
    assert "could miss the deadline" in decision.question.notes[-1]


def test_without_a_deadline_a_run_may_wait_for_a_day(shared: SharedStore) -> None:
    held = shared.hold()
    limit = wait_limit(held.world, held.run, held.attempt.decision, held.attempt.choice, Decimal(0))
    assert limit.seconds == MAX_WAIT_S


def test_no_attempt_and_no_start_of_a_run_waits_for_another_of_its_own(shared: SharedStore) -> None:
    held = shared.hold()
    shared.beat(held)
    shared.lifetimes[HOLDER_POD] = PodLifetime(alive=False, finished_at=held.world.clock.now())
    again = shared.route(held.world, held.run)
    assert (again.question.attempt, again.question.waited_s) == (2, 0)
    newest = newest_lease(shared.store, key_of(held))
    assert newest is not None and newest.lease is not None
    assert (newest.fence, str(newest.lease.attempt_id)) == (2, "ingest-2")
    # Its second attempt still has its reservation.
    resumed = shared.route(held.world, shared.admit(held.world, "holder"))
    assert (resumed.question.attempt, resumed.question.waited_s) == (3, 0)
    assert shared.leases()[-1] == "000003.json"


def test_a_pod_that_is_paid_for_does_not_wait(shared: SharedStore) -> None:
    held = shared.hold()
    shared.beats_until(held, 10_000, lambda: None)
    waiter = shared.machine("waiter")
    run = shared.admit(waiter, "waiter")
    sharing = SharedResult(waiter, run, Ledger(shared.store, waiter.clock), OverheadPod(), can_wait=False)
    decision, choice = held.attempt.decision, held.attempt.choice
    assert not sharing.claim(decision, choice, choice.p95_usd)
    assert sharing.claim(decision, choice, choice.p95_usd)
    assert "this pod is paid for already" in sharing.notes[0]
    assert shared.time.at_s == 0


def test_a_stage_whose_results_belong_to_their_runs_is_waited_for_once(shared: SharedStore) -> None:
    first = shared.hold("first")
    shared.beat(first)
    waiter, pod = shared.machine("waiter"), OverheadPod()
    run = shared.admit(waiter, "waiter")
    second = lease_of("second")
    shared.admit(shared.machine("second"), "second")

    def another_takes_over(at_s: float) -> None:
        if at_s == 10:
            shared.beat(first, state="done")
            assert take_lease(shared.store, key_of(first), newest_lease(shared.store, key_of(first)), second)
        elif at_s < 10:
            shared.beat(first)

    shared.time.tick = another_takes_over
    decision = shared.route(waiter, run, pod)
    assert 10 <= pod.waited_s < 12
    assert "what it waited for before left no result" in decision.question.notes[-1]


def test_a_damaged_entry_is_made_again_by_one(shared: SharedStore) -> None:
    held = shared.hold()
    entry = store_layout.cache_entry(key_of(held))
    shared.store.put(entry, b"{")
    shared.beats_until(held, 15, lambda: publish(held))
    waiter, pod = shared.machine("waiter"), OverheadPod()
    decision = shared.route(waiter, shared.admit(waiter, "waiter"), pod)
    assert decision.choice is not None and decision.choice.cached
    assert 15 <= pod.waited_s < 18


def test_on_a_cluster_a_wait_costs_at_most_what_the_plan_leaves_of_the_budget(shared: SharedStore) -> None:
    held = shared.hold()
    shared.beats_until(held, 10_000, lambda: None)
    pod_world = replace(shared.machine("waiter"), pod=PodRef.parse("ns.0.router"))
    image = held.world.images["base"]
    work = StageWork(held.run.record.recipe, 0, "", "ingest", image, StageInputs())
    record_libraries(pod_world, work)
    run, pod = shared.admit(pod_world, "waiter"), OverheadPod()
    decision = shared.route(pod_world, run, pod)
    assert decision.question.digests["cache"] == key_of(held)
    assert decision.choice is not None and not decision.choice.cached
    spare_usd = decision.question.left_usd - decision.choice.p95_usd
    most_s = float(spare_usd * 3600 / run.start.overhead_usd_per_hour)
    assert 0.98 * most_s < pod.waited_s < 1.02 * most_s
    assert "would cost more than the plan leaves of the budget" in decision.question.notes[-1]


@pytest.mark.parametrize(("name", "charged_s"), [("waiter.1.1", 5.0), ("ns.0.router", 35.0)])
def test_a_process_waits_for_nothing_and_a_pod_for_the_price_of_overhead(
    shared: SharedStore, name: str, charged_s: float
) -> None:
    world = replace(shared.machine("waiter"), pod=PodRef.parse(name))
    run = shared.admit(shared.machine("waiter"), "waiter")
    with overhead_timer(world, run, "route-ingest") as pod:
        world.clock.sleep(35)
        pod.waited_s = 30.0
    found = read_overhead(world, run, run.start)
    per_s = run.start.overhead_usd_per_hour / 3600
    assert float(found.spent_usd / per_s) == pytest.approx(charged_s, rel=0.05)
    # What a pod takes that decides is learned without the wait.
    assert found.measured_pods_s == pytest.approx((5.0,), abs=0.01)


def test_a_step_with_a_wait_teaches_nothing_about_the_engine(shared: SharedStore) -> None:
    decision = shared.hold().attempt.decision
    question, asked_at = decision.question, decision.question.asked_at
    assert question.engine is not None
    result = AttemptResult(
        decision_key="runs/holder/decisions/ingest-9.json",
        pod=None,
        status="done",
        started_at=asked_at + timedelta(seconds=4),
        finished_at=asked_at,
        spent_usd=Decimal(0),
        ledger_head="",
    )
    after = make_receipt(decision, result)
    before = after.model_copy(update={"stage": "load"})
    for waited_s, step in ((0.0, EngineStep(4.0, 4.0, question.engine.step_s)), (3.0, None)):
        assert step_between(before, after, question.model_copy(update={"waited_s": waited_s})) == step
