"""The limits within which a running training may change itself without a person."""

from __future__ import annotations

from pydantic import Field

from shoestring.core.record import Record


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
    pool: bool = Field(True, description="it may ask to migrate to another pool")
