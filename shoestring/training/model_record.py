"""The record of a trained model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from shoestring.core.datasets import Encoding
from shoestring.core.record import Record, StoredRecord
from shoestring.data.families import TrainSection
from shoestring.data.text_defaults import text_section


class SampleRange(Record):
    """Trained samples: positions [start, stop) of an epoch's shuffled order."""

    epoch: int
    start: int
    stop: int


class ModelRecord(StoredRecord):
    """Everything needed to load a model, and how it was trained. Stored at `runs/RUN_ID/model.json`."""

    run_id: str
    weights_sha256: str
    dataset_key: str = Field(description="store key of the manifest it was trained on")
    encoding: Encoding
    settings: TrainSection
    seed: int
    samples: int
    epochs: float
    training_s: float = Field(description="seconds of training with validation, in all starts")
    cores: int = Field(description="cores of the last start")
    val_loss: float | None = Field(
        description=(
            "validation loss of these weights: nats, or the rmse in the unit of y; null: no time to validate"
        )
    )
    inverse_temperature: float = Field(
        1.0,
        exclude_if=lambda inverse: inverse == 1,
        description="what log-probabilities are multiplied by: fitted on validation (Guo et al. 2017)",
    )
    weights_source: str = Field(
        description="'annealed' (after the decay), 'averaged' (of the plateau), 'last round' or 'best round' "
        "(of a forest), or 'prior' (untrained)"
    )
    stop_reason: str = Field(description="why training ended, and any problem with its checkpoints")
    data_wait_share: float = Field(description="share of the training time spent waiting for data")
    validation_share: float = Field(
        1.0, description="share of the validation split that val_loss is computed on"
    )
    sample_ranges: tuple[SampleRange, ...] = Field(
        description="all trained samples, over all starts; adjacent ranges are merged"
    )
    selection: str = Field(
        "",
        exclude_if=lambda sha256: not sha256,
        description="digest of the blob with the rows of an epoch; empty: all rows of the split",
    )
    shuffle_quality: float = Field(
        1.0,
        exclude_if=lambda quality: quality == 1,
        description="how well the order of streamed blocks mixes; 1: as a uniform shuffle",
    )

    @model_validator(mode="before")
    @classmethod
    def _with_family(cls, data: Any) -> Any:
        """Version 4 named no family: a model of texts has a vocabulary."""
        if not isinstance(data, Mapping) or not isinstance(encoding := data.get("encoding"), Mapping):
            return data
        return {**data, "settings": text_section(data["settings"])} if encoding.get("vocabulary") else data


def add_sample_range(
    ranges: tuple[SampleRange, ...], epoch: int, start: int, stop: int
) -> tuple[SampleRange, ...]:
    """Return the ranges with one more batch, merged into the last range where it continues it."""
    if ranges and (ranges[-1].epoch, ranges[-1].stop) == (epoch, start):
        return (*ranges[:-1], ranges[-1].model_copy(update={"stop": stop}))
    return (*ranges, SampleRange(epoch=epoch, start=start, stop=stop))
