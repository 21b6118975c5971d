"""Claim: when a machine slows down or its price rises, a run with adaptation stays within its budget and
loses less quality than one without.

Real trainings of a real network on a table whose true probabilities are known. Only the clock is simulated: a
step takes the time that the scenario defines, on any machine. For each seed, the run that adapts is compared
with the same run whose policy forbids it (its plan stays, and the guard stops it). Excess loss: log loss on
the validation split minus that of the true probabilities.

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
from shoestring.data.loading.samples import Collator, SampleReader
from shoestring.spending.meter import Meter
from shoestring.training.families.registry import family_of
from shoestring.training.families.table_net.settings import TableNetSettings
from shoestring.training.frameworks.torch_.net_learner import NetLearner
from shoestring.training.loop import Training
from shoestring.training.task import TrainedModel, TrainingTask

Array = np.ndarray[Any, np.dtype[Any]]
RECORD = np.dtype([("code", "i4"), *((f"n{number}", "f4") for number in range(4)), ("y", "i4")])
FEATURES = (
    Feature(name="code", kind="categorical", cardinality=31),
    *(Feature(name=f"n{number}", kind="numeric") for number in range(4)),
)
SETTINGS = TableNetSettings(
    max_epochs=100, hidden=(32,), bins=4, batch_rows=64, patience=999, learning_rate=0.01, dropout=0.0
)
ROWS, STEP_S, STEPS, PRICE = 12_000, 0.1, 1000, Decimal(1)
ZERO_USD = AdaptationLimits(length=False, min_validation_share=1, max_batch_factor=1, pool=False)
# Share of the planned time after which the disturbance begins.
DISTURBED_AT = 0.3
# Monotonic seconds at the beginning of a run: the machine has been up for a while.
BOOT_S = 1e6


@dataclass
class SetClock:
    """A clock that advances only when something sleeps."""

    at_s: float = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.at_s)

    def monotonic_s(self) -> float:
        return BOOT_S + self.at_s

    def sleep(self, seconds: float) -> None:
        self.at_s += seconds


def logits(rows: Array) -> Array:
    effect = np.random.default_rng(99).normal(size=31)
    return effect[rows["code"]] * (1 + rows["n0"]) + 2 * np.sin(2 * rows["n1"]) + rows["n2"] * rows["n3"]


def table(rows: int, seed: int) -> Array:
    """Return rows whose `y` is 1 with the probability of `logits`."""
    generator = np.random.default_rng(seed)
    data = np.empty(rows, RECORD)
    data["code"] = generator.integers(0, 31, rows)
    for number in range(4):
        data[f"n{number}"] = generator.normal(size=rows)
    data["y"] = generator.random(rows) < 1 / (1 + np.exp(-logits(data)))
    return data


def truth(rows: Array) -> float:
    """Return the log loss of the true probabilities."""
    logit = logits(rows)
    return float(np.log1p(np.exp(np.where(rows["y"], -logit, logit))).mean())


Disturb = Callable[[SetClock, Meter], float]


def quiet(_clock: SetClock, _meter: Meter) -> float:
    return STEP_S


def slower(clock: SetClock, _meter: Meter) -> float:
    """Slow down three times, for good."""
    return STEP_S * (3 if clock.at_s > DISTURBED_AT * STEP_S * STEPS else 1)


def price_rise(clock: SetClock, meter: Meter) -> float:
    """Raise the price three times, for good."""
    if clock.at_s > DISTURBED_AT * STEP_S * STEPS and not meter.rate_changes:
        meter.update(meter.limit_usd, ((clock.monotonic_s(), 3 * PRICE),), None)
    return STEP_S


def stuttering(clock: SetClock, _meter: Meter) -> float:
    """Slow down four times, for every other ten seconds."""
    return STEP_S * (4 if clock.at_s > DISTURBED_AT * STEP_S * STEPS and int(clock.at_s / 10) % 2 else 1)


def reader(rows: Array, encoding: Encoding) -> SampleReader:
    return SampleReader(EncodedRows([rows]), Collator(encoding, rows.dtype))


def train(disturb: Disturb, bounds: AdaptationLimits, seed: int, folder: Path) -> tuple[TrainedModel, float]:
    """Return the trained model, and the share of the limit that was spent."""
    clock = SetClock()
    meter = Meter(PRICE, clock.monotonic_s(), PRICE * Decimal(str(STEP_S * STEPS)) / 3600, None)
    rows, signal = table(ROWS, seed), table(4000, 1000 + seed)
    share = float(rows["y"].mean())
    encoding = Encoding(
        features=FEATURES, task="binary", classes=("no", "yes"), train_prior=(1 - share, share)
    )
    task = TrainingTask(
        run_id="one",
        seed=seed,
        encoding=encoding,
        settings=SETTINGS,
        train=reader(rows, encoding),
        validation=reader(signal, encoding),
        store=FolderStore(folder),
        meter=meter,
        clock=clock,
        cores=1,
        report_progress=lambda *_: None,
        should_stop=lambda: False,
        adaptation_limits=bounds,
    )
    learner = family_of(task.settings).learner(task)
    assert isinstance(learner, NetLearner)
    training = Training(task, learner)
    learner.net.register_forward_hook(
        lambda net, *_: clock.sleep(disturb(clock, meter)) if net.training else None
    )
    trained = training.run()
    return trained, float(meter.spent_usd(clock.monotonic_s()) / meter.limit_usd)


def excess(trained: TrainedModel, seed: int) -> float:
    assert trained.val_loss is not None
    return trained.val_loss - truth(table(4000, 1000 + seed))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=7)
    options = parser.parse_args()
    print(describe())
    print(
        f"money for {STEPS} steps; {options.seeds} seeds; medians; "
        "ratios of excess loss with minimum and maximum"
    )
    print(
        f"{'scenario':<11} {'max spent':>10} {'changes':>7} {'adapted':>12} {'stopped':>8} {'ratio':>6}  "
        "interval"
    )
    for disturb in (quiet, slower, price_rise, stuttering):
        spent, changes, losses = [], [], []
        for seed in range(options.seeds):
            with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
                (adapted, adapted_share), (stopped, stopped_share) = (
                    train(disturb, bounds, seed, Path(folder))
                    for bounds, folder in ((AdaptationLimits(), one), (ZERO_USD, other))
                )
            spent += [adapted_share, stopped_share]
            changes.append(len(adapted.state.changes))
            losses.append((excess(adapted, seed), excess(stopped, seed)))
        ratios = sorted(one / other for one, other in losses)
        adapted_loss, stopped_loss = (median(each) for each in zip(*losses, strict=True))
        interval = f"{median(ratios):>6.2f}  {ratios[0]:.2f} to {ratios[-1]:.2f}"
        name = f"{disturb.__name__:<11} {max(spent):>10.4f} {median(changes):>7.0f}"
        print(f"{name} {adapted_loss:>12.4f} {stopped_loss:>8.4f} {interval}", flush=True)
        assert max(spent) <= 1, "a run spent more than it was given"


if __name__ == "__main__":
    main()
