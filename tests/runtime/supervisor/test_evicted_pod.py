"""A pod that is evicted during training: the next attempt continues from its checkpoint."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest
from pod_engine import TRAIN, PodEngine
from runtime_world import check_sample_ranges

from shoestring.core.receipt import Receipt
from shoestring.data.run_records import read_record
from shoestring.spending.audit.verify import load_anchors, verify
from shoestring.spending.heartbeat import last_heartbeat
from shoestring.spending.ledger.ledger import Ledger


@pytest.mark.slow
def test_training_continues_from_its_checkpoint_in_the_next_attempt_of_the_same_start(
    laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    engine = PodEngine(laptop, tmp_path, flights_slice, epochs=100)
    world, data = engine.world, engine.prepare()
    pod = engine.start_pod("train", engine.route(TRAIN, data)[1], data)
    while pod.poll() is None and not (
        (heartbeat := last_heartbeat(world.store, "r", "train-1")) and heartbeat.samples
    ):
        time.sleep(0.05)
    pod.send_signal(signal.SIGTERM)
    _, err = pod.communicate(timeout=60)
    assert pod.returncode == 1, err
    first = read_record(world.store, "runs/r/receipts/train-1.json", Receipt)
    assert (first.status, first.cause) == ("stopped", "stop-requested")
    slot = engine.newest_checkpoint()
    assert slot["samples"] > 0

    decision, _ = engine.finish(TRAIN, data)
    assert decision.question.attempt == 2
    assert f"attempt 1 stopped: {first.reason}" in decision.question.notes
    model = json.loads(world.store.fetch("runs/r/model.json").read_bytes())
    check_sample_ranges(model["sample_ranges"])
    assert model["samples"] > slot["samples"]
    state = Ledger(world.store, world.clock).state("r")
    assert state.reservations.keys() == {"overhead-1"}
    assert state.settled_usd["train-1"] == first.spent_usd > 0
    verify(world.store, load_anchors(world.store))
