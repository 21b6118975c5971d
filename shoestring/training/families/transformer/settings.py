"""The settings of the transformer for texts."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from shoestring.data.families import SampleKind
from shoestring.training.frameworks.net_settings import NetSettings, Units


class TransformerSettings(NetSettings):
    """The settings of a transformer. Its defaults are from trainings of 25 s on 4 MB of English."""

    learns_from: ClassVar[tuple[SampleKind, ...]] = ("texts",)
    enough_epochs: ClassVar[float] = 4.0
    """With fewer epochs over 4 MB of text, `text_net` has the lower loss for the same money."""

    family: Literal["transformer"] = "transformer"
    width: Units = Field(64, description="units of each token")
    layers: int = Field(2, ge=1, le=64, description="layers, each of attention and a feed-forward net")
    heads: int = Field(4, ge=1, description="heads of attention, which share the width")
    feed_forward: Units = Field(4, description="hidden units of the feed-forward net, as a multiple of width")
    window: int | None = Field(
        32,
        ge=1,
        description="tokens that each layer attends to, with the token itself; null: all before in the row",
    )
    ngrams: bool = Field(True, description="whether hashed 2- to 5-grams that end at a token are read too")
    dropout: float = Field(0.0, ge=0, lt=1, description="share of each sublayer's units that a step drops")
    learning_rate: float = Field(0.006, gt=0, description="peak learning rate")
    batch_rows: int = Field(8, ge=1, description="rows of a batch")

    @model_validator(mode="after")
    def _heads_share_the_width(self) -> Self:
        # Rotary positions turn pairs of units.
        if self.width % (2 * self.heads):
            raise ValueError(f"width {self.width} is no multiple of twice the {self.heads} heads")
        return self
