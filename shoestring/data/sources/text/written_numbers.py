"""Numbers that are written so that no program reads them as numbers: 1,234.50 or 3,14 or 12 % or $3.20."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

DecimalSign = Literal[".", ","]

SIGNS = ("%", "$", "€", "£", "¥")
"""A sign before or after every number of a column. The number is that without the sign: 12 % is 12."""

GROUPED = r"[1-9][0-9]{0,2}(,[0-9]{3})+"
_SIGN = f"[{''.join(SIGNS)}]?"
AMBIGUOUS = rf"^\s*[-+]?{_SIGN}\s*[-+]?[1-9][0-9]{{0,2}},[0-9]{{3}}\s*{_SIGN}\s*$"
"""A number that may have a decimal comma or a thousands comma: 1,234."""
POINT = rf"^[^0-9.,]*([0-9]*|{GROUPED})\.[0-9]+[^0-9.,]*$|,[0-9]{{3}},[0-9]{{3}}"
"""A number that has a decimal point, or two thousands commas, so that its commas are no decimal ones."""

MIN_DECIMAL_COMMAS = 0.1
"""A column has decimal commas when at least this share of its commas cannot be thousands commas."""


class WrittenNumber(NamedTuple):
    """A way of writing numbers. With a decimal point, commas separate thousands.

    `is_certain`: no other decimal sign is possible, whatever the numbers are.
    """

    sign: str
    decimal: DecimalSign
    is_certain: bool = False

    @property
    def name(self) -> str:
        """The way in words, such as "thousands commas"."""
        comma = "a decimal comma" if self.decimal == "," else "" if self.sign else "thousands commas"
        return " and ".join(filter(None, (self.sign, comma)))


THOUSANDS, DECIMAL_COMMA = WrittenNumber("", "."), WrittenNumber("", ",")


def written_kinds(decimal: DecimalSign | None) -> tuple[WrittenNumber, ...]:
    """Return the ways that numbers with this decimal sign may be written in; None: either sign, by how the
    numbers look.
    """
    if decimal is not None:
        return tuple(WrittenNumber(sign, decimal, is_certain=True) for sign in ("", *SIGNS))
    return (
        *(WrittenNumber(sign, ".") for sign in ("", *SIGNS)),
        *(WrittenNumber(sign, ",") for sign in ("", *SIGNS)),
    )


class CommaCounts:
    """What the commas of a column may be, by all of its values."""

    def __init__(self) -> None:
        self._commas, self._decimal_commas, self._points = 0, 0, 0

    def add(self, column: pa.Array) -> None:
        """Add texts, of which some may be numbers."""
        with_comma = column.filter(pc.match_substring(column, ","))
        self._commas += len(with_comma)
        self._decimal_commas += len(with_comma) - _matches(with_comma, AMBIGUOUS)
        self._points += _matches(column, POINT)

    def add_points(self) -> None:
        """Add that some values have a decimal point."""
        self._points += 1

    def allow(self, kind: WrittenNumber) -> bool:
        """Return whether the values can be written in this way and in no other."""
        if kind.decimal == "," and not kind.is_certain:
            return self._decimal_commas >= max(1, self._commas * MIN_DECIMAL_COMMAS)
        if not self._commas:
            return bool(kind.sign)
        return kind.is_certain or self._points > 0


def plain_texts(texts: pa.Array, kind: WrittenNumber) -> pa.Array:
    """Return numbers as Arrow reads them. Raises pa.ArrowInvalid for texts that are not written in this
    way."""
    if kind.sign:
        sign = re.escape(kind.sign)
        if not _all_match(texts, rf"^\s*([-+]?\s*{sign}\s*[-+]?[0-9.,]+|[-+]?[0-9.,]+\s*{sign})\s*$"):
            raise pa.ArrowInvalid(f"a text without {kind.sign}")
        texts = pc.replace_substring_regex(texts, rf"[\s{sign}]", "")
    if kind.decimal == ",":
        if pc.any(pc.match_substring(texts, ".")).as_py():
            raise pa.ArrowInvalid("a decimal point in a column with decimal commas")
        return pc.replace_substring(texts, ",", ".")
    with_comma = texts.filter(pc.match_substring(texts, ","))
    if not _all_match(with_comma, rf"^\s*[-+]?{GROUPED}(\.[0-9]+)?\s*$"):
        raise pa.ArrowInvalid("a comma that does not separate thousands")
    return pc.replace_substring(texts, ",", "")


def _matches(texts: pa.Array, pattern: str) -> int:
    found: int = pc.sum(pc.match_substring_regex(texts, pattern), min_count=0).as_py()
    return found


def _all_match(texts: pa.Array, pattern: str) -> bool:
    values: int = len(texts) - texts.null_count
    return _matches(texts, pattern) == values
