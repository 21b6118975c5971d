"""The reaper: no pod waits for ever, and the money of dead pods is released while the run continues."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from reaper_world import (
    QUEUE_S,
    SCHEDULER,
    SMALL,
    Queue,
    again,
    ingest_attempt,
    kill_pod,
    pending_pod,
    shares_world,
    waiting_step,
)
from runtime_world import INGEST, StartedAttempt, attempt_in_pod, begin, run_request

from shoestring.config.world import World
from shoestring.core.receipt import Receipt
from shoestring.core.types import Market, StockOut
from shoestring.data.run_records import read_record
from shoestring.runtime.admission.stage_request import StageInputs
from shoestring.runtime.records.lifetimes import IMAGE_PULL_S
from shoestring.runtime.records.receipt_history import current_stockouts
from shoestring.runtime.route_step.route import route
from shoestring.runtime.settlement.reap import reap
from shoestring.runtime.supervisor.supervisor import write_heartbeat
from shoestring.spending.audit.verify import load_anchors, verify
from shoestring.spending.meter import cost_usd


@pytest.fixture
def began(laptop: Path, flights_slice: Path, tmp_path: Path) -> StartedAttempt:
    return ingest_attempt(laptop, flights_slice, tmp_path)


def test_a_pod_that_no_node_accepts_in_time_times_out_and_its_stage_is_routed_elsewhere(
    began: StartedAttempt, flights_slice: Path
) -> None:
    assert began.attempt.choice.pool == "od/1"
    world, queue = began.world, Queue(pending_pod(began.world, QUEUE_S))
    sentences = reap(world, queue)
    reason = f"ingest of r waited 300 s for a node of od (on-demand): {SCHEDULER}"
    assert sentences == [f"ingest-pod timed out: {reason}"]
    assert len(queue.ended) == 1
    found = read_record(world.store, "learned/stock-outs/od-on-demand.json", StockOut)
    assert (found.node_pool, found.market, found.reason) == ("od", Market.ON_DEMAND, reason)
    assert found.until - found.at == timedelta(seconds=world.policy.stockout_ttl_s)
    receipt = read_record(world.store, "runs/r/receipts/ingest-1.json", Receipt)
    assert (receipt.status, receipt.cause, receipt.reason, receipt.spent_usd) == ("lost", "lost", reason, 0)
    assert began.ledger.state("r").reservations.keys() == {"overhead-1"}
    assert again(began, flights_slice) == "big/2"
    verify(world.store, load_anchors(world.store))


@pytest.mark.parametrize(
    ("label", "step"), [("route-train", "the route step of train"), ("settle", "the exit step")]
)
def test_a_route_or_exit_step_that_no_node_accepts_in_time_is_ended_with_a_sentence(
    began: StartedAttempt, label: str, step: str
) -> None:
    world = began.world
    queue = Queue(steps=(waiting_step(world, label, QUEUE_S), waiting_step(world, "route-new", QUEUE_S - 1)))
    reason = f"{step} of r waited 300 s for a node without taints: {SCHEDULER}"
    assert reap(world, queue) == [f"{label}-pod timed out: {reason}"]
    assert ([pod.stage for pod in queue.ended], queue.messages) == ([label], [reason])
    # No decision placed it: no pool is avoided, and nothing is released.
    assert current_stockouts(world.store, world.clock.now()) == ((), ())
    assert began.ledger.state("r").reservations.keys() == {"overhead-1", "ingest-1"}
    assert reap(world, queue) == []


def test_a_step_that_a_node_has_just_accepted_is_not_ended(began: StartedAttempt) -> None:
    queue = Queue(steps=(waiting_step(began.world, "settle", QUEUE_S),), taken=True)
    assert (reap(began.world, queue), queue.ended) == ([], [])


@pytest.mark.parametrize("seconds", [0, QUEUE_S - 1])
def test_a_pod_within_its_waiting_time_is_left_alone(began: StartedAttempt, seconds: float) -> None:
    queue = Queue(pending_pod(began.world, seconds))
    assert reap(began.world, queue) == []
    assert (len(queue.ended), list(began.world.store.list("learned/stock-outs/"))) == (0, [])
    assert "ingest-1" in began.ledger.state("r").reservations


def test_a_pod_that_a_node_has_just_accepted_keeps_its_reservation_and_is_no_stock_out(
    began: StartedAttempt,
) -> None:
    assert reap(began.world, Queue(pending_pod(began.world, QUEUE_S), taken=True)) == []
    assert current_stockouts(began.world.store, began.world.clock.now()) == ((), ())
    assert "ingest-1" in began.ledger.state("r").reservations


def test_a_pod_waits_longer_for_a_node_that_has_to_be_created(
    laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    world = shares_world(laptop, tmp_path, (SMALL.model_copy(update={"startup_s": 400.0}),))
    begin(world, run_request(flights_slice, needs=INGEST, budget_usd=Decimal(1)))
    queues = [Queue(pending_pod(world, seconds)) for seconds in (QUEUE_S + 399, QUEUE_S + 400)]
    assert [(len(reap(world, queue)), len(queue.ended)) for queue in queues] == [(0, 0), (1, 1)]


def test_a_pod_that_was_accepted_late_has_its_full_time_on_the_node(began: StartedAttempt) -> None:
    queue = Queue(
        replace(
            pending_pod(began.world, QUEUE_S - 1, node="worker-1", reason="ErrImagePull"),
            since=began.run.start.started_at,
        )
    )
    began.world.clock.sleep(0.5)
    assert (reap(began.world, queue), len(queue.ended)) == ([], 0)


@pytest.mark.parametrize(("seconds", "ended"), [(QUEUE_S, 0), (IMAGE_PULL_S - 1, 0), (IMAGE_PULL_S, 1)])
def test_a_pod_that_may_be_pulling_a_large_image_is_left_alone(
    began: StartedAttempt, seconds: float, ended: int
) -> None:
    queue = Queue(pending_pod(began.world, seconds, node="worker-1", reason=""))
    reap(began.world, queue)
    assert len(queue.ended) == ended


def test_a_late_pod_that_its_node_is_ending_is_not_ended_again(began: StartedAttempt) -> None:
    pod = replace(pending_pod(began.world, QUEUE_S, node="worker-1", reason="ErrImagePull"), ending=True)
    queue = Queue(pod)
    assert (reap(began.world, queue), queue.ended) == ([], [])


def test_a_pod_of_an_unknown_run_times_out_too(began: StartedAttempt) -> None:
    queue = Queue(pending_pod(began.world, QUEUE_S, run_id="elsewhere"))
    assert "this store has no decision" in reap(began.world, queue)[0]
    assert len(queue.ended) == 1
    assert "ingest-1" in began.ledger.state("r").reservations


def test_a_pod_is_matched_to_its_run_by_the_engines_id(
    began: StartedAttempt, flights_slice: Path, tmp_path: Path
) -> None:
    request = replace(run_request(flights_slice, needs=INGEST), job_id="0d3f-job")
    route(began.world, request, StageInputs(), str(tmp_path / "decision.json"), str(tmp_path / "page.md"))
    (sentence,) = reap(began.world, Queue(pending_pod(began.world, QUEUE_S, run_id="0d3f-job")))
    assert "ingest of r waited" in sentence
    assert "ingest-1" not in began.ledger.state("r").reservations


def test_the_reservation_of_a_dead_silent_pod_is_released_and_the_run_continues(
    began: StartedAttempt,
) -> None:
    kill_pod(began)
    assert reap(began.world, Queue()) == []
    began.world.clock.sleep(QUEUE_S + 1)
    (sentence,) = reap(began.world, Queue())
    assert "ingest-1 settled at" in sentence and "its pod ended without settling" in sentence
    state = began.ledger.state("r")
    assert (state.reservations.keys(), state.closed) == ({"overhead-1"}, False)
    assert state.spent_usd == cost_usd(began.attempt.choice.usd_per_hour, 3)
    assert reap(began.world, Queue()) == []


def test_a_pod_that_is_alive_is_left_alone_even_if_silent(began: StartedAttempt) -> None:
    write_heartbeat(attempt_in_pod(began, "ns.1.ingest"), "running")
    began.world.clock.sleep(QUEUE_S + 1)
    assert reap(began.world, Queue()) == []


def test_the_reservation_of_a_pod_that_never_came_is_released_unless_it_is_pending(
    began: StartedAttempt,
) -> None:
    began.world.clock.sleep(QUEUE_S + IMAGE_PULL_S)
    assert reap(began.world, Queue()) == []
    began.world.clock.sleep(1)
    assert reap(began.world, Queue(pending_pod(began.world, 10))) == []
    (sentence,) = reap(began.world, Queue())
    assert "ingest-1 settled at $0.000000" in sentence


def test_an_error_in_one_run_does_not_stop_the_reaper(began: StartedAttempt, flights_slice: Path) -> None:
    kill_pod(began)
    other = begin(began.world, run_request(flights_slice, run_id="other", needs=INGEST))
    began.world.clock.sleep(QUEUE_S + 1)
    began.world.store.put("runs/other/heartbeats/ingest-1.json", b"{}")
    sentences = reap(began.world, Queue())
    assert any("ingest-1 settled at" in each for each in sentences) and any(
        "other could not be settled" in each for each in sentences
    )
    assert other.ledger.state("other").reservations.keys() == {"ingest-1", "overhead-1"}
    assert began.ledger.state("r").settled_usd["ingest-1"] > Decimal(0)


def by_a_newer_version(world: World, key: str) -> None:
    """Add a field to the record that this version does not know."""
    found = json.loads(world.store.fetch(key).read_bytes())
    world.store.put(key, json.dumps(found | {"of_tomorrow": 1}).encode())


@pytest.mark.parametrize("key", ["run.json", "starts/1.json"])
def test_a_record_of_another_version_does_not_stop_the_reaper(
    began: StartedAttempt, flights_slice: Path, key: str
) -> None:
    kill_pod(began)
    other = begin(began.world, run_request(flights_slice, run_id="other", needs=INGEST))
    write_heartbeat(other.attempt, "running")
    began.world.clock.sleep(QUEUE_S + 1)
    by_a_newer_version(began.world, f"runs/other/{key}")
    sentences = reap(began.world, Queue(pending_pod(began.world, QUEUE_S + 1, run_id="other")))
    assert any("ingest-1 settled at" in each for each in sentences)
    assert any(
        "other could not be settled" in each and "of_tomorrow" in each and "use the version" in each
        for each in sentences
    )


def test_a_pod_of_a_run_with_unreadable_records_times_out_too(began: StartedAttempt) -> None:
    by_a_newer_version(began.world, "runs/r/decisions/ingest-1.json")
    queue = Queue(pending_pod(began.world, QUEUE_S + 1))
    reap(began.world, queue)
    assert queue.waiting == []


def test_an_account_of_another_version_does_not_stop_the_settlement_of_its_month(
    began: StartedAttempt,
) -> None:
    by_a_newer_version(began.world, "ledger/r/00000001.json")
    assert any("r in" in each and "could not be repaired" in each for each in reap(began.world, Queue()))
