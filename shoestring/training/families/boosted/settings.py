"""The settings of gradient boosting."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from shoestring.data.families import LearnerSettings

CODE_ROWS = 30
"""Rows of train for each value of a category, in the mean, from which on trees read its codes. Chosen among 0
to 300 on 28 tables of pydataset, none in `bench/tables.txt`, with three draws each, where the test loss is
0.991 of that by means alone."""

MAX_CLASSES = 8
"""With more classes, a category of fewer rows is one feature, the rank of its frequency, instead of the mean
of each class."""


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


def is_by_code(cardinality: int, rows: int) -> bool:
    """Return whether trees read a category by its codes: `rows` of train are enough of each in the mean."""
    return cardinality * CODE_ROWS <= rows


def category_features(cardinality: int, outputs: int, rows: int) -> int:
    """Return how many features of trees a category is. `outputs`: the scores of a row, one a class."""
    return outputs if outputs <= MAX_CLASSES and not is_by_code(cardinality, rows) else 1
