"""What a running stage may change of itself, as data."""

from __future__ import annotations

from pydantic import Field

from shoestring.core.record import Record


class AdaptationLimits(Record):
    """How far a training may go by itself when its spend drifts, gentlest first. Beyond this it needs a person, who changes the policy."""

    length: bool = Field(
        True,
        description="end sooner or later than planned, annealed; false: the plan stands, and where the money ends the run is cut off",
    )
    min_validation_share: float = Field(
        0.25,
        gt=0,
        le=1,
        description="share of signal validation that a look has to read; 1: all of it, always",
    )
    max_batch_factor: float = Field(
        2.0,
        ge=1,
        le=8,
        description="how much larger than the recipe's a batch may get, its flat range; 1: as the recipe says, always",
    )
    pool: bool = Field(True, description="ask to be placed anew")
