"""What a training leaves behind."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shoestring.core.datasets import Encoding
from shoestring.core.types import Record
from shoestring.data.recipe import TrainSettings


class Window(Record):
    """Samples that were seen: positions [first, last) of an epoch's order."""

    epoch: int
    first: int
    last: int


class ModelRecord(Record):
    """`runs/RUN_ID/model.json`: all that is needed to load the model, and what went into it."""

    schema_version: Literal[1] = 1
    run_id: str
    weights_sha256: str
    data: str = Field(description="key of the manifest that it was trained on")
    encoding: Encoding
    settings: TrainSettings
    seed: int
    samples: int
    epochs: float
    seconds: float = Field(
        description="of training, evaluations on the signal split included, all starts together"
    )
    cores: int = Field(description="of the start that ended it")
    val_loss: float | None = Field(
        description="on the signal split, of the weights that were kept: nats, or the rmse in the unit of y; null: no time for a look"
    )
    kept: str = Field(
        description="which weights these are: 'annealed', 'averaged' of the plateau, or the 'prior', untrained"
    )
    stopped: str = Field(description="why training ended, and what was wrong with checkpoints")
    stall_share: float = Field(description="share of the time in which training waited for data")
    look_share: float = Field(1.0, description="share of the signal split that val_loss is of")
    windows: tuple[Window, ...] = Field(
        description="what was seen, merged where it is contiguous; across kills and resumes"
    )


def seen(windows: tuple[Window, ...], epoch: int, first: int, last: int) -> tuple[Window, ...]:
    """The windows after one more batch."""
    if windows and (windows[-1].epoch, windows[-1].last) == (epoch, first):
        return (*windows[:-1], windows[-1].model_copy(update={"last": last}))
    return (*windows, Window(epoch=epoch, first=first, last=last))
