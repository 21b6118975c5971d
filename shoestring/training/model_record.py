"""What a training leaves behind."""

from __future__ import annotations

from pydantic import Field

from shoestring.core.datasets import Encoding
from shoestring.core.record import Record, StoredRecord
from shoestring.data.recipe import TrainSettings


class SampleRange(Record):
    """Samples that were seen: positions [first, last) of an epoch's order."""

    epoch: int
    start: int
    stop: int


class ModelRecord(StoredRecord):
    """`runs/RUN_ID/model.json`: all that is needed to load the model, and what went into it."""

    run_id: str
    weights_sha256: str
    dataset_key: str = Field(description="key of the manifest that it was trained on")
    encoding: Encoding
    settings: TrainSettings
    seed: int
    samples: int
    epochs: float
    training_s: float = Field(
        description="of training, evaluations on the signal split included, all starts together"
    )
    cores: int = Field(description="of the start that ended it")
    val_loss: float | None = Field(
        description="on the signal split, of the weights that were kept: nats, or the rmse in the unit of y; null: no time for a look"
    )
    weights_source: str = Field(
        description="which weights these are: 'annealed', 'averaged' of the plateau, or the 'prior', untrained"
    )
    stop_reason: str = Field(description="why training ended, and what was wrong with checkpoints")
    data_wait_share: float = Field(description="share of the time in which training waited for data")
    validation_share: float = Field(1.0, description="share of the signal split that val_loss is of")
    sample_ranges: tuple[SampleRange, ...] = Field(
        description="what was seen, merged where it is contiguous; across kills and resumes"
    )


def add_sample_range(
    windows: tuple[SampleRange, ...], epoch: int, first: int, last: int
) -> tuple[SampleRange, ...]:
    """The windows after one more batch."""
    if windows and (windows[-1].epoch, windows[-1].stop) == (epoch, first):
        return (*windows[:-1], windows[-1].model_copy(update={"last": last}))
    return (*windows, SampleRange(epoch=epoch, start=first, stop=last))
