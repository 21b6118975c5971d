"""The log of a training: a record for each window of steps, from which its curve is drawn and its decisions
replay.

A window ends with a validation, and otherwise after `WINDOW_STEPS` steps or more (`loop.py`).
"""

from __future__ import annotations

import math
from typing import Self

from pydantic import AwareDatetime, Field, RootModel

from shoestring.core import store_layout
from shoestring.core.datasets import LossMetric
from shoestring.core.errors import NotInStore
from shoestring.core.interfaces import Store
from shoestring.core.money import Usd
from shoestring.core.receipt import AdaptationChange, SpendForecast, TimeShares
from shoestring.core.record import Record, StoredRecord
from shoestring.data.run_records import read_record
from shoestring.training.contracts import RunPosition, Signals, TrainingSetup
from shoestring.training.control.memory import ControllerMemory
from shoestring.training.curve import CurvePoint, Halves, NoiseScale, SchedulePhase, TrainingCurve


class Reading(Record):
    """The knowledge of the controller at one moment: `RunPosition` without its samples, and `Signals`."""

    spent_s: float
    left_s: float | None = Field(description="null: neither money nor time ends the training")
    rows_per_s: float
    usd_per_hour: Usd
    spent_usd: Usd = Field(description="spent by this attempt")
    validation_s: float
    may_validate: bool

    @classmethod
    def of(cls, at: RunPosition, signals: Signals) -> Self:
        return cls(
            spent_s=at.spent_s,
            left_s=at.left_s if math.isfinite(at.left_s) else None,
            rows_per_s=at.rows_per_s,
            usd_per_hour=signals.usd_per_hour,
            spent_usd=signals.spent_usd,
            validation_s=signals.validation_s,
            may_validate=signals.may_validate,
        )

    def position(self, samples: int) -> RunPosition:
        left_s = math.inf if self.left_s is None else self.left_s
        return RunPosition(samples, self.spent_s, left_s, self.rows_per_s)

    @property
    def signals(self) -> Signals:
        return Signals(self.usd_per_hour, self.spent_usd, self.validation_s, self.may_validate)


class WindowRecord(Record):
    """A window of steps, and what followed from it. Losses are in the run's metric."""

    at: AwareDatetime = Field(description="its end")
    samples: int = Field(description="rows trained on at its end, in all attempts")
    rows: int
    steps: int = Field(description="0: the validation of the final weights")
    seconds: float = Field(description="seconds of its steps")
    training_s: float = Field(description="seconds of training so far, in all attempts")
    spent_usd: Usd = Field(
        description=(
            "spent by this stage so far, in all attempts; work lost when an attempt was killed is not counted"
        )
    )
    rate: float = Field(description="the learning rate of its last step, over the recipe's")
    phase: SchedulePhase
    train_loss: float | None = Field(description="mean training loss, with dropout")
    diverged_loss: str = Field(
        "",
        exclude_if=lambda loss: not loss,
        description="inf or nan: its training loss, after which its steps were taken back",
    )
    val_loss: float | None = Field(None, description="validation loss of the averaged weights at its end")
    best_losses_again: tuple[float, ...] = Field(
        (),
        exclude_if=lambda losses: not losses,
        description="validation losses of the best weights, each time that the validated rows changed here",
    )
    began: Reading
    ended: Reading
    validated: Reading | None = Field(
        None, exclude_if=lambda reading: reading is None, description="after the validation at its end"
    )
    changes: tuple[AdaptationChange, ...] = Field((), exclude_if=lambda changes: not changes)
    gradient_norm: float | None = Field(
        None, exclude_if=lambda norm: norm is None, description="mean of its steps, before it was clipped"
    )
    clipped: int = Field(
        0, exclude_if=lambda steps: not steps, description="steps whose gradient was above its own interval"
    )
    halves: tuple[Halves, ...] = Field(
        (),
        exclude_if=lambda halves: not halves,
        description="its steps of two batches whose gradients were compared",
    )
    noise: NoiseScale | None = Field(
        None,
        exclude_if=lambda noise: noise is None,
        description="the gradient's noise scale, if it measured some steps; null: too few so far",
    )
    forecast: SpendForecast | None = Field(None, exclude_if=lambda forecast: forecast is None)


class TrainingStart(Record):
    """One start of a training, and what its controller began with."""

    attempt: int
    first_window: int = Field(description="the number of its first window, from 0")
    setup: TrainingSetup
    planned_samples: int | None
    rows_per_s: float = Field(description="the throughput that is assumed before the first step")
    memory: ControllerMemory | None = Field(description="null: it started from the beginning")
    member: str = Field(
        "", exclude_if=lambda family: not family, description="the family of this member of a blend"
    )
    learning_rate: float | None = Field(
        None, exclude_if=lambda rate: rate is None, description="of this member; null: that of the log"
    )


class WindowLog(StoredRecord):
    """The log of a run, stored at `runs/RUN_ID/curve.json`. It is rewritten with every checkpoint and at the
    end."""

    run_id: str
    controller: int = Field(description="the version of the controller that made its plans")
    metric: LossMetric
    learning_rate: float = Field(description="the recipe's")
    starts: tuple[TrainingStart, ...]
    windows: tuple[WindowRecord, ...]
    time_shares: TimeShares | None = Field(
        None, exclude_if=lambda shares: shares is None, description="where the time of the last start went"
    )

    def _learning_rates(self) -> list[float]:
        """Return the peak learning rate of each window."""
        rates = [self.learning_rate] * len(self.windows)
        for start in self.starts:
            if start.learning_rate is not None:
                rates[start.first_window :] = [start.learning_rate] * (len(rates) - start.first_window)
        return rates

    @property
    def curve(self) -> TrainingCurve:
        epoch_rows = self.starts[-1].setup.epoch_rows if self.starts else 1
        rates = self._learning_rates()
        points = tuple(
            CurvePoint(
                samples=each.samples,
                epoch=each.samples / epoch_rows,
                spent_usd=each.spent_usd,
                training_s=each.training_s,
                train_loss=each.train_loss,
                val_loss=each.val_loss,
                learning_rate=rate * each.rate,
                phase=each.phase,
            )
            for each, rate in zip(self.windows, rates, strict=True)
        )
        return TrainingCurve(
            run_id=self.run_id,
            metric=self.metric,
            points=points,
            time_shares=self.time_shares,
            noise=next((each.noise for each in reversed(self.windows) if each.noise is not None), None),
            measured_steps=sum(len(each.halves) for each in self.windows),
        )


class StoredCurve(RootModel[WindowLog | TrainingCurve]):
    """The object at runs/RUN_ID/curve.json: a window log, or the curve that version 4 stored."""


def read_curve(store: Store, run_id: str) -> TrainingCurve | None:
    """Return the curve of a run, or None if nothing was trained. Raises DataError."""
    found = _read(store, run_id)
    return found.curve if isinstance(found, WindowLog) else found


def read_log(store: Store, run_id: str) -> WindowLog | None:
    """Return the log of a run, or None if nothing was trained, or by version 4. Raises DataError."""
    found = _read(store, run_id)
    return found if isinstance(found, WindowLog) else None


def _read(store: Store, run_id: str) -> WindowLog | TrainingCurve | None:
    try:
        return read_record(store, store_layout.curve(run_id), StoredCurve).root
    except NotInStore:
        return None
