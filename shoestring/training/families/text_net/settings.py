"""The settings of the network for texts."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, field_validator

from shoestring.data.families import SampleKind
from shoestring.training.frameworks.net_settings import NetSettings, Units


class TextNetSettings(NetSettings):
    """The settings of a network for texts. The defaults were tuned on 4 MB of English, in rows of 512."""

    learns_from: ClassVar[tuple[SampleKind, ...]] = ("texts",)

    family: Literal["text_net"] = "text_net"
    hidden: tuple[Units, ...] = Field(
        (64, 64, 64, 64), min_length=1, description="units of each layer, the same of all"
    )
    dropout: float = Field(0.05, ge=0, lt=1, description="share of hidden units that each step drops")
    learning_rate: float = Field(0.004, gt=0, description="peak learning rate")
    batch_rows: int = Field(8, ge=1, description="rows of a batch")

    @field_validator("hidden")
    @classmethod
    def _layers_are_of_one_width(cls, hidden: tuple[int, ...]) -> tuple[int, ...]:
        if len({*hidden}) > 1:
            raise ValueError("all layers of a net for texts have the same number of units")
        return hidden
