"""An engine for tests: it routes the stages of one run and starts their pods, as processes of their own."""

from __future__ import annotations

import json
import time
from decimal import Decimal
from pathlib import Path

from commands import start_shoestring
from runtime_world import CHAIN, pod_environment, run_request, with_probed_speeds
from warm_command import WarmProcess

from shoestring.backends.local import open_local_world
from shoestring.config.world import World
from shoestring.data.recipe_files import read_recipe
from shoestring.routing.decision import Decision
from shoestring.runtime.admission.admit import admit
from shoestring.runtime.admission.first_request import recipe_request
from shoestring.runtime.admission.stage_request import StageInputs
from shoestring.runtime.route_step.route import decide_and_reserve
from shoestring.spending.heartbeat import last_heartbeat

EPOCHS, ENOUGH_USD = 200, Decimal("0.01")
INGEST, PREPROCESS, TRAIN = range(3)


class PodEngine:
    """Routes the stages of one run, and starts their pods."""

    def __init__(self, laptop: Path, folder: Path, recipe: Path, epochs: int = EPOCHS) -> None:
        self.world: World = with_probed_speeds(
            folder / "store", open_local_world(laptop, store=folder / "store")
        )
        found = read_recipe(recipe)
        longer = found.train.model_copy(update={"max_epochs": epochs, "patience": 10 * epochs})
        self.asked = run_request(
            found.model_copy(update={"train": longer}), needs=CHAIN[:3], budget_usd=ENOUGH_USD
        )
        self.run, self._variables = admit(self.world, self.asked), pod_environment(laptop, folder)

    def route(self, number: int, data: str = "") -> tuple[Decision, str]:
        """Route a stage, by its number in the chain; return the decision and its key."""
        needs = self.asked.needs[number:]
        request = recipe_request(
            self.run.run_id, self.asked.recipe, needs, self.asked.budget_usd, None, self.asked.job.seed
        )
        return decide_and_reserve(self.world, self.run, request, StageInputs(data))

    def start_pod(self, stage: str, decision_key: str, data: str = "") -> WarmProcess:
        """Start a pod of a decision, in a process group of its own."""
        words = ["--run-id", self.run.run_id, "--decision-key", decision_key]
        inputs = ["--input", f"data={data}"] if data else []
        return start_shoestring("stage", stage, *words, *inputs, env=self._variables)

    def finish(self, number: int, data: str = "") -> tuple[Decision, str]:
        """Route a stage, start its pod and wait for it; return the key of its result."""
        decision, key = self.route(number, data)
        return decision, finished(self.start_pod(decision.question.stage, key, data))

    def prepare(self) -> str:
        """Finish the stages before the training; return the key of the data."""
        return self.finish(PREPROCESS, self.finish(INGEST)[1])[1]

    def wait_for_checkpoint(self, pod: WarmProcess, attempt: int) -> int:
        """Wait until this attempt of the training has saved a checkpoint; return its samples."""
        store, deadline_s = self.world.store, time.monotonic() + 120
        while pod.poll() is None and time.monotonic() < deadline_s:
            heartbeat = last_heartbeat(store, "r", f"train-{attempt}")
            if heartbeat and heartbeat.samples and (newest := self.newest_checkpoint())["attempt"] == attempt:
                return int(newest["samples"])
            time.sleep(0.05)
        raise AssertionError(f"train-{attempt} saved no checkpoint in 120 s (exit code {pod.poll()})")

    def newest_checkpoint(self) -> dict[str, int]:
        """Return the newest slot of the training; attempt 0: there is none."""
        key = "runs/r/checkpoints/train.json"
        if not any(self.world.store.list(key)):
            return {"attempt": 0, "samples": 0}
        slots: list[dict[str, int]] = json.loads(self.world.store.fetch(key).read_bytes())["slots"]
        return slots[0]


def finished(pod: WarmProcess) -> str:
    """Wait for a pod that succeeds; return the key of its result."""
    out, err = pod.communicate(timeout=180)
    assert pod.returncode == 0, err
    return out.strip().splitlines()[-1]
