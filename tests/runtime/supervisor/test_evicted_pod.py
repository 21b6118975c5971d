"""A pod that is evicted during training: the next attempt continues from its checkpoint."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from decimal import Decimal
from pathlib import Path

import pytest
from commands import command
from runtime_world import CHAIN, check_sample_ranges, pod_environment, run_request, with_probed_speeds

from shoestring.backends.local import open_local_world
from shoestring.config.world import World
from shoestring.core.receipt import Receipt
from shoestring.data.recipe import read_recipe
from shoestring.data.run_records import read_record
from shoestring.routing.decision import Decision
from shoestring.runtime.admission.admit import RunRequest, admit
from shoestring.runtime.admission.stage_request import StageInputs
from shoestring.runtime.route_step.route import decide_and_reserve
from shoestring.spending.audit.verify import load_anchors, verify
from shoestring.spending.heartbeat import last_heartbeat
from shoestring.spending.ledger.ledger import Ledger

EPOCHS, ENOUGH_USD = 30, Decimal("0.01")


class Engine:
    """Routes the stages of one run, and starts their pods."""

    def __init__(self, laptop: Path, folder: Path, recipe: Path) -> None:
        self.world: World = with_probed_speeds(
            folder / "store", open_local_world(laptop, store=folder / "store")
        )
        found = read_recipe(recipe)
        longer = found.train.model_copy(update={"max_epochs": EPOCHS, "patience": 10 * EPOCHS})
        self.asked = run_request(
            found.model_copy(update={"train": longer}), needs=CHAIN[:3], budget_usd=ENOUGH_USD
        )
        self.run, self._variables = admit(self.world, self.asked), pod_environment(laptop, folder)

    def start(self, number: int, data: str = "") -> tuple[Decision, subprocess.Popen[str]]:
        """Route a stage, by its number in the chain, and start its pod."""
        needs = self.asked.needs[number:]
        request = RunRequest(
            self.run.run_id, self.asked.recipe, needs, self.asked.budget_usd, None, self.asked.seed
        )
        decision, key = decide_and_reserve(self.world, self.run, request, StageInputs(data))
        line = command(
            "stage",
            needs[0].stage,
            "--run-id",
            self.run.run_id,
            "--decision-key",
            key,
            *(["--input", f"data={data}"] if data else []),
        )
        return decision, subprocess.Popen(
            line, env=self._variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def finish(self, number: int, data: str = "") -> tuple[Decision, str]:
        """Do the same and wait for the pod; return the key of its result."""
        decision, pod = self.start(number, data)
        out, err = pod.communicate(timeout=180)
        assert pod.returncode == 0, err
        return decision, out.strip().splitlines()[-1]


@pytest.mark.slow
def test_training_continues_from_its_checkpoint_in_the_next_attempt_of_the_same_start(
    laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    engine = Engine(laptop, tmp_path, flights_slice)
    world = engine.world
    _, rows = engine.finish(0)
    _, data = engine.finish(1, rows)

    _, pod = engine.start(2, data)
    while pod.poll() is None and not (
        (heartbeat := last_heartbeat(world.store, "r", "train-1")) and heartbeat.samples
    ):
        time.sleep(0.05)
    pod.send_signal(signal.SIGTERM)
    _, err = pod.communicate(timeout=60)
    assert pod.returncode == 1, err
    first = read_record(world.store, "runs/r/receipts/train-1.json", Receipt)
    assert (first.status, first.cause) == ("stopped", "stop-requested")
    (slot, *_) = json.loads(world.store.fetch("runs/r/checkpoints/train.json").read_bytes())["slots"]
    assert slot["samples"] > 0

    decision, _ = engine.finish(2, data)
    assert decision.question.attempt == 2
    assert f"attempt 1 stopped: {first.reason}" in decision.question.notes
    model = json.loads(world.store.fetch("runs/r/model.json").read_bytes())
    check_sample_ranges(model["sample_ranges"])
    assert model["samples"] > slot["samples"]
    state = Ledger(world.store, world.clock).state("r")
    assert state.reservations.keys() == {"overhead-1"}
    assert state.settled_usd["train-1"] == first.spent_usd > 0
    verify(world.store, load_anchors(world.store))
