"""The settings of a linear model."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from shoestring.data.families import LearnerSettings


class LinearSettings(LearnerSettings):
    """The settings of a linear or a logistic regression by stochastic gradient descent."""

    expected_epochs: ClassVar[float] = 15.0
    min_steps_per_epoch: ClassVar[int] = 4

    family: Literal["linear"] = "linear"
    max_epochs: int = Field(100, ge=1, le=1000, description="maximum number of epochs")
    patience: int = Field(
        6, ge=1, description="validations without improvement (two an epoch) before the decay starts"
    )
    learning_rate: float = Field(
        0.3, gt=0, le=1, description="peak learning rate, over the mean squared norm of a row"
    )
    batch_rows: int = Field(512, ge=1, description="rows of a batch")
    l2: float = Field(1e-4, ge=0, description="L2 regularisation of the weights")
    category_dropout: float = Field(
        0.02,
        ge=0,
        lt=1,
        description="share of category codes that each step replaces by 'unknown', so that it is trained too",
    )
