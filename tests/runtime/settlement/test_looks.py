"""The reaper's looks: silent pods, and pods beyond their money, are ended; an unreachable store ends none."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from reaper_world import again
from running_world import RunningRuns, running_runs
from runtime_world import INGEST, FakeCluster, run_request

from shoestring.core.errors import ClusterError, Refused
from shoestring.core.receipt import Receipt
from shoestring.core.record import record_bytes
from shoestring.data.run_records import read_record
from shoestring.routing.placement import KUBEFLOW_RUN_LABEL, STAGE_LABEL
from shoestring.runtime.route_step.external_components import announce_external
from shoestring.runtime.settlement.looks import (
    SLOW_PROBE_S,
    look_for,
    look_numbers,
    open_watch,
)
from shoestring.runtime.settlement.settle import settle_run
from shoestring.runtime.supervisor.supervisor import write_heartbeat
from shoestring.spending.audit.verify import load_anchors, verify
from shoestring.spending.heartbeat import last_heartbeat
from shoestring.spending.meter import cost_usd

RICH = Decimal("0.1")
LIMIT_S, EVERY_S = 10, 5


@pytest.fixture
def runs(laptop: Path, tmp_path: Path) -> RunningRuns:
    return running_runs(laptop, tmp_path)


def silent_receipt(runs: RunningRuns, flights_slice: Path, run_id: str) -> Receipt:
    again(runs.attempts[run_id], flights_slice)
    return read_record(runs.world.store, f"runs/{run_id}/receipts/ingest-1.json", Receipt)


def test_one_silent_pod_of_three_is_ended_and_pays_up_to_its_end(
    runs: RunningRuns, flights_slice: Path
) -> None:
    for run_id in ("r", "s", "t"):
        runs.start(flights_slice, run_id, RICH)
    assert runs.run(20) == []
    runs.silent = {"r"}
    said = runs.run(LIMIT_S + EVERY_S + 1)
    assert runs.queue.ended == {"r": "Silent"}
    assert len(said) == 1 and said[0].startswith("r-pod was ended (ingest-1 of r): its last heartbeat is ")
    receipt = silent_receipt(runs, flights_slice, "r")
    assert (receipt.status, receipt.cause) == ("lost", "silent")
    lived_s = receipt.seconds
    assert 20 + LIMIT_S <= lived_s <= 20 + LIMIT_S + EVERY_S
    assert receipt.spent_usd == cost_usd(runs.attempts["r"].attempt.choice.usd_per_hour, lived_s)
    verify(runs.world.store, load_anchors(runs.world.store))


def test_a_silent_pod_pays_on_demand_from_its_last_heartbeat_on(
    runs: RunningRuns, flights_slice: Path
) -> None:
    runs.start(flights_slice, "r", RICH)
    runs.run(20)
    last = last_heartbeat(runs.world.store, "r", "ingest-1")
    assert last
    spot_usd = last.usd_per_hour
    floating = last.model_copy(update={"unread_usd_per_hour": spot_usd * 2})
    runs.world.store.put("runs/r/heartbeats/ingest-1.json", record_bytes(floating))
    runs.silent = {"r"}
    runs.run(LIMIT_S + EVERY_S + 1)
    receipt = silent_receipt(runs, flights_slice, "r")
    assert [(price.usd_per_hour, price.at) for price in receipt.prices[-1:]] == [(spot_usd * 2, last.at)]
    assert receipt.spent_usd > cost_usd(spot_usd, receipt.seconds)


def test_a_store_that_is_away_for_three_intervals_ends_none_of_four_pods(
    runs: RunningRuns, flights_slice: Path
) -> None:
    for run_id in ("r", "s", "t", "u"):
        runs.start(flights_slice, run_id, RICH)
    runs.run(20)
    runs.store.away = True
    said = runs.run(3 * LIMIT_S)
    assert said and all("no running pod was judged: the store does not keep" in each for each in said)
    runs.store.away = False
    # The store is back, and no supervisor has written yet.
    assert runs.watch.look() == []
    assert (runs.run(40), runs.queue.ended) == ([], {})


def test_the_only_running_pod_is_not_ended_for_the_time_in_which_the_store_was_away(
    runs: RunningRuns, flights_slice: Path
) -> None:
    runs.start(flights_slice, "r", RICH)
    runs.run(20)
    runs.store.away, runs.silent = True, {"r"}
    runs.run(3 * LIMIT_S)
    runs.store.away = False
    assert (runs.run(LIMIT_S), runs.queue.ended) == ([], {})
    runs.run(LIMIT_S)
    assert runs.queue.ended == {"r": "Silent"}


def test_silence_counts_anew_after_a_slow_answer_of_the_store(runs: RunningRuns, flights_slice: Path) -> None:
    runs.start(flights_slice, "r", RICH)
    runs.run(20)
    runs.store.slow_s = LIMIT_S + SLOW_PROBE_S
    assert runs.watch.look() == []
    runs.store.slow_s = 0.0
    runs.silent = {"r"}
    assert (runs.run(LIMIT_S), runs.queue.ended) == ([], {})


@pytest.mark.parametrize(("gap_s", "ended"), [(6, {"r": "Silent"}), (9, {}), (60, {})])
def test_silence_counts_on_from_reaper_to_reaper_unless_there_is_a_gap(
    runs: RunningRuns, flights_slice: Path, gap_s: int, ended: dict[str, str]
) -> None:
    runs.start(flights_slice, "r", RICH)
    runs.run(20)
    runs.silent = {"r"}
    runs.run(6)
    runs.world.clock.sleep(gap_s - 1)
    open_watch(runs.world, runs.queue, runs.store).look()
    assert runs.queue.ended == ended


def test_pods_that_are_silent_together_are_an_alert_and_are_not_ended(
    runs: RunningRuns, flights_slice: Path
) -> None:
    for run_id in ("r", "s", "t"):
        runs.start(flights_slice, run_id, RICH)
    runs.run(5)
    runs.silent = {"r", "s"}
    said = runs.run(LIMIT_S + EVERY_S + 1)
    assert runs.queue.ended == {} and said
    assert said[0].startswith("alert: 2 of 3 running pods are silent together, so none of them is ended")
    assert "r-pod, s-pod" in said[0]


def test_a_pod_that_is_being_ended_is_not_judged_again_and_not_counted(
    runs: RunningRuns, flights_slice: Path
) -> None:
    for run_id in ("r", "s"):
        runs.start(flights_slice, run_id, RICH)
    runs.run(5)
    runs.queue.ending, runs.silent = {"r"}, {"r", "s"}
    runs.run(LIMIT_S + EVERY_S + 1)
    assert runs.queue.ended == {"s": "Silent"}


def test_the_policy_sets_the_number_of_silent_intervals(runs: RunningRuns, flights_slice: Path) -> None:
    policy = runs.world.policy.model_copy(update={"silent_intervals": 30.0})
    runs.watch.world = runs.world = replace(runs.world, policy=policy)
    runs.start(flights_slice, "r", RICH)
    runs.run(5)
    runs.silent = {"r"}
    runs.run(25)
    assert runs.queue.ended == {}
    runs.run(11)
    assert runs.queue.ended == {"r": "Silent"}


def test_a_component_without_a_meter_is_judged_by_money_alone(runs: RunningRuns, flights_slice: Path) -> None:
    began = runs.start(flights_slice, "r")
    runs.start(flights_slice, "s", RICH)
    announce_external(runs.world, began.attempt.decision, "r")
    runs.silent = {"r"}
    choice = began.attempt.choice
    affordable_s = int(Decimal("0.01") / choice.usd_per_hour * 3600)
    state = began.ledger.state("r")
    most_usd = state.reservations["ingest-1"].amount_usd + (state.left_usd or 0)
    end_s = int(most_usd / choice.usd_per_hour * 3600)
    assert 60 < end_s <= affordable_s
    runs.run(end_s - 1)
    assert runs.queue.ended == {}
    runs.run(10)
    assert runs.queue.ended == {"r": "OutOfMoney"}
    cluster = runs.world.cluster
    assert isinstance(cluster, FakeCluster)
    cluster.lifetimes[f"ns?{STAGE_LABEL}=ingest,{KUBEFLOW_RUN_LABEL}=r"] = cluster.lifetimes["ns.r.r-pod"]
    settle_run(runs.world, "r")
    receipt = read_record(runs.world.store, "runs/r/receipts/ingest-1.json", Receipt)
    assert (receipt.cause, receipt.status) == ("money", "failed")


@pytest.mark.parametrize("heartbeats", [True, False])
def test_a_pod_beyond_its_money_is_ended_within_ten_seconds_and_not_retried(
    runs: RunningRuns, flights_slice: Path, heartbeats: bool
) -> None:
    began = runs.start(flights_slice, "r")
    if not heartbeats:
        runs.silent = {"r"}
    state = began.ledger.state("r")
    most_usd = state.reservations["ingest-1"].amount_usd + (state.left_usd or 0)
    end_s = float(most_usd / began.attempt.choice.usd_per_hour * 3600)
    runs.run(int(end_s))
    assert runs.queue.ended == {}
    runs.run(10)
    assert runs.queue.ended == {"r": "OutOfMoney"}
    with pytest.raises(Refused, match="ingest is not tried again"):
        again(began, flights_slice)
    receipt = read_record(runs.world.store, "runs/r/receipts/ingest-1.json", Receipt)
    assert (receipt.status, receipt.cause) == ("lost", "money")
    assert most_usd == receipt.spent_usd and receipt.overrun_usd > 0


def test_a_silent_attempt_is_retried_once(runs: RunningRuns, flights_slice: Path) -> None:
    first = runs.start(flights_slice, "r", RICH)
    runs.run(5)
    runs.silent = {"r"}
    runs.run(20)
    runs.silent = set()
    runs.again("r", run_request(flights_slice, needs=INGEST))
    runs.run(5)
    runs.silent = {"r"}
    runs.run(20)
    with pytest.raises(Refused, match="ingest is not tried again"):
        again(first, flights_slice)
    keys = [f"runs/r/receipts/ingest-{number}.json" for number in (1, 2)]
    assert [read_record(runs.world.store, key, Receipt).cause for key in keys] == ["silent", "silent"]


def test_a_look_reads_a_few_objects_for_each_run_and_none_of_other_runs(
    runs: RunningRuns, flights_slice: Path
) -> None:
    for number in range(6):
        runs.start(flights_slice, f"over-{number}", RICH)
    over = list(runs.queue.running)
    for run_id in ("r", "s", "t"):
        runs.start(flights_slice, run_id, RICH)
    runs.queue.running = [pod for pod in runs.queue.running if pod not in over]
    runs.run(6)
    for run_id in ("r", "s", "t"):
        write_heartbeat(runs.attempts[run_id].attempt, "running")
    runs.store.requests.clear()
    runs.watch.look()
    # The probe and its time; for each run its account, the times of its heartbeats, and one heartbeat.
    assert runs.store.requests.total() == 2 + 3 * 3, runs.store.requests
    assert not [key for key in runs.store.requests if "over-" in key]


@pytest.mark.parametrize(
    "key", ["runs/r/heartbeats/ingest-1.json", "ledger/r/00000001.json", "ledger/r/00000002.json"]
)
def test_a_run_whose_records_cannot_be_read_does_not_protect_the_pods_of_others(
    runs: RunningRuns, flights_slice: Path, key: str
) -> None:
    for run_id in ("r", "s", "t", "u"):
        runs.start(flights_slice, run_id, RICH)
    runs.run(5)
    runs.silent = {"r", "s"}
    runs.world.store.put(key, b"{}")
    runs.watch = open_watch(runs.world, runs.queue, runs.store)
    said = runs.run(LIMIT_S + EVERY_S + 1)
    assert runs.queue.ended == {"s": "Silent"}
    assert any(each.startswith("the running pods of r cannot be judged: ") for each in said)


def test_looks_are_not_stacked_behind_a_slow_one(runs: RunningRuns) -> None:
    clock, at_s = runs.world.clock, list[float]()
    began_s = clock.monotonic_s()
    for number in look_numbers(clock, 55, 5):
        at_s.append(clock.monotonic_s() - began_s)
        clock.sleep(17 if number == 1 else 1)
    assert at_s[:5] == [0, 5, 22, 27, 32] and at_s[-1] <= 55
    assert list(look_numbers(clock, 0, 5)) == [0]


def test_an_error_of_one_look_does_not_end_the_others(runs: RunningRuns) -> None:
    runs.queue.away = True
    with pytest.raises(ClusterError):
        list(look_for(runs.watch, 0, EVERY_S))
    said = []
    for sentence in look_for(runs.watch, 10, EVERY_S):
        said.append(sentence)
        runs.queue.away = False
    assert said == ["a look failed: no answer"]


def test_only_a_look_that_judged_all_pods_makes_a_reaper_ready(
    runs: RunningRuns, flights_slice: Path, tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    runs.start(flights_slice, "r", RICH)
    runs.store.away = True
    (said,) = look_for(runs.watch, 0, EVERY_S, ready)
    assert said.startswith("no running pod was judged: ") and not ready.exists()
    runs.store.away = False
    assert list(look_for(runs.watch, 0, EVERY_S, ready)) == []
    assert ready.exists()
