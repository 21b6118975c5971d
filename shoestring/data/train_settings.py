"""The settings of a training, as a recipe names them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from shoestring.core.record import Record


class TrainSettings(Record):
    """The training settings. The defaults were tuned on flights."""

    max_epochs: int = Field(
        30, ge=1, le=1000, description="maximum number of epochs, even when the budget allows more"
    )
    hidden: tuple[Annotated[int, Field(ge=1, le=4096)], ...] = Field(
        (128, 128), min_length=1, description="units of each hidden layer"
    )
    max_embedding_dim: int = Field(32, ge=1, description="maximum embedding width of a categorical feature")
    bins: int = Field(16, ge=2, description="bins of the piecewise-linear encoding of a number")
    dropout: float = Field(0.3, ge=0, lt=1, description="share of hidden units that each step drops")
    category_dropout: float = Field(
        0.2,
        ge=0,
        lt=1,
        description="share of category codes that each step replaces by 'unknown', so that it is trained too",
    )
    weight_decay: float = Field(0.01, ge=0)
    learning_rate: float = Field(0.002, gt=0, description="peak learning rate")
    batch_rows: int = Field(1024, ge=1, description="rows of a batch")
    rows_share: float = Field(
        1.0,
        gt=0,
        le=1,
        exclude_if=lambda share: share == 1,
        description="share of train's rows to train on, to try a recipe for less; "
        "a larger share holds the rows of a smaller one",
    )
    patience: int = Field(
        2, ge=1, description="validations without improvement (two an epoch) before the decay starts"
    )
