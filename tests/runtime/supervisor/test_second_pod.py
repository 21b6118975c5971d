"""A second pod of a decision: it gets an attempt of its own where it is, or ends at once."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
import yaml
from commands import command
from runtime_world import (
    INGEST,
    StartedAttempt,
    attempt_in_pod,
    begin,
    on_cluster,
    pod_environment,
    run_request,
    small_world,
)
from second_pods import (
    FIRST,
    LARGE,
    RECEIPT,
    SECOND,
    SMALL,
    THIRD,
    ActingClock,
    end_first_pod,
    first_attempt,
    in_pod,
    lifetimes_of,
    lose_first_pod,
    run_first_pod,
    second_pod,
)

from shoestring.config.engines import Engine
from shoestring.core.errors import Refused, StageFailed
from shoestring.core.interfaces import PodLifetime
from shoestring.core.money import MICRO
from shoestring.core.pod_ref import PodRef
from shoestring.core.receipt import Cause, Receipt
from shoestring.core.types import Market, StageOutcome
from shoestring.data.run_records import read_record
from shoestring.runtime.admission.stage_request import StageInputs
from shoestring.runtime.records.overhead import (
    STEP_SERVER_S,
    overhead_excess_usd,
    overhead_timer,
    overhead_times,
    read_overhead,
)
from shoestring.runtime.route_step.retry import SILENT_EXIT_S
from shoestring.runtime.route_step.route import decide_and_reserve
from shoestring.runtime.route_step.second_pod import admit_second_pod
from shoestring.runtime.supervisor.attempt_lock import lock_attempt
from shoestring.runtime.supervisor.child import ChildResult
from shoestring.runtime.supervisor.run_stage import settle_and_record
from shoestring.runtime.supervisor.supervisor import write_heartbeat
from shoestring.spending.audit.verify import load_anchors, verify
from shoestring.spending.heartbeat import SILENT, last_heartbeat
from shoestring.spending.meter import cost_usd


@pytest.fixture
def began(laptop: Path, flights_slice: Path, tmp_path: Path) -> StartedAttempt:
    return first_attempt(laptop, flights_slice, tmp_path)


def test_a_second_pod_gets_an_attempt_of_its_own_where_it_is(began: StartedAttempt) -> None:
    lose_first_pod(began, PodLifetime(alive=False, reason="Evicted", finished_at=began.world.clock.now()))
    decision = second_pod(began)
    first = read_record(began.world.store, RECEIPT, Receipt)
    paid_usd = cost_usd(began.attempt.choice.usd_per_hour, 2 + began.world.policy.heartbeat_s)
    assert (first.status, first.cause, str(first.pod), first.spent_usd) == ("lost", "lost", FIRST, paid_usd)
    question, pod = decision.question, decision.question.existing_pod
    assert question.attempt == 2 and decision.choice is not None and pod is not None
    assert pod.decision_key == began.attempt.decision_key
    assert decision.choice.pool == pod.pool == began.attempt.choice.pool == "cpu-1"
    assert f"attempt 1 lost: {first.reason}" in question.notes
    state = began.ledger.state(began.account)
    assert state.reservations.keys() == {"ingest-2", "overhead-1"}
    assert state.reservations["ingest-2"].amount_usd == decision.choice.p95_usd
    assert question.spent_usd == first.spent_usd
    heartbeat = last_heartbeat(began.world.store, "r", "ingest-2")
    assert heartbeat is not None and str(heartbeat.pod) == SECOND
    verify(began.world.store, load_anchors(began.world.store))


def test_its_attempt_pays_for_all_of_its_pod_and_the_overhead_for_none_of_it(began: StartedAttempt) -> None:
    lose_first_pod(began)
    before_s = began.world.clock.monotonic_s()
    lifetimes_of(began)[SECOND] = PodLifetime(alive=True, started_at=began.world.clock.now())
    decision = second_pod(began)
    waited_s = began.world.clock.monotonic_s() - before_s
    assert waited_s >= SILENT_EXIT_S
    heartbeat = last_heartbeat(began.world.store, "r", "ingest-2")
    assert heartbeat is not None and (heartbeat.at - heartbeat.started_at).total_seconds() == waited_s
    setup_s = decision.question.needs[0].setup_s - began.attempt.decision.question.needs[0].setup_s
    pool = began.attempt.decision.question.pool("cpu-1")
    assert setup_s == pytest.approx((waited_s - pool.startup_s) * pool.core_speed)
    assert overhead_times(began.world, began.run, began.run.start) == []
    assert any(f"second-ingest-1.{SECOND}" in key for key in began.world.store.list("runs/r/overhead/1/"))


@pytest.mark.parametrize("cause", ["lost", "stop-requested", "store", "migrated"])
def test_a_pod_whose_first_was_ended_from_outside_goes_on(began: StartedAttempt, cause: Cause) -> None:
    end_first_pod(began, "stopped", cause)
    assert second_pod(began).question.notes[1:] == ("attempt 1 stopped: its reason",)


@pytest.mark.parametrize("cause", ["money", "code", "guardrail", "memory"])
def test_a_pod_that_would_end_like_the_first_ends_at_once_for_nothing(
    began: StartedAttempt, cause: Cause
) -> None:
    end_first_pod(began, "failed", cause)
    before, began_s = began.ledger.state(began.account), began.world.clock.monotonic_s()
    with pytest.raises(Refused, match=r"ingest is not tried again.*attempt 1 failed: its reason"):
        second_pod(began)
    assert began.ledger.state(began.account) == before
    assert began.world.clock.monotonic_s() == began_s
    assert list(began.world.store.list("runs/r/decisions/")) == [began.attempt.decision_key]
    (overhead,) = overhead_times(began.world, began.run, began.run.start)
    assert str(overhead.pod) == SECOND


@pytest.mark.parametrize(("engine", "missing_pods"), [("argo", 0), ("kubeflow", 0), ("local", 1)])
def test_the_overhead_reservation_of_an_engine_that_creates_pods_again_holds_one_that_gets_no_attempt(
    laptop: Path, flights_slice: Path, tmp_path: Path, engine: Engine, missing_pods: int
) -> None:
    world, _ = on_cluster(small_world(laptop, tmp_path, ActingClock()), (SMALL, LARGE))
    began = begin(world, replace(run_request(flights_slice, needs=INGEST), engine=engine))
    pod_s = began.run.start.overhead_pod_s
    with overhead_timer(world, began.run, "route-ingest"):
        world.clock.sleep(pod_s)
    end_first_pod(began, "failed", "code")
    second = PodLifetime(alive=True, started_at=world.clock.now())
    lifetimes_of(began)[SECOND] = second
    with pytest.raises(Refused, match="ingest is not tried again"):
        second_pod(began)
    world.clock.sleep(pod_s)
    lifetimes_of(began)[SECOND] = replace(second, alive=False, finished_at=world.clock.now())
    held_usd = began.ledger.state(began.account).reservations["overhead-1"].amount_usd
    # What is held for a server of steps is not used here.
    missing_s = max(0.0, missing_pods * pod_s - (STEP_SERVER_S if engine == "local" else 0.0))
    missing_usd = cost_usd(began.run.start.overhead_usd_per_hour, missing_s)
    # With the exit step, which is still to come; the cost of each of the three is rounded up.
    assert missing_usd <= overhead_excess_usd(world, began.run, held_usd) < missing_usd + 3 * MICRO


def test_a_pod_whose_first_was_killed_for_memory_ends_at_once(began: StartedAttempt) -> None:
    """A router would choose a larger pool. This pod has the memory that it has."""
    lose_first_pod(began, PodLifetime(alive=False, reason="OOMKilled", finished_at=began.world.clock.now()))
    with pytest.raises(Refused, match="ingest is not tried again"):
        second_pod(began)
    assert read_record(began.world.store, RECEIPT, Receipt).cause == "memory"


def test_the_command_of_such_a_pod_fails_with_the_first_reason(
    laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    began = begin(small_world(laptop, tmp_path), run_request(flights_slice, needs=INGEST))
    attempt = replace(began.attempt, world=replace(began.world, pod=PodRef.parse("elsewhere.1.1000")))
    write_heartbeat(attempt, "running")
    settle_and_record(attempt, ChildResult(status="failed", cause="code", reason="KeyError: 'tail'"))
    line = command("stage", "ingest", "--run-id", "r", "--decision-key", attempt.decision_key)
    pod = subprocess.run(line, env=pod_environment(laptop, tmp_path), capture_output=True, text=True)
    assert pod.returncode == 1
    assert "attempt 1 failed: KeyError: 'tail'" in pod.stderr
    state = began.ledger.state("r")
    assert state.spent_usd == state.settled_usd["ingest-1"]


def test_a_silent_first_pod_is_followed_by_one_more(began: StartedAttempt) -> None:
    run_first_pod(began)
    write_heartbeat(attempt_in_pod(began, FIRST), SILENT)
    lifetimes_of(began)[FIRST] = PodLifetime(alive=False)
    decision = second_pod(began)
    attempt = replace(
        began.attempt,
        world=in_pod(began, SECOND),
        decision=decision,
        decision_key="runs/r/decisions/ingest-2.json",
    )
    write_heartbeat(attempt, SILENT)
    lifetimes_of(began)[SECOND] = PodLifetime(alive=False)
    with pytest.raises(Refused, match=r"not tried again.*attempt 2 lost: it wrote no heartbeats"):
        second_pod(began, THIRD)


def test_a_third_pod_follows_the_second(began: StartedAttempt) -> None:
    lose_first_pod(began)
    second_pod(began)
    lifetimes_of(began)[SECOND] = PodLifetime(alive=False)
    decision = second_pod(began, THIRD)
    assert decision.question.attempt == 3
    assert began.ledger.state(began.account).reservations.keys() == {"ingest-3", "overhead-1"}


def test_a_pod_whose_first_completed_the_stage_returns_its_result(began: StartedAttempt) -> None:
    run_first_pod(began)
    outcome = StageOutcome(key="datasets/flights/1.json", rows=7)
    settle_and_record(attempt_in_pod(began, FIRST), ChildResult(status="done", outcome=outcome))
    lifetimes_of(began)[FIRST] = PodLifetime(alive=False)
    attempt = began.attempt
    found = lock_attempt(in_pod(began, SECOND), attempt.decision, attempt.choice, attempt.decision_key)
    assert found == outcome
    assert began.ledger.state(began.account).reservations.keys() == {"overhead-1"}
    assert read_overhead(began.world, began.run, began.run.start).spent_usd >= 0


def test_a_pod_whose_stage_was_routed_again_leaves_it_to_the_new_pod(
    began: StartedAttempt, flights_slice: Path
) -> None:
    lose_first_pod(began)
    decide_and_reserve(began.world, began.run, run_request(flights_slice, needs=INGEST), StageInputs())
    with pytest.raises(StageFailed, match="ingest-1 has ended, and ingest-2 was decided after it"):
        second_pod(began)
    assert "ingest-2" in began.ledger.state(began.account).reservations


def test_of_two_second_pods_one_gets_the_attempt(began: StartedAttempt) -> None:
    lose_first_pod(began)
    attempt = began.attempt
    found = [
        admit_second_pod(in_pod(began, pod), began.run, attempt.decision, attempt.decision_key)
        for pod in (SECOND, THIRD)
    ]
    assert found[0] == found[1]
    assert second_pod(began).question.attempt == 2
    with pytest.raises(Refused, match="while an earlier pod still runs: ingest-2"):
        second_pod(began, THIRD)


def spot_world(folder: Path, spot: str) -> Path:
    """Write a world with one pool, at $0.10 an hour on-demand and this price on spot."""
    pool = {"name": "cpu-1", "cores": 1, "memory_gb": 2, "markets": {"on-demand": {}, "spot": {}}}
    about = {"pool": "cpu-1", "as_of": "2026-11-01", "source": "a test"}
    prices = [about | {"market": "spot", "usd_per_hour": spot}]
    prices.append(about | {"market": "on-demand", "usd_per_hour": "0.10"})
    content = {"name": "one", "store": str(folder / "store"), "pools": [pool], "prices": prices}
    path = folder / "world.yaml"
    path.write_text(yaml.safe_dump(content | {"tariffs": {"storage_usd_per_gb_month": "0"}}))
    return path


def begin_on_spot(flights_slice: Path, folder: Path) -> StartedAttempt:
    world, _ = on_cluster(small_world(spot_world(folder, "0.04"), folder, ActingClock()))
    began = begin(world, run_request(flights_slice, needs=INGEST))
    assert began.attempt.choice.usd_per_hour == Decimal("0.04")
    return began


def test_a_pod_that_gets_no_attempt_pays_the_price_of_its_pool(flights_slice: Path, tmp_path: Path) -> None:
    began = begin_on_spot(flights_slice, tmp_path)
    end_first_pod(began, "failed", "code")
    with pytest.raises(Refused, match="ingest is not tried again"):
        second_pod(began)
    (overhead,) = overhead_times(began.world, began.run, began.run.start)
    assert overhead.usd_per_hour == Decimal("0.04") < began.run.start.overhead_usd_per_hour


def test_it_pays_the_price_of_now(flights_slice: Path, tmp_path: Path) -> None:
    """It stays on its market, whose price has risen since the first decision."""
    began = begin_on_spot(flights_slice, tmp_path)
    lose_first_pod(began)
    spot_world(tmp_path, "0.06")
    choice = second_pod(began).choice
    assert choice is not None and (choice.market, choice.usd_per_hour) == (Market.SPOT, Decimal("0.06"))


def test_its_deadline_is_counted_from_its_own_start(
    laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    world, _ = on_cluster(small_world(laptop, tmp_path, ActingClock()), (SMALL, LARGE))
    began = begin(world, run_request(flights_slice, needs=INGEST).with_terms(deadline_s=600.0))
    lose_first_pod(began)
    started_at = world.clock.now()
    lifetimes_of(began)[SECOND] = PodLifetime(alive=True, started_at=started_at)
    question = second_pod(began).question
    assert began.run.start.deadline_at is not None and question.deadline_left_s is not None
    ends_at = started_at + timedelta(seconds=question.deadline_left_s + question.engine_s)
    assert abs((ends_at - began.run.start.deadline_at).total_seconds()) < 0.01
    assert question.engine_s == Decimal(0)
