"""The settings that all networks have."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field

from shoestring.data.families import LearnerSettings

Units = Annotated[int, Field(ge=1, le=4096)]


class NetSettings(LearnerSettings):
    """The settings of a network that AdamW trains."""

    dropout: float = Field(ge=0, lt=1, description="share of hidden units that each step drops")
    weight_decay: float = Field(0.01, ge=0)
    batch_rows: int = Field(ge=1, description="rows of a batch")


def embedding_width(cardinality: int, most: int = 32) -> int:
    """Return the width of a category's embedding: 1.6 x cardinality^0.56 (fastai's rule), at most `most`."""
    return min(most, round(1.6 * math.pow(cardinality, 0.56)))
