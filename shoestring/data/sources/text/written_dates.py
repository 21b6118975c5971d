"""Dates that are written with the day or the month first: 03/04/2026, 3.4.2026, 03-04-2026 9:05."""

from __future__ import annotations

from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

PATTERN = r"^\s*([0-9]{1,2})([/.-])([0-9]{1,2})([/.-])([0-9]{4})([ T][0-9]{1,2}:[0-9]{2}(:[0-9]{2})?)?\s*$"
MONTH_FIRST, DAY_FIRST = r"\5-\1-\3\6", r"\5-\3-\1\6"


class WrittenDate(NamedTuple):
    """A date whose first number is the day, or the month.

    `is_certain`: by the recipe, or by an earlier version of the data.
    """

    first: Literal["day", "month"]
    is_certain: bool = False

    @property
    def name(self) -> str:
        return f"{self.first} first"

    @property
    def other(self) -> WrittenDate:
        return WrittenDate("month" if self.first == "day" else "day")


WRITTEN_DATES = (WrittenDate("day"), WrittenDate("month"))


def iso_dates(texts: pa.Array, kind: WrittenDate) -> pa.Array:
    """Return dates as Arrow reads them. Raises pa.ArrowInvalid for texts that are not written in this way."""
    if pc.any(pc.invert(pc.match_substring_regex(texts, PATTERN))).as_py():
        raise pa.ArrowInvalid("no date of this form")
    padded = pc.replace_substring_regex(texts, r"\b([0-9])\b", r"0\1")
    order = DAY_FIRST if kind.first == "day" else MONTH_FIRST
    return pc.utf8_trim_whitespace(pc.replace_substring_regex(padded, PATTERN, order))
