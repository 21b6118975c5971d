"""Real second pods of a training: after a kill, after TERM, and while a first pod wakes up."""

from __future__ import annotations

import json
import os
import signal
import threading
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from pod_engine import TRAIN, PodEngine, finished
from runtime_world import (
    INGEST,
    FakeCluster,
    begin,
    check_sample_ranges,
    run_request,
    small_world,
    start_process,
    watch_until_end,
)
from warm_command import WarmProcess

from shoestring.core.interfaces import PodLifetime
from shoestring.core.pod_ref import PodRef
from shoestring.core.receipt import Receipt
from shoestring.data.run_records import read_record
from shoestring.routing.decision import Decision
from shoestring.runtime.records.overhead import overhead_times
from shoestring.runtime.supervisor.run_stage import run_stage
from shoestring.spending.audit.verify import load_anchors, verify
from shoestring.spending.heartbeat import last_heartbeat
from shoestring.spending.ledger.ledger import Ledger


def receipt_of(engine: PodEngine, attempt: int) -> Receipt:
    return read_record(engine.world.store, f"runs/r/receipts/train-{attempt}.json", Receipt)


def check_second_attempt(engine: PodEngine, checkpoint_samples: int) -> None:
    """Check the books of a training that a second pod completed, and that it continued from a checkpoint."""
    world = engine.world
    model = json.loads(world.store.fetch("runs/r/model.json").read_bytes())
    check_sample_ranges(model["sample_ranges"])
    assert model["samples"] > checkpoint_samples > 0
    first, second = receipt_of(engine, 1), receipt_of(engine, 2)
    assert second.status == "done" and second.pool == first.pool
    decision = read_record(world.store, second.decision_key, Decision)
    assert decision.question.existing_pod is not None
    state = Ledger(world.store, world.clock).state("r")
    assert state.reservations.keys() == {"overhead-1"}
    assert (state.settled_usd["train-1"], state.settled_usd["train-2"]) == (first.spent_usd, second.spent_usd)
    assert first.spent_usd > 0 < second.spent_usd
    assert overhead_times(world, engine.run, engine.run.start) == []
    verify(world.store, load_anchors(world.store))


def test_a_supervisor_whose_reservation_was_settled_stops_its_stage(
    laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    """A stage that saves no checkpoint would not notice it by itself."""
    began = begin(small_world(laptop, tmp_path), run_request(flights_slice, needs=INGEST))
    began.attempt.reserved_usd = Decimal(1)
    child = start_process("import time; print(flush=True); time.sleep(60)")
    began.ledger.settle(began.account, "ingest-1", Decimal(0), "it was taken for lost")
    watch_until_end(began.attempt, child, tmp_path)
    assert began.attempt.stop_cause == "lost"
    assert began.attempt.stop_reason == "its reservation was settled while it was taken for lost"


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_second_pod_goes_on_from_the_checkpoint_of_the_first(
    how: signal.Signals, laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    engine = PodEngine(laptop, tmp_path, flights_slice)
    data = engine.prepare()
    _, key = engine.route(TRAIN, data)
    first = engine.start_pod("train", key, data)
    samples = engine.wait_for_checkpoint(first, 1)
    first.send_signal(how)
    # The engine is as quick as it can be: the first pod may still be settling.
    second = engine.start_pod("train", key, data)
    finished(second)
    first.communicate(timeout=30)
    assert receipt_of(engine, 1).cause == ("lost" if how == signal.SIGKILL else "stop-requested")
    check_second_attempt(engine, samples)


@pytest.mark.slow
def test_a_first_pod_that_wakes_up_finds_its_reservation_gone_and_writes_no_checkpoint(
    laptop: Path, flights_slice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was deleted by force: its cluster does not know it any more, and its node is slow to end it."""
    # Long enough for a checkpoint of the second pod, too.
    engine = PodEngine(laptop, tmp_path, flights_slice, epochs=350)
    data = engine.prepare()
    _, key = engine.route(TRAIN, data)
    first = engine.start_pod("train", key, data)
    samples = engine.wait_for_checkpoint(first, 1)
    os.killpg(first.pid, signal.SIGSTOP)
    heartbeat = last_heartbeat(engine.world.store, "r", "train-1")
    assert heartbeat is not None

    cluster = FakeCluster(engine.world.cluster.pools(), {str(heartbeat.pod): PodLifetime(alive=False)})
    world = replace(engine.world, cluster=cluster, pod=PodRef.parse("ns.2.train"))
    waking = threading.Thread(target=wake_beside_the_second, args=(engine, first))
    waking.start()
    monkeypatch.setenv("SHOESTRING_STORE", str(tmp_path / "store"))
    run_stage(world, str(laptop), "r", key, {"data": data})
    waking.join()

    _, err = first.communicate(timeout=60)
    assert first.returncode == 1
    woken = receipt_of(engine, 1)
    assert (woken.status, woken.cause) == ("stopped", "lost"), err
    assert "settled" in woken.reason or "taken over" in woken.reason
    assert engine.newest_checkpoint()["attempt"] == 2
    check_second_attempt(engine, samples)


def wake_beside_the_second(engine: PodEngine, first: WarmProcess) -> None:
    """Wake the first pod once the second has saved a checkpoint of its own."""
    try:
        engine.wait_for_checkpoint(first, 2)
    finally:
        os.killpg(first.pid, signal.SIGCONT)
