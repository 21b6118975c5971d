"""The settings of gradient boosting."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from shoestring.data.families import LearnerSettings

MAX_CLASSES = 8
"""With more classes, a category is one feature, the rank of its frequency, instead of one for each class."""


class BoostedSettings(LearnerSettings):
    """The settings of gradient boosting. An epoch is one round over the rows: a tree, or a tree a class."""

    epochs_name: ClassVar[str] = "rounds"
    expected_epochs: ClassVar[float] = 100.0
    enough_epochs: ClassVar[float] = 50.0

    family: Literal["boosted"] = "boosted"
    max_epochs: int = Field(1000, ge=1, le=1000, description="maximum number of rounds")
    patience: int = Field(
        10, ge=1, description="validations (one a round) without improvement before the training ends"
    )
    learning_rate: float = Field(0.1, gt=0, le=1, description="share of each tree that is added")
    leaves: int = Field(31, ge=2, le=4096, description="leaves of a tree")
    min_leaf_rows: int = Field(20, ge=1, description="rows of a leaf")
    bins: int = Field(255, ge=2, le=65_535, description="bins of a feature")
    l2: float = Field(1.0, ge=0, description="L2 regularisation of the leaves")


BASELINE = BoostedSettings()
"""The model that an evaluation on a table compares with. It trains it where the store does not have it."""


def category_features(outputs: int) -> int:
    """Return how many features of trees a category is, by the scores of a row: one a class."""
    return outputs if outputs <= MAX_CLASSES else 1
