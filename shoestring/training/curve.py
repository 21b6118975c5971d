"""How a training went, point by point."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shoestring.core.money import Usd
from shoestring.core.types import Record

Metric = Literal["log_loss", "rmse"]
Phase = Literal["warm-up", "stable", "decay"]


class Point(Record):
    """A moment of training. Losses are in the metric of the run: nats, or the unit of `y`."""

    samples: int = Field(description="rows trained on so far, in all attempts")
    epoch: float
    spent_usd: Usd = Field(description="by this stage so far, in all attempts, but for what a kill undid")
    seconds: float = Field(description="of training so far, in all attempts")
    train_loss: float | None = Field(
        None, description="mean since the last point, dropout and all, in the metric too"
    )
    val_loss: float | None = Field(
        None, description="of the averaged weights on signal validation; null between validations"
    )
    learning_rate: float
    phase: Phase


class Curve(Record):
    """How the loss went. Lies at runs/RUN_ID/curve.json, and is written anew with every checkpoint and at the end."""

    schema_version: Literal[1] = 1
    run_id: str
    metric: Metric
    points: tuple[Point, ...]
