"""How the rows of a data set are split, as a recipe has it."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from shoestring.core.record import Record


class Split(Record):
    """The shares of the splits. `test` is sealed: only the final evaluation reads it."""

    by: tuple[str, ...] = Field(
        (),
        description=(
            "rows with equal values in these columns (a day, a customer) go to the same split; "
            "empty: so do rows that are equal but for target, weight and leaks, where 1,000 or more differ"
        ),
    )
    time: str = Field(
        "",
        exclude_if=lambda time: not time,
        description="a column of dates, times or numbers such as a year: the latest rows are test, those "
        "before them val, the others train; rows of one time stay together; in place of `by`",
    )
    train: float = Field(0.8, gt=0, lt=1)
    val: float = Field(0.1, gt=0, lt=1)
    test: float = Field(0.1, gt=0, lt=1)

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if abs(self.train + self.val + self.test - 1) > 1e-9:
            raise ValueError(
                f"the shares add up to {self.train + self.val + self.test:g}, and must add up to 1"
            )
        if self.time and self.by:
            raise ValueError(
                f"rows are split by `by`, {', '.join(self.by)}, or by `time`, {self.time}: a group with rows "
                "before and after a boundary has no place; remove one of them"
            )
        return self
