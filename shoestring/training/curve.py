"""How a training went, point by point."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shoestring.core.money import Usd
from shoestring.core.record import Record, StoredRecord

LossMetric = Literal["log_loss", "rmse"]
SchedulePhase = Literal["warm-up", "stable", "decay"]


class CurvePoint(Record):
    """A moment of training. Losses are in the metric of the run: nats, or the unit of `y`."""

    samples: int = Field(description="rows trained on so far, in all attempts")
    epoch: float
    spent_usd: Usd = Field(description="by this stage so far, in all attempts, but for what a kill undid")
    training_s: float = Field(description="of training so far, in all attempts")
    train_loss: float | None = Field(
        None, description="mean since the last point, dropout and all, in the metric too"
    )
    val_loss: float | None = Field(
        None, description="of the averaged weights on signal validation; null between validations"
    )
    learning_rate: float
    phase: SchedulePhase


class TrainingCurve(StoredRecord):
    """How the loss went. Lies at runs/RUN_ID/curve.json, and is written anew with every checkpoint and at the end."""

    run_id: str
    metric: LossMetric
    points: tuple[CurvePoint, ...]
