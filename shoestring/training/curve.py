"""What training leaves for people to read: its curve, and the record of the model it kept."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shoestring.data.recipe import TrainSettings
from shoestring.model import Encoding, Noun, Usd

Metric = Literal["log_loss", "rmse"]
Phase = Literal["warm-up", "stable", "decay"]


class Point(Noun):
    """A moment of training. Losses are in the metric of the run: nats, or the unit of `y`."""

    samples: int = Field(description="rows trained on so far, in all attempts")
    epoch: float
    spent_usd: Usd = Field(description="by this stage so far, in all attempts")
    seconds: float = Field(description="of training so far, in all attempts")
    train_loss: float | None = Field(description="mean since the last point, dropout and all")
    val_loss: float | None = Field(description="of the averaged weights on signal validation; null between validations")
    learning_rate: float
    phase: Phase


class Curve(Noun):
    """How the loss went. Lies at runs/RUN_ID/curve.json, and is written anew as training goes on."""

    schema_version: Literal[1] = 1
    run_id: str
    metric: Metric
    points: tuple[Point, ...]


class Window(Noun):
    """Positions of an epoch, from `start` up to but without `stop`, that were trained on in one go."""

    epoch: int
    start: int
    stop: int


class Trained(Noun):
    """A model that training kept. Lies at runs/RUN_ID/model.json."""

    schema_version: Literal[1] = 1
    run_id: str
    data: str = Field(description="key of the manifest it was trained on")
    weights_sha256: str = Field(description="blob that torch.load(weights_only=True) reads")
    encoding: Encoding
    settings: TrainSettings
    seed: int
    metric: Metric
    val_loss: float = Field(description="of the weights that were kept, on signal validation")
    kept_at_samples: int = Field(description="where on the curve those weights are from")
    samples: int
    epochs: float
    seconds: float = Field(description="of training and signal validation, in all attempts")
    spent_usd: Usd = Field(description="by this stage up to here, in all attempts")
    stopped: str = Field(description="why it trained no longer")
    windows: tuple[Window, ...] = Field(description="what was seen, in order")
