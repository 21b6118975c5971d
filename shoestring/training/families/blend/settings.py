"""The settings of a blend."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from shoestring.data.families import FamilySettings, LearnerSettings, MemberSection, settings_of

MOST_LINEAR_ROWS = 20_000
"""Rows of train up to which the default members have a linear model. On more rows it takes as long as the
trees, and its weight is mostly near 0."""


class BlendSettings(FamilySettings):
    """The settings of a blend. Each of its members has the keys of its own family."""

    family: Literal["blend"] = "blend"
    members: tuple[MemberSection, ...] | None = Field(
        None,
        min_length=2,
        exclude_if=lambda members: members is None,
        description="sections like `train`, in the order in which they are trained; null: `boosted` and "
        f"`table_net`, on at most {MOST_LINEAR_ROWS:,} rows of train `linear` before them",
    )

    enough_epochs: ClassVar[float] = 1.0

    @model_validator(mode="after")
    def _members_fit(self) -> Self:
        for member in self.members or ():
            if "tables" not in member.learns_from:
                raise ValueError(f"members: {member.family} does not learn from tables")
            if member.rows_share != 1:
                raise ValueError(
                    f"members: {member.family} has a rows_share of its own, and all members are trained on "
                    "the same rows: make it a key of the blend"
                )
        return self

    def members_for(self, rows: int) -> tuple[LearnerSettings, ...]:
        if self.members is not None:
            return self.members
        linear = ("linear",) if rows <= MOST_LINEAR_ROWS else ()
        return tuple(settings_of({"family": name}) for name in (*linear, "boosted", "table_net"))

    def most_epochs(self) -> int:
        return self.members_for(0)[-1].most_epochs()
