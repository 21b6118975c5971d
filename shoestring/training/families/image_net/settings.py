"""The settings of the network for images."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from shoestring.data.families import SampleKind
from shoestring.training.frameworks.net_settings import NetSettings, Units

SMALL_SIDE, FIRST_MAP_SIDE = 64, 32

SHIFT_FROM_EPOCHS, SHIFT_SIDE = 3, 28
"""Images are moved once they were seen so often: earlier it costs a short training more than it gains, and a
net that sees the same images again and again knows them by heart."""


class ImageNetSettings(NetSettings):
    """The settings of a network for images. The defaults were tuned on Fashion-MNIST, 90 s of one core."""

    learns_from: ClassVar[tuple[SampleKind, ...]] = ("images",)

    family: Literal["image_net"] = "image_net"
    hidden: tuple[Units, ...] = Field(
        (32, 64, 128),
        min_length=1,
        description="channels of each stage; each stage after the first halves height and width",
    )
    convolutions: int = Field(1, ge=1, le=16, description="3 x 3 convolutions of each stage")
    stride: int | None = Field(
        None,
        ge=1,
        description="pixels between two values of the first layer, whose windows are 2 wider; null: 2, and "
        f"for images of more than {SMALL_SIDE} pixels a side as many as leave {FIRST_MAP_SIDE} values",
    )
    dropout: float = Field(0.1, ge=0, lt=1, description="share of the pooled channels that each step drops")
    shift: int | None = Field(
        None,
        ge=0,
        description="pixels by which each step moves an image at most, in both directions; null: none in the "
        f"first {SHIFT_FROM_EPOCHS} epochs, then a pixel for every {SHIFT_SIDE} of the smaller side",
    )
    flip: bool = Field(False, description="whether each step mirrors half of the images, left to right")
    patience: int = Field(
        4,
        ge=1,
        description="validations without improvement (two an epoch) before the decay starts; the loss "
        "rises for one or two when images begin to be moved",
    )
    learning_rate: float = Field(0.005, gt=0, description="peak learning rate")
    batch_rows: int = Field(128, ge=1, description="images of a batch")

    def shift_at(self, epochs: float, side: int) -> int:
        """Return the most pixels by which a step at `epochs` moves an image of this smaller side."""
        if self.shift is not None:
            return self.shift
        return round(side / SHIFT_SIDE) if epochs >= SHIFT_FROM_EPOCHS else 0

    def stride_for(self, height: int, width: int) -> int:
        """Return the stride of the first layer, at most the smaller side."""
        side = max(height, width)
        usual = 2 if side <= SMALL_SIDE else -(-side // FIRST_MAP_SIDE)
        return min(self.stride or usual, height, width)
