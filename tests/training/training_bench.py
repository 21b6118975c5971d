"""Trainings on a table with a known true model, with a simulated clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import numpy as np
import torch
from clocks import BOOT_S, StillClock
from safetensors.torch import load
from small_dataset import Array, encoding_of, reader, table

from shoestring.backends.folder_store import FolderStore
from shoestring.config.adaptation import AdaptationLimits
from shoestring.config.guardrails import Guardrails
from shoestring.core.datasets import Encoding
from shoestring.core.interfaces import Clock, Store
from shoestring.core.receipt import AdaptationChange, SpendForecast, TimeShares
from shoestring.data.families import FamilySettings
from shoestring.data.formats.readers import EncodedRows
from shoestring.data.loading.samples import Collator, SampleReader, Samples
from shoestring.data.run_records import read_record
from shoestring.spending.meter import Meter
from shoestring.training.contracts import Feed, Learner, Progress, StepPlan, TrainingProgress
from shoestring.training.curve import CurvePoint
from shoestring.training.families.registry import family_of
from shoestring.training.families.table_net.settings import TableNetSettings
from shoestring.training.frameworks.torch_.net_learner import NetLearner
from shoestring.training.loop import Training
from shoestring.training.task import TrainingTask
from shoestring.training.window_log import WindowLog

TINY = TableNetSettings(max_epochs=3, hidden=(8,), bins=2, batch_rows=32, patience=99)
LIMITS, GUARDRAILS = AdaptationLimits(), Guardrails()
FREE = Meter(Decimal(0), BOOT_S, Decimal(0), None)


@dataclass
class SlowStore:
    """A folder store whose writes take time."""

    inner: Store
    clock: Clock
    takes_s: Callable[[], float]

    def fetch(self, key: str) -> Path:
        return self.inner.fetch(key)

    def list(self, prefix: str) -> Iterator[str]:
        return self.inner.list(prefix)

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = "standard"
    ) -> bool:
        self.clock.sleep(self.takes_s())
        return self.inner.put(key, data, if_absent=if_absent, storage_class=storage_class)


class SlowRows(SampleReader):
    """Validation rows that take time to read."""

    def __init__(self, rows: Array, encoding: Encoding, clock: Clock, takes_s: Callable[[], float]) -> None:
        super().__init__(EncodedRows([rows]), Collator(encoding, rows.dtype))
        self._clock, self._takes_s = clock, takes_s

    def scan(self, batch_rows: int) -> Iterator[Samples]:
        self._clock.sleep(self._takes_s())
        yield from super().scan(batch_rows)


class SlowLearner:
    """A learner whose steps take time: measured ones, which have two batches, twice as much."""

    def __init__(self, learner: Learner, clock: Clock, takes_s: Callable[[], float]) -> None:
        self.learner, self._clock, self._takes_s = learner, clock, takes_s
        self.batch_rows, self.by_rounds = learner.batch_rows, learner.by_rounds
        self.validate, self.metric, self.export = learner.validate, learner.metric, learner.export
        self.state, self.restore, self.gather = learner.state, learner.restore, learner.gather
        self.queues_steps = learner.queues_steps
        self.mark, self.go_back = learner.mark, learner.go_back
        self.measures_noise, self.readings = learner.measures_noise, learner.readings

    def advance(self, plan: StepPlan, feed: Feed) -> Progress:
        done = self.learner.advance(plan, feed)
        self._clock.sleep(self._takes_s() * (1 + plan.is_measured))
        return done


def net_learner(training: Training) -> NetLearner:
    """Return the learner of the net that a bench trains."""
    slow = training.learner
    assert isinstance(slow, SlowLearner) and isinstance(slow.learner, NetLearner)
    return slow.learner


def class_prior_loss(train: Array, signal: Array) -> float:
    """Return the log loss of predicting train's class share for every row."""
    share = float(train["y"].mean())
    return float(-np.where(signal["y"], np.log(share), np.log(1 - share)).mean())


@dataclass
class TrainingBench:
    """A training whose data, settings and timing a test can change."""

    folder: Path
    train: Array = field(default_factory=lambda: table(300, 0))
    validation: Array = field(default_factory=lambda: table(100, 1))
    settings: FamilySettings = TINY
    clock: StillClock = field(default_factory=StillClock)
    meter: Meter = FREE
    seed: int = 0
    should_stop: Callable[[], bool] = lambda: False
    reports: list[TrainingProgress] = field(default_factory=list)
    forecasts: list[SpendForecast] = field(default_factory=list)
    time_shares: TimeShares | None = None
    limits: AdaptationLimits = LIMITS
    guardrails: Guardrails = GUARDRAILS
    changes: tuple[AdaptationChange, ...] = ()
    encoding: Encoding | None = None
    step_s: Callable[[], float] = lambda: 0.0
    validation_s: Callable[[], float] = lambda: 0.0
    put_s: Callable[[], float] = lambda: 0.0
    sudden_ends_per_hour: float = 0.0
    half_rows: dict[str, int] = field(default_factory=dict)

    def report(self, progress: TrainingProgress) -> None:
        self.reports.append(progress)
        self.changes, self.time_shares = progress.changes, progress.time_shares
        self.forecasts += [progress.forecast] if progress.forecast else []

    def log(self) -> WindowLog:
        """Return the log of the training as it is stored."""
        return read_record(self.store, "runs/one/curve.json", WindowLog)

    def points(self) -> tuple[CurvePoint, ...]:
        """Return the curve of the training as it is stored."""
        return self.log().curve.points

    @property
    def store(self) -> SlowStore:
        return SlowStore(FolderStore(self.folder), self.clock, self.put_s)

    def task(self) -> TrainingTask:
        encoding = self.encoding or encoding_of(self.train)
        return TrainingTask(
            run_id="one",
            seed=self.seed,
            encoding=encoding,
            settings=self.settings,
            train=reader(self.train, encoding),
            validation=SlowRows(self.validation, encoding, self.clock, self.validation_s),
            store=self.store,
            meter=self.meter,
            clock=self.clock,
            cores=1,
            report_progress=self.report,
            should_stop=self.should_stop,
            adaptation_limits=self.limits,
            guardrails=self.guardrails,
            sudden_ends_per_hour=self.sudden_ends_per_hour,
            half_rows=self.half_rows,
        )

    def training(self) -> Training:
        """Return one start of the training. Every step takes `step_s()`."""
        task = self.task()
        return Training(
            task, SlowLearner(family_of(task.settings).learner(task), self.clock, lambda: self.step_s())
        )


def slow_steps(bench: TrainingBench, stop_s: float) -> Callable[[], bool]:
    """Return what a learner asks after each step whether it must stop: 0.02 s have passed then."""

    def should_stop() -> bool:
        bench.clock.sleep(0.02)
        return bench.clock.monotonic_s() >= stop_s

    return should_stop


def stop_after(steps: int) -> Callable[[], bool]:
    """Return a callback that requests a stop after `steps` steps."""
    answers = iter(range(steps - 1))
    return lambda: next(answers, None) is None


def same_weights(one: bytes, other: bytes) -> bool:
    left, right = load(one), load(other)
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def damage(folder: Path, name: str) -> None:
    """Change a byte of a checkpoint or of one of its parts."""
    path = folder / "runs/one/checkpoints" / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
