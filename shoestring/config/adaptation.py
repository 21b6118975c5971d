"""The limits within which a running training may change itself without a person."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from shoestring.core.record import Record


class BatchBounds(Record):
    """The rows that the batch of a network may have where it follows the noise of the gradient."""

    min_rows: int = Field(1, ge=1)
    max_rows: int | None = Field(None, ge=1, description="null: any that leave an epoch its steps")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.max_rows is not None and self.max_rows < self.min_rows:
            raise ValueError(f"max_rows {self.max_rows} is below min_rows {self.min_rows}")
        return self


class AdaptationLimits(Record):
    """The adaptations that a training may make when its spend deviates from the plan, mildest first."""

    length: bool = Field(
        True,
        description="it may change its planned length and end annealed; false: the plan is kept, and the "
        "end of the budget stops it",
    )
    min_validation_share: float = Field(
        0.25,
        gt=0,
        le=1,
        description="minimum share of the validation split that each validation reads; 1: always all",
    )
    max_batch_factor: float = Field(
        2.0,
        ge=1,
        le=8,
        description="maximum batch size as a multiple of the recipe's; 1: always the recipe's",
    )
    batch: BatchBounds | None = Field(
        BatchBounds(),
        exclude_if=lambda bounds: bounds == BatchBounds(),
        description="the batch follows the noise of the gradient within these rows; null: it stays",
    )
    pool: bool = Field(True, description="it may ask to migrate to another pool")
