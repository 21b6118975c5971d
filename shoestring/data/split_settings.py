"""How the rows of a data set are split, as a recipe has it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Self

from pydantic import Field, model_validator

from shoestring.core.record import Record

SPLITS = ("train", "val", "test")

SPLIT_COLUMN = "_split"
"""The column of raw data with the split that the name of a row's file gives."""

WORDS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing", "t10k"),
}
OF_WORD = {word: split for split, words in WORDS.items() for word in words}


def split_of_word(text: str) -> str | None:
    """Return the split that a value of a column names, in any case; None: it names none."""
    return OF_WORD.get(text.strip().lower())


def split_of_name(name: str) -> str | None:
    """Return the split that a file is named by: by its outermost folder with such a word, else by its own
    name, such as val/7.png, train-00000-of-00002.parquet or t10k-images-idx3-ubyte; None: by none, or two.
    """
    for part in PurePosixPath(name.replace("\\", "/")).parts:
        found = {OF_WORD[word] for word in re.split(r"[^a-z0-9]+", part.lower()) if word in OF_WORD}
        if found:
            return found.pop() if len(found) == 1 else None
    return None


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
    column: str = Field(
        "",
        exclude_if=lambda column: not column,
        description="a column of the main table that names the split of each row: train, val (valid, "
        "validation, dev) or test; a split that it does not name is drawn from the rows of train",
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
        if self.time and self.column:
            raise ValueError(
                f"rows are split by `time`, {self.time}, or by `column`, {self.column}: remove one of them"
            )
        return self

    def require_alone(self, named: Mapping[str, bool], main: str) -> None:
        """Check that files which name the split of their rows are those of the main table, and decide it
        alone. `named`: whether those of each table do. Raises ValueError."""
        for table, is_named in named.items():
            if is_named and table != main:
                raise ValueError(f"`splits` belongs to the main table {main!r}, not to {table!r}")
        if (given := "column" if self.column else "time" if self.time else "") and named[main]:
            raise ValueError(f"files name the splits (`splits`), or `split.{given}` does: remove one of them")
