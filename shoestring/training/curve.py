"""The training curve: losses, learning rate, spend and noise over a training, and what its steps measured."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from pydantic import Field

from shoestring.core.datasets import LossMetric
from shoestring.core.money import Usd
from shoestring.core.receipt import TimeShares
from shoestring.core.record import Record, StoredRecord

SchedulePhase = Literal["warm-up", "stable", "decay"]


class Halves(NamedTuple):
    """A step whose two halves, of `rows` rows each, were compared, after `seen` rows of the training.

    `product`: the scalar product of their mean gradients; `difference`: the squared norm of their difference.
    With a preconditioner, each element is weighted by it.
    """

    seen: int
    rows: int
    product: float
    difference: float

    @property
    def signal(self) -> float:
        """An unbiased estimate of |G|^2, which may be negative."""
        return self.product

    @property
    def noise(self) -> float:
        """An unbiased estimate of tr S."""
        return self.rows * self.difference / 2

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.product) and math.isfinite(self.difference)


class StepReadings(NamedTuple):
    """What the steps of a window measured. `gradient_norm`: their mean, before it was clipped; `clipped`: the
    steps whose norm was above its own interval."""

    gradient_norm: float | None = None
    clipped: int = 0
    halves: tuple[Halves, ...] = ()


NO_READINGS = StepReadings()


class NoiseScale(NamedTuple):
    """The noise scale of the gradient in rows, and an interval that holds it in 95 of 100 cases. `high`: None
    where it has no upper end."""

    rows: float
    low: float
    high: float | None
    measurements: int


class CurvePoint(Record):
    """One point of the curve. Losses are in the run's metric: nats, the unit of `y`, or bits per byte."""

    samples: int = Field(description="rows trained on so far, in all attempts")
    epoch: float
    spent_usd: Usd = Field(
        description=(
            "spent by this stage so far, in all attempts; work lost when an attempt was killed is not counted"
        )
    )
    training_s: float = Field(description="seconds of training so far, in all attempts")
    train_loss: float | None = Field(
        None, description="mean training loss since the previous point, with dropout, in the run's metric"
    )
    val_loss: float | None = Field(
        None, description="validation loss of the averaged weights; null between validations"
    )
    learning_rate: float
    phase: SchedulePhase


class TrainingCurve(StoredRecord):
    """The curve of a run, as a report draws it. Version 4 stored it at runs/RUN_ID/curve.json, where a window
    log is now."""

    run_id: str
    metric: LossMetric
    points: tuple[CurvePoint, ...]
    time_shares: TimeShares | None = Field(
        None, exclude_if=lambda shares: shares is None, description="where the time of the last start went"
    )
    noise: NoiseScale | None = Field(
        None, exclude_if=lambda noise: noise is None, description="the noise scale of the gradient at the end"
    )
    measured_steps: int = Field(
        0,
        exclude_if=lambda steps: not steps,
        description="steps of two batches, whose gradients were compared",
    )
