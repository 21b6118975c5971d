"""The settings of the network for tables."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from shoestring.data.families import SampleKind
from shoestring.training.frameworks.net_settings import NetSettings, Units, embedding_width


class TableNetSettings(NetSettings):
    """The settings of a network for tables and images."""

    learns_from: ClassVar[tuple[SampleKind, ...]] = ("tables", "images")

    family: Literal["table_net"] = "table_net"
    hidden: tuple[Units, ...] = Field((128,), min_length=1, description="units of each hidden layer")
    max_embedding_dim: int = Field(32, ge=1, description="maximum embedding width of a categorical feature")
    bins: int = Field(8, ge=2, description="bins of the piecewise-linear encoding of a number")
    dropout: float = Field(0.1, ge=0, lt=1, description="share of hidden units that each step drops")
    category_dropout: float = Field(
        0.1,
        ge=0,
        lt=1,
        description="share of category codes that each step replaces by 'unknown', so that it is trained too",
    )
    learning_rate: float = Field(0.003, gt=0, description="peak learning rate")
    patience: int = Field(
        1, ge=1, description="validations without improvement (two an epoch) before the decay starts"
    )
    batch_rows: int = Field(1024, ge=1, description="rows of a batch")

    def embedding_width(self, cardinality: int) -> int:
        """Return the width of a category's embedding."""
        return embedding_width(cardinality, self.max_embedding_dim)
