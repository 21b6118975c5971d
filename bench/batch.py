"""Claim: a training whose batch follows the noise of its gradient costs at most 1.03 times one with the best
fixed batch, the median of 200 noisy quadratics, from starts of 16 to 1,024 rows.

A step over B rows costs n + B, with n = 64 rows, the fixed time of a step; a measured one has two batches and
costs 2 n + 2 B. The gradient of a row has normal noise, and the rate is in proportion to that of McCandlish
et al. (2018, arXiv 1812.06162, equation 2.9) for each batch, so a fixed one has no handicap. The noise scale
rises from 10 to 10,000 rows on the way.

With --data: real data at a clock whose steps take the time of B + n rows, with the n of a core and of a T4,
for the same time: the validation loss with each fixed power of two, and with a batch that follows the noise
from three starts. From the recipe's own it is to be at most 1.02 times the best.

python bench/batch.py [--seeds 200] [--data flights kjv fashion] [--images FOLDER] [--epochs 2]
                      [--data-seeds 3] [--quick]

--quick: 6 seeds; 1 minute.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import yaml
from machine import describe

from shoestring.backends.folder_store import FolderStore
from shoestring.config.adaptation import AdaptationLimits
from shoestring.core.types import Format, Need, Pool
from shoestring.data.families import LearnerSettings
from shoestring.data.loading.open_split import open_split, require_encoding
from shoestring.data.loading.samples import SampleReader
from shoestring.data.recipe import Recipe
from shoestring.data.transforms.ingest import ingest
from shoestring.data.transforms.preprocess import preprocess
from shoestring.pricing.throughput import half_rows
from shoestring.spending.meter import Meter
from shoestring.training.contracts import BatchRange, Feed, Learner, Progress, StepPlan
from shoestring.training.control.batch_size import BatchMoves
from shoestring.training.control.noise import GradientNoise
from shoestring.training.curve import Halves
from shoestring.training.families.data_shape import encoded_shape
from shoestring.training.families.registry import family_of
from shoestring.training.loop import Training
from shoestring.training.task import TrainingTask

MOST, MOST_LOSS = 1.03, 1.02
HALF_ROWS, DIMENSIONS, TRACE, RATE = 64, 50, 10.0, 0.002
TARGET = 1e-3
"""The squared distance from the minimum, from 1: the noise scale is TRACE over it."""
FIXED, STARTS = (16, 64, 128, 256, 512, 1024, 2048, 8192), (16, 64, 256, 1024, 8192)
PROMISED = 1024
"""The largest start of the claim."""

ROW_S = 1e-2
CORE = Pool(name="a core", cores=1, memory_gb=8, markets={})
T4 = Pool(
    name="a T4", cores=4, memory_gb=16, gpu="T4", gpu_count=1, gpu_memory_gb=16, gpu_tflops=65, markets={}
)


class Quadratics:
    """Trainings of the same loss, |x|^2 / 2, from points at a distance of 1, with noise of their own.

    `batch_N` and `cost_N`: of each, the rows of its batch and what its steps have cost.
    """

    def __init__(self, start: int, count: int, moves: bool) -> None:
        self._rng = np.random.default_rng(start)
        self._x_ND = self._rng.normal(size=(count, DIMENSIONS))
        self._x_ND /= np.linalg.norm(self._x_ND, axis=1, keepdims=True)
        self.batch_N, self.cost_N = np.full(count, start), np.zeros(count)
        self._seen_N = np.zeros(count, np.int64)
        self._noise = [GradientNoise.start(start, 10**12, 10**12) for _ in range(count)]
        self._moves = [BatchMoves(start) for _ in range(count)]
        self._may_move, self.measured = moves, 0

    def run(self) -> None:
        """Make steps until all are at the target."""
        while (running_N := np.square(self._x_ND).sum(1) > TARGET).any():
            self._step(running_N)

    def _step(self, running_N: Any) -> None:
        due_N = np.zeros(len(running_N), bool)
        if self._may_move:
            due_N[:] = [
                runs and noise.is_due(int(seen), int(batch))
                for runs, noise, seen, batch in zip(
                    running_N, self._noise, self._seen_N, self.batch_N, strict=True
                )
            ]
        rows_N = np.where(due_N, 2 * self.batch_N, self.batch_N)
        deviation_N1 = np.sqrt(TRACE / DIMENSIONS / rows_N)[:, None]
        g_ND = self._x_ND + self._rng.normal(size=self._x_ND.shape) * deviation_N1
        scale_N = TRACE / np.square(self._x_ND).sum(1)
        self.cost_N += running_N * np.where(due_N, 2 * HALF_ROWS, HALF_ROWS)
        self.cost_N += running_N * rows_N
        for at in np.flatnonzero(due_N):
            g_ND[at] = self._measure(int(at))
        self._seen_N += running_N * rows_N
        rate_N = running_N * RATE / (1 + scale_N / rows_N)
        self._x_ND -= rate_N[:, None] * g_ND

    def _measure(self, at: int) -> Any:
        """Return the gradient of two batches of one training, which may move its batch."""
        rows, seen = int(self.batch_N[at]), int(self._seen_N[at])
        noise_2D = self._rng.normal(size=(2, DIMENSIONS)) * np.sqrt(TRACE / DIMENSIONS / rows)
        first_D, second_D = self._x_ND[at] + noise_2D
        found = Halves(seen, rows, float(first_D @ second_D), float(np.square(first_D - second_D).sum()))
        self._noise[at] = noise = self._noise[at].after([found])
        self.measured += 1
        if (scale := noise.scale) is not None:
            limits = BatchRange(HALF_ROWS, 1, 8192, math.inf)
            self._moves[at], _ = self._moves[at].after(scale, limits, is_early=noise.is_dense(seen))
            self.batch_N[at] = self._moves[at].rows
        return (first_D + second_D) / 2


def cost(start: int, count: int, moves: bool) -> float:
    """Return the median cost of trainings that start with a batch."""
    trained = Quadratics(start, count, moves)
    trained.run()
    return median(trained.cost_N.tolist())


def quadratics_fail(count: int) -> list[str]:
    """Return the starts from which a batch that moves is too dear."""
    fixed = {rows: cost(rows, count, False) for rows in FIXED}
    best = min(fixed.values())
    print("fixed:", ", ".join(f"{rows:,} {each / best:.2f}" for rows, each in fixed.items()), flush=True)
    fails = []
    for start in STARTS:
        ratio = cost(start, count, True) / best
        print(f"from {start:,} rows: {ratio:.3f} of the best fixed batch", flush=True)
        if ratio > MOST and start <= PROMISED:
            fails.append(f"from {start:,} rows")
    return fails


FAMILIES = {"flights": "table_net", "kjv": "text_net", "fashion": "image_net"}


class StepClock:
    """A clock that only steps advance: a row takes `ROW_S`, and a step as much as `half_rows` rows more."""

    def __init__(self, half_rows: int) -> None:
        self.half_rows, self.at_s = half_rows, 1e6

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.at_s)

    def monotonic_s(self) -> float:
        return self.at_s

    def sleep(self, seconds: float) -> None:
        self.at_s += seconds


class Timed:
    """A learner whose steps take the time of a `StepClock`."""

    def __init__(self, learner: Learner, clock: StepClock) -> None:
        self._learner, self._clock = learner, clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._learner, name)

    def advance(self, plan: StepPlan, feed: Feed) -> Progress:
        done = self._learner.advance(plan, feed)
        self._clock.sleep(ROW_S * (plan.rows + self._clock.half_rows * (1 + plan.is_measured)))
        return done


class RealData:
    """A recipe of the pipelines, prepared; flights split by row."""

    def __init__(self, name: str, folder: Path, images: str) -> None:
        path = Path(__file__).parent.parent / "pipelines" / "recipes" / f"{name}.yaml"
        described = yaml.safe_load(path.read_text()) | {"train": {"family": FAMILIES[name]}}
        described.pop("split", None)
        if name == "fashion" and images:
            described["source"]["images"]["path"] = images
        self.recipe, self._folder = Recipe.model_validate(described), folder
        store = self._store = FolderStore(folder / "store")
        raw_key, _ = ingest(self.recipe, Format.ARROW, store, folder, lambda *done: None)
        _, self._manifest = preprocess(self.recipe, raw_key, Format.ARROW, store, folder, lambda *done: None)
        self._trainings = 0

    def half_rows(self, pool: Pool) -> int:
        """Return the rows of a step that takes twice its fixed time."""
        shape = encoded_shape(require_encoding(self._manifest), len(self._split("train")))
        return half_rows(family_of(self.recipe.train).train_need(Need(stage="train"), shape), pool)

    def _split(self, name: str) -> SampleReader:
        return open_split(self._store, self._manifest, name)

    def _settings(self, start: int, moves: bool) -> LearnerSettings:
        """Return the recipe's settings with another batch. The learning rate is that for the recipe's own; it
        grows with the square root of larger ones, and that of a smaller start is to grow to it."""
        own = self.recipe.train
        size = start / own.batch_rows
        grown = math.sqrt(size if moves else max(1.0, size))
        changed = {
            "batch_rows": start,
            "learning_rate": own.learning_rate * grown,
            "weight_decay": own.weight_decay * size / grown,
            "max_epochs": 1000,
            "patience": 1000,
        }
        return own.model_copy(update=changed)

    def loss(self, start: int, moves: bool, half_rows: int, epochs: float, seed: int) -> tuple[float, int]:
        """Return the validation loss after the time of `epochs` epochs with the recipe's batch, and the last
        batch."""
        settings, clock = self._settings(start, moves), StepClock(half_rows)
        train = self._split("train")
        rows = len(train) * epochs * (1 + half_rows / self.recipe.train.batch_rows)
        limit_s = clock.monotonic_s() + rows * ROW_S
        self._trainings += 1
        task = TrainingTask(
            run_id=f"run-{self._trainings}",
            seed=seed,
            encoding=require_encoding(self._manifest),
            settings=settings,
            train=train,
            validation=self._split("val"),
            store=self._store,
            meter=Meter(Decimal(0), clock.monotonic_s(), Decimal(0), limit_s),
            clock=clock,
            cores=1,
            report_progress=lambda progress: None,
            should_stop=lambda: False,
            adaptation_limits=AdaptationLimits(max_batch_factor=1),
            half_rows={settings.family: half_rows} if moves else {},
            planned_samples=round(rows / (1 + half_rows / start)),
        )
        trained = Training(task, Timed(family_of(settings).learner(task), clock)).run()
        if trained.val_loss is None:
            raise SystemExit(f"{start} rows: no validation in {epochs} epochs")
        return trained.val_loss, trained.state.controller.batch_rows


def data_fails(name: str, images: str, pool: Pool, epochs: float, seeds: int) -> list[str]:
    """Return the data, if a batch that begins as the recipe's ends with too high a loss."""
    with tempfile.TemporaryDirectory() as folder:
        data = RealData(name, Path(folder), images)
        own, half_rows = data.recipe.train.batch_rows, data.half_rows(pool)
        fixed = [2**power for power in range(2, 14) if own / 8 <= 2**power <= 8 * own]

        def trained(start: int, moves: bool) -> float:
            found = [data.loss(start, moves, half_rows, epochs, seed) for seed in range(seeds)]
            loss = median(loss for loss, _ in found)
            to = ", ".join(f"{rows:,}" for _, rows in found) if moves else "fixed"
            print(f"{name}, n {half_rows:,}: {start:,} rows, {to}: {loss:.4f}", flush=True)
            return loss

        best = min(trained(rows, False) for rows in fixed)
        ratios = {start: trained(start, True) / best for start in (fixed[0], own, fixed[-1])}
    for start, ratio in ratios.items():
        print(f"{name}, n {half_rows:,}: from {start:,} rows: {ratio:.3f} of the best", flush=True)
    return [f"{name} on {pool.name}"] if ratios[own] > MOST_LOSS else []


def main() -> None:
    parser = argparse.ArgumentParser(description=Path(__file__).name)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--data", nargs="*", default=[], choices=sorted(FAMILIES))
    parser.add_argument("--images", default="", help="the folder of Fashion-MNIST")
    parser.add_argument("--epochs", type=float, default=2.0)
    parser.add_argument("--data-seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    print(describe(), flush=True)
    fails = quadratics_fail(6 if args.quick else args.seeds)
    for name in args.data:
        for pool in (CORE, T4):
            fails += data_fails(name, args.images, pool, args.epochs, args.data_seeds)
    print("holds" if not fails else f"does not hold: {', '.join(fails)}")
    raise SystemExit(bool(fails))


if __name__ == "__main__":
    main()
