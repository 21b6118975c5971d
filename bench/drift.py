"""Claim: a machine that gets slower, or a price that is raised, costs no money, and less quality than where nothing is recalibrated.

Real trainings of a real network on a table of which the truth is known; the clock alone is simulated, so that a step takes what the
scenario says and the machine that this runs on does not matter. Of each seed: the run that recalibrates, beside the same one whose policy
forbids it (its plan stands, and the guard cuts it off). Excess loss: signal validation's log loss less that of the truth itself.

python bench/drift.py [--seeds 7]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from machine import describe

from shoestring.backends.folder_store import FolderStore
from shoestring.config.adaptation import AdaptationLimits
from shoestring.core.datasets import Encoding, Feature
from shoestring.data.formats.readers import EncodedRows
from shoestring.data.recipe import TrainSettings
from shoestring.spending.meter import Meter
from shoestring.training.torch_.loop import Training
from shoestring.training.torch_.task import TrainedModel, TrainingTask

Array = np.ndarray[Any, np.dtype[Any]]
RECORD = np.dtype([("code", "i4"), *((f"n{number}", "f4") for number in range(4)), ("y", "i4")])
FEATURES = (
    Feature(name="code", kind="categorical", cardinality=31),
    *(Feature(name=f"n{number}", kind="numeric") for number in range(4)),
)
SETTINGS = TrainSettings(
    max_epochs=100, hidden=(32,), bins=4, batch_rows=64, patience=999, learning_rate=0.01, dropout=0.0
)
ROWS, STEP_S, STEPS, PRICE = 12_000, 0.1, 1000, Decimal(1)
NOTHING = AdaptationLimits(length=False, min_validation_share=1, max_batch_factor=1, pool=False)
# So much of the budget's time is over when the disturbance comes.
COMES_AT = 0.3


@dataclass
class SetClock:
    """Stands still until something is said to take time."""

    at_s: float = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.at_s)

    def monotonic_s(self) -> float:
        return self.at_s

    def sleep(self, seconds: float) -> None:
        self.at_s += seconds


def logits(rows: Array) -> Array:
    effect = np.random.default_rng(99).normal(size=31)
    return effect[rows["code"]] * (1 + rows["n0"]) + 2 * np.sin(2 * rows["n1"]) + rows["n2"] * rows["n3"]


def table(rows: int, seed: int) -> Array:
    """`y` is 1 with the chance that the others say."""
    generator = np.random.default_rng(seed)
    made = np.empty(rows, RECORD)
    made["code"] = generator.integers(0, 31, rows)
    for number in range(4):
        made[f"n{number}"] = generator.normal(size=rows)
    made["y"] = generator.random(rows) < 1 / (1 + np.exp(-logits(made)))
    return made


def truth(rows: Array) -> float:
    """Log loss of whoever knows the chances."""
    logit = logits(rows)
    return float(np.log1p(np.exp(np.where(rows["y"], -logit, logit))).mean())


Disturb = Callable[[SetClock, Meter], float]


def quiet(_clock: SetClock, _meter: Meter) -> float:
    return STEP_S


def slower(clock: SetClock, _meter: Meter) -> float:
    """Three times, for good."""
    return STEP_S * (3 if clock.at_s > COMES_AT * STEP_S * STEPS else 1)


def dearer(clock: SetClock, meter: Meter) -> float:
    """Three times, for good."""
    if clock.at_s > COMES_AT * STEP_S * STEPS and not meter.rate_changes:
        meter.update(meter.limit_usd, ((clock.at_s, 3 * PRICE),), None)
    return STEP_S


def stuttering(clock: SetClock, _meter: Meter) -> float:
    """Every other ten seconds, four times."""
    return STEP_S * (4 if clock.at_s > COMES_AT * STEP_S * STEPS and int(clock.at_s / 10) % 2 else 1)


def train(disturb: Disturb, bounds: AdaptationLimits, seed: int, folder: Path) -> tuple[TrainedModel, float]:
    """What came of it, and the share of the limit that it spent."""
    clock = SetClock()
    meter = Meter(PRICE, 0.0, PRICE * Decimal(str(STEP_S * STEPS)) / 3600, None)
    rows, signal = table(ROWS, seed), table(4000, 1000 + seed)
    share = float(rows["y"].mean())
    task = TrainingTask(
        run_id="one",
        seed=seed,
        encoding=Encoding(
            features=FEATURES, task="binary", classes=("no", "yes"), train_prior=(1 - share, share)
        ),
        settings=SETTINGS,
        train=EncodedRows([rows]),
        validation=EncodedRows([signal]),
        metric="log_loss",
        store=FolderStore(folder),
        meter=meter,
        clock=clock,
        cores=1,
        report_progress=lambda *_: None,
        should_stop=lambda: False,
        adaptation_limits=bounds,
    )
    training = Training(task)
    training.learner.net.register_forward_hook(
        lambda net, *_: clock.sleep(disturb(clock, meter)) if net.training else None
    )
    trained = training.run()
    return trained, float(meter.spent_usd(clock.at_s) / meter.limit_usd)


def excess(trained: TrainedModel, seed: int) -> float:
    assert trained.val_loss is not None
    return trained.val_loss - truth(table(4000, 1000 + seed))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=7)
    options = parser.parse_args()
    print(describe())
    print(
        f"{STEPS} steps' money; {options.seeds} seeds; medians; ratios of excess loss with the least and the most"
    )
    print(
        f"{'scenario':<11} {'most spent':>10} {'changes':>7} {'recalibrated':>12} {'cut off':>8} {'ratio':>6}  interval"
    )
    for disturb in (quiet, slower, dearer, stuttering):
        spent, changes, losses = [], [], []
        for seed in range(options.seeds):
            with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
                (ours, our_share), (cut, cut_share) = (
                    train(disturb, bounds, seed, Path(folder))
                    for bounds, folder in ((AdaptationLimits(), one), (NOTHING, other))
                )
            spent += [our_share, cut_share]
            changes.append(len(ours.state.changes))
            losses.append((excess(ours, seed), excess(cut, seed)))
        ratios = sorted(ours / cut for ours, cut in losses)
        ours_loss, cut_loss = (median(each) for each in zip(*losses, strict=True))
        spread = f"{median(ratios):>6.2f}  {ratios[0]:.2f} to {ratios[-1]:.2f}"
        what = f"{disturb.__name__:<11} {max(spent):>10.4f} {median(changes):>7.0f}"
        print(f"{what} {ours_loss:>12.4f} {cut_loss:>8.4f} {spread}", flush=True)
        assert max(spent) <= 1, "a run spent more than it was given"


if __name__ == "__main__":
    main()
