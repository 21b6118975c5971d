"""Values as people write them: how missing values, numbers and dates are spelled in columns of Arrow text."""

from __future__ import annotations

import re
import struct
from collections import Counter
from functools import cache
from itertools import accumulate
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

TEXT, NUMBER = pa.string(), pa.float64()

MISSING = (
    *("", "?", "-", "--", "---", "\u2013", "\u2014", ".", "..", "...", "*", "\\n", "#"),
    *("na", "n/a", "n.a.", "n.a", "#n/a", "#n/a n/a", "#na", "<na>", "nan", "-nan", "+nan"),
    *("#div/0!", "#value!", "#ref!", "#name?", "#null!", "#num!", "0000-00-00", "0000-00-00 00:00:00"),
    *("-1.#ind", "1.#ind", "-1.#qnan", "1.#qnan", "none", "null", "nil", "nat", "missing", "unknown"),
)
"""How a value is written that is not known, in lower case. In a column of text these are values like any
other."""

DecimalSign = Literal[".", ","]

SIGNS = (
    *("%", "$", "€", "£", "¥", "₹", "₽", "₩", "₺", "₪", "₫", "₴", "₦", "฿", "US$", "R$", "zł", "kr", "Kč"),
    *("USD", "EUR", "GBP", "JPY", "CHF", "CNY", "INR", "CAD", "AUD", "NZD", "SEK", "NOK", "DKK", "PLN"),
    *("CZK", "HUF", "BRL", "MXN", "ZAR", "KRW", "SGD", "HKD"),
)
"""A sign before or after every number of a column. The number is that without the sign: 12 % is 12."""

SPACES = " \u00a0\u2009\u202f"
APOSTROPHES = "'\u2019"
OTHER_GROUPS = f"[{SPACES}{APOSTROPHES}]"

ONE_GROUP = r"^[^0-9.,]*[1-9][0-9]{0,2}[.,][0-9]{3}[^0-9.,]*$"
"""A number whose comma or point may separate thousands or decimals: 1,234."""

LOOKED_AT = 64
"""Such numbers of a block that are looked at for an example."""

NEGATIVE = r"^\s*(?:\(([^()]+)\)|([^()]*[0-9])-)\s*$"
"""A negative number as bookkeepers write it: (1,234.50) or 1,234.50-."""

CLOCK = r"[ T][0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?(?: ?[AaPp][Mm])?"
DATE = rf"^\s*([0-9]{{1,2}})([/.-])([0-9]{{1,2}})([/.-])([0-9]{{4}}|[0-9]{{2}})({CLOCK})?\s*$"
HALF_DAY = r"(?i)[0-9] ?[ap]m\s*$"
HOURS = (
    (r"(?i)\b12(:[0-9:]+) ?am\s*$", "00"),
    (r"(?i)\b12(:[0-9:]+) ?pm\s*$", "12"),
    *((rf"(?i)\b0?{hour}(:[0-9:]+) ?pm\s*$", f"{hour + 12}") for hour in range(1, 12)),
)
SHORT_YEARS = ((r"^([0-6][0-9])-", r"20\1-"), (r"^([7-9][0-9])-", r"19\1-"))
"""A year of two digits below 70 is after 2000."""
YEAR_FIRST = r"^\s*([0-9]{4})[/.]([0-9]{1,2})[/.]([0-9]{1,2})\b"
NAMED_UTC = r" ?(UTC|GMT)\s*$"
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
MONTH = rf"((?i:{'|'.join(MONTHS)})[a-z]*)\.?"
NAMED_MONTHS = (
    (rf"^\s*([0-9]{{1,2}})[ -]{MONTH}[ ,-]+([0-9]{{4}}|[0-9]{{2}})\b", r"\3-\2-\1"),
    (rf"^\s*{MONTH}[ -]([0-9]{{1,2}})[ ,-]+([0-9]{{4}})\b", r"\3-\1-\2"),
)
ONE_READING = "|".join([YEAR_FIRST, NAMED_UTC, *(pattern for pattern, _ in NAMED_MONTHS)])
MONTH_FIRST, DAY_FIRST = r"\5-\1-\3\6", r"\5-\3-\1\6"


class WrittenNumber(NamedTuple):
    """A convention of writing numbers: the sign that each of them has, if any, and the decimal sign.

    Thousands are separated by the other one of point and comma, by spaces or by apostrophes, or not at all.
    """

    sign: str
    decimal: DecimalSign

    @property
    def name(self) -> str:
        """The convention in words, such as "thousands commas"."""
        comma = "a decimal comma" if self.decimal == "," else "" if self.sign else "thousands commas"
        return " and ".join(filter(None, (self.sign, comma)))

    @property
    def other(self) -> WrittenNumber:
        """The convention with the other decimal sign."""
        return WrittenNumber(self.sign, "," if self.decimal == "." else ".")


class WrittenDate(NamedTuple):
    """A date whose first number is the day, or the month: 03/04/2026, 3.4.2026, 03-04-2026 9:05.

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


THOUSANDS, DECIMAL_COMMA = WrittenNumber("", "."), WrittenNumber("", ",")
WRITTEN_NUMBERS = tuple(WrittenNumber(sign, decimal) for sign in ("", *SIGNS) for decimal in (".", ","))
"""All conventions. Of two that fit a column equally well, the first one is taken: 1,234 is a thousand."""
WRITTEN_DATES = (WrittenDate("day"), WrittenDate("month"))

_NULL = pa.nulls(1, TEXT)[0]


@cache
def text_array(texts: tuple[str, ...]) -> pa.Array:
    """Return texts as Arrow holds them. `pa.array` would import pandas, which takes 0.3 s."""
    packed = [text.encode() for text in texts]
    ends = struct.pack(f"={len(packed) + 1}i", 0, *accumulate(map(len, packed)))
    return pa.Array.from_buffers(
        TEXT, len(packed), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(packed))]
    )


def is_missing(texts: pa.Array) -> pa.BooleanArray:
    """Return which texts are a spelling of a missing value. Nulls are not."""
    return _is_missing(pc.utf8_trim_whitespace(texts))


def _is_missing(trimmed: pa.Array) -> pa.BooleanArray:
    return pc.is_in(pc.ascii_lower(trimmed), value_set=text_array(MISSING))


def known_texts(texts: pa.Array) -> pa.Array:
    """Return the texts without spaces around them, null for each spelling of a missing value."""
    trimmed = pc.utf8_trim_whitespace(texts)
    return pc.if_else(_is_missing(trimmed), _NULL, trimmed)


def missing_spellings(texts: pa.Array) -> Counter[str]:
    """Return how often each spelling of a missing value occurs in a column."""
    found = pc.utf8_trim_whitespace(texts.filter(is_missing(texts)))
    spellings, counts = pc.value_counts(found).flatten()
    return Counter(dict(zip(spellings.to_pylist(), counts.to_pylist(), strict=True)))


def written_numbers(texts: pa.Array, kind: WrittenNumber) -> pa.Array:
    """Return texts as numbers: float64, null for a text that is no number of this convention."""
    texts = pc.replace_substring(pc.utf8_trim_whitespace(texts), "\u2212", "-")
    if pc.any(pc.match_substring_regex(texts, NEGATIVE)).as_py():
        texts = pc.replace_substring_regex(texts, NEGATIVE, r"-\1\2")
    texts = pc.if_else(pc.match_substring_regex(texts, _pattern(kind)), texts, _NULL)
    if kind.sign:
        texts = pc.replace_substring(texts, kind.sign, "")
    texts = pc.replace_substring(texts, "," if kind.decimal == "." else ".", "")
    # Replacing by a pattern takes five times as long as finding it.
    if pc.any(pc.match_substring_regex(texts, OTHER_GROUPS)).as_py():
        texts = pc.replace_substring_regex(texts, OTHER_GROUPS, "")
    return (pc.replace_substring(texts, ",", ".") if kind.decimal == "," else texts).cast(NUMBER)


@cache
def _pattern(kind: WrittenNumber) -> str:
    group, decimal = (",", r"\.") if kind.decimal == "." else (r"\.", ",")
    grouped = "|".join(f"(?:{each}[0-9]{{3}}){{1,30}}" for each in (group, f"[{SPACES}]", f"[{APOSTROPHES}]"))
    whole = rf"(?:[1-9][0-9]{{0,2}}(?:{grouped})|[0-9]{{1,100}})"
    # "5." is a number, and "5," is one before a comma.
    fraction = rf"{decimal}[0-9]{'*' if kind.decimal == '.' else '+'}"
    number = rf"(?:{whole}(?:{fraction})?|{decimal}[0-9]+)(?:[eE][-+]?[0-9]{{1,2}})?"
    if not kind.sign:
        return rf"^[-+]?{number}$"
    sign, space = re.escape(kind.sign), f"[{SPACES}]*"
    before = rf"(?:[-+]?{space}{sign}{space}|{sign}{space}[-+]?)"
    return rf"^(?:{before}{number}|[-+]?{number}{space}{sign})$"


def signs_of(texts: pa.Array) -> set[str]:
    """Return the signs that some of the texts hold."""
    return {sign for sign in SIGNS if pc.any(pc.match_substring(texts, sign)).as_py()}


def first_ambiguous(texts: pa.Array, kind: WrittenNumber | WrittenDate) -> str:
    """Return a value that is read in another way as `kind.other`; empty: none is found."""
    if isinstance(kind, WrittenDate):
        found = texts.filter(pc.match_substring_regex(texts, DATE))
    else:
        found = texts.filter(pc.match_substring_regex(texts, ONE_GROUP))[:LOOKED_AT]
        found = found.filter(pc.not_equal(written_numbers(found, kind), written_numbers(found, kind.other)))
    return found[0].as_py() if len(found) else ""


def standard_dates(texts: pa.Array) -> pa.Array | None:
    """Return dates that have one reading as Arrow reads them: 2026/3/4, 4 Mar 2026, March 4, 2026, or
    2026-03-04 9:05 UTC; None if none of them is written so."""
    if not pc.any(pc.match_substring_regex(texts, ONE_READING)).as_py():
        return None
    for pattern, order in NAMED_MONTHS:
        texts = pc.replace_substring_regex(texts, pattern, order)
    for number, month in enumerate(MONTHS, 1):
        texts = pc.replace_substring_regex(texts, f"(?i)-{month}[a-z]*-", f"-{number:02}-")
    texts = pc.replace_substring_regex(texts, YEAR_FIRST, r"\1-\2-\3")
    return pc.replace_substring_regex(_padded(texts), NAMED_UTC, "Z")


def _padded(texts: pa.Array) -> pa.Array:
    """Return dates that begin with the year, with a century, two digits for each part, and 24 hours."""
    if pc.any(pc.match_substring_regex(texts, HALF_DAY)).as_py():
        for pattern, hour in HOURS:
            texts = pc.replace_substring_regex(texts, pattern, rf"{hour}\1")
        texts = pc.replace_substring_regex(texts, r"(?i) ?am\s*$", "")
    texts = pc.utf8_trim_whitespace(pc.replace_substring_regex(texts, r"\b([0-9])\b", r"0\1"))
    for pattern, year in SHORT_YEARS:
        texts = pc.replace_substring_regex(texts, pattern, year)
    return texts


def iso_dates(texts: pa.Array, kind: WrittenDate) -> pa.Array:
    """Return dates as Arrow reads them. Raises pa.ArrowInvalid for texts that are not written in this way."""
    if pc.any(pc.invert(pc.match_substring_regex(texts, DATE))).as_py():
        raise pa.ArrowInvalid("no date of this form")
    return _padded(pc.replace_substring_regex(texts, DATE, DAY_FIRST if kind.first == "day" else MONTH_FIRST))
