"""The training curve: losses, learning rate and spend over a training."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shoestring.core.datasets import LossMetric
from shoestring.core.money import Usd
from shoestring.core.receipt import TimeShares
from shoestring.core.record import Record, StoredRecord

SchedulePhase = Literal["warm-up", "stable", "decay"]


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
