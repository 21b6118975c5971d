"""The kinds that a column of text may have (integer, number, boolean, timestamp or text), and its values as
one of them."""

from __future__ import annotations

import struct
from functools import cached_property
from math import isnan
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shoestring.data.values import (
    DATE,
    NUMBER,
    ONE_READING,
    TEXT,
    WRITTEN_DATES,
    WRITTEN_NUMBERS,
    WrittenDate,
    WrittenNumber,
    iso_dates,
    known_texts,
    standard_dates,
    written_numbers,
)

Floats = np.ndarray[Any, np.dtype[np.float64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]
Counts = np.ndarray[Any, np.dtype[np.int64]]
Codes = np.ndarray[Any, np.dtype[np.int32]]

INTEGER, BOOLEAN = pa.int64(), pa.bool_()
TIMESTAMP, TIMESTAMP_UTC = pa.timestamp("us"), pa.timestamp("us", "UTC")
COLUMN_TYPES = (INTEGER, NUMBER, BOOLEAN, TIMESTAMP, TIMESTAMP_UTC)

ColumnKind: TypeAlias = pa.DataType | WrittenNumber | WrittenDate
"""How the text of a column is read: as an Arrow type, or as numbers or dates that are written in some way."""

TEXT_KINDS: tuple[ColumnKind, ...] = (*COLUMN_TYPES, *WRITTEN_NUMBERS, *WRITTEN_DATES)
"""The kinds that a column of text may have. Of two that fit equally well, it has the first."""

MAX_MISMATCH_SHARE = 0.02
"""A column has a type when at most this share of its values does not parse. Rows with such values are
quarantined."""

PROBED_VALUES = 64
"""Values that are tried first, since a failed Arrow conversion costs 100 times a successful one. When
none of this many distinct values parses, none is assumed to."""

PROBED_ROWS = 4096
"""Rows in which these values are looked for first, since finding all distinct values costs more."""

MAY_PARSE: dict[pa.DataType, str] = {
    INTEGER: "^[-+0-9]",
    NUMBER: "^[-+.0-9iInN]",
    BOOLEAN: "^(?i:true|false|0|1)$",
    TIMESTAMP: f"^[0-9]{{4}}-|{ONE_READING}",
    TIMESTAMP_UTC: f"^[0-9]{{4}}-|{ONE_READING}",
}
"""A pattern that each text without spaces around it matches which parses as the type. To try a text alone
takes longer."""

TYPE_NAMES: dict[pa.DataType, str] = {
    INTEGER: "a whole number",
    NUMBER: "a number",
    BOOLEAN: "true or false",
    TIMESTAMP: "a date and time",
    TIMESTAMP_UTC: "a date and time with zone",
}


def kind_name(kind: ColumnKind) -> str:
    """Return what one value of a kind is, in words."""
    if isinstance(kind, WrittenDate):
        return f"a date with the {kind.name}"
    return f"a number with {kind.name}" if isinstance(kind, WrittenNumber) else TYPE_NAMES[kind]


def arrow_type(kind: ColumnKind) -> pa.DataType:
    """Return the Arrow type of the values of a kind."""
    if isinstance(kind, WrittenDate):
        return TIMESTAMP
    return NUMBER if isinstance(kind, WrittenNumber) else kind


class DistinctTexts:
    """A text column whose distinct values are found once, for all kinds that are tried."""

    def __init__(self, column: pa.Array) -> None:
        self._column = column

    @cached_property
    def probed(self) -> pa.Array:
        """The first distinct values, which are all of them when there are fewer than PROBED_VALUES."""
        head = pc.utf8_trim_whitespace(self._column[:PROBED_ROWS]).dictionary_encode().dictionary
        found = head if len(head) >= PROBED_VALUES else self._encoded[0]
        return found[:PROBED_VALUES]

    @cached_property
    def _encoded(self) -> tuple[pa.Array, Codes, Counts]:
        """The distinct values, int32[rows] of their indices, and int64[values] of their rows."""
        encoded = pc.utf8_trim_whitespace(self._column).dictionary_encode()
        none = float_scalar(len(encoded.dictionary)).cast(pa.int32())
        codes = np.from_dlpack(encoded.indices.fill_null(none)).astype(np.int32, copy=False)
        counts: Counts = np.bincount(codes, minlength=len(encoded.dictionary) + 1)[:-1]
        return encoded.dictionary, codes, counts

    def mismatches(self, kind: ColumnKind, max_count: int) -> Mask | None:
        """Return which values do not parse as the kind: bool[rows]. Nulls always fit.

        Returns None when there are more than `max_count`.
        """
        if not _any_parses(self.probed, kind):
            bad = pc.is_valid(self._column)
            return None if pc.sum(bad, min_count=0).as_py() > max_count else _mask(bad)
        if try_parse(self._column, kind) is not None:
            return np.zeros(len(self._column), bool)
        texts, codes, counts = self._encoded
        unparsable = _unparsable(texts, counts, kind, max_count)
        return None if unparsable is None else np.append(unparsable, False)[codes]


def parse_column(column: pa.Array, kind: ColumnKind) -> tuple[pa.Array, Mask]:
    """Return the values of a text column as the kind, null where they are missing or do not parse, and where
    they do not parse: bool[rows]."""
    if (parsed := try_parse(column, kind)) is not None:
        return parsed, np.zeros(len(column), bool)
    column = known_texts(column)
    if (parsed := try_parse(column, kind)) is not None:
        return parsed, np.zeros(len(column), bool)
    bad = DistinctTexts(column).mismatches(kind, len(column))
    assert bad is not None
    good = pc.if_else(pa.array(bad), pa.scalar(None, TEXT), column)
    return _cast(good, kind), bad


def can_parse(texts: pa.Array, kind: ColumnKind) -> bool:
    """Return True when every text parses as the kind, by the rules of Arrow's own conversion."""
    try:
        _cast(texts, kind)
    except pa.ArrowInvalid:
        return False
    return True


def try_parse(column: pa.Array, kind: ColumnKind) -> pa.Array | None:
    """Return the values of a text column as the kind; None when one does not parse."""
    if not can_parse(column[:PROBED_VALUES], kind):
        return None
    try:
        return _cast(column, kind)
    except pa.ArrowInvalid:
        return None


def _cast(texts: pa.Array, kind: ColumnKind) -> pa.Array:
    """Return the values as the kind. Raises pa.ArrowInvalid."""
    if isinstance(kind, WrittenDate):
        return iso_dates(texts, kind).cast(TIMESTAMP)
    if isinstance(kind, WrittenNumber):
        numbers = written_numbers(texts, kind)
        if numbers.null_count > texts.null_count:
            raise pa.ArrowInvalid(f"not a number with {kind.name}")
        return numbers
    values = _plain_cast(texts, kind)
    # Arrow reads 0x1f, which is a code, as a whole number.
    has_letters = kind == INTEGER and _may_have_letters(texts)
    if has_letters and pc.any(pc.match_substring_regex(texts, "[xX]")).as_py():
        raise pa.ArrowInvalid("hexadecimal digits")
    # Arrow reads "nan", which is a missing value, as a number. The sum is the quickest look for one.
    if kind == NUMBER and isnan(pc.sum(values).as_py() or 0.0) and pc.any(pc.is_nan(values)).as_py():
        raise pa.ArrowInvalid("nan is not a number")
    return values


def _may_have_letters(texts: pa.Array) -> bool:
    """Return False where no text has one, as their bytes, and those of other slices of the array, show."""
    characters = texts.buffers()[2]
    return characters is not None and bool(np.frombuffer(characters, np.uint8).max(initial=0) > ord("9"))


def _plain_cast(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the values as an Arrow type. Raises pa.ArrowInvalid."""
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        if kind not in (TIMESTAMP, TIMESTAMP_UTC) or (dates := standard_dates(texts)) is None:
            raise
        return dates.cast(kind)


def _any_parses(texts: pa.Array, kind: ColumnKind) -> bool:
    if isinstance(kind, WrittenNumber):
        return bool(written_numbers(texts, kind).null_count < len(texts))
    pattern = DATE if isinstance(kind, WrittenDate) else MAY_PARSE[kind]
    texts = texts.filter(pc.match_substring_regex(texts, pattern))
    return any(can_parse(texts[index : index + 1], kind) for index in range(len(texts)))


def _unparsable(texts: pa.Array, counts: Counts, kind: ColumnKind, max_count: int) -> Mask | None:
    """Return which of the distinct texts do not parse; None when their counts exceed `max_count`."""
    if isinstance(kind, WrittenNumber):
        bad = _mask(written_numbers(texts, kind).is_null())
        return None if counts[bad].sum() > max_count else bad
    bad = np.zeros(len(texts), bool)
    spans, found = [(0, len(texts))], 0
    while spans:  # By bisection, since Arrow only says that some text does not parse.
        start, stop = spans.pop()
        if can_parse(texts[start:stop], kind):
            continue
        if stop - start == 1:
            bad[start] = True
            found += int(counts[start])
            if found > max_count:
                return None
            continue
        middle = (start + stop) // 2
        spans += [(middle, stop), (start, middle)]
    return bad


def _mask(flags: pa.BooleanArray) -> Mask:
    """Return bool[rows]. numpy asks pyarrow for booleans by way of pandas."""
    return np.from_dlpack(flags.cast(pa.uint8())) > 0


def float_scalar(number: float) -> pa.DoubleScalar:
    """Return a number as Arrow holds it.

    It is made from bytes: pyarrow imports pandas to convert a value of Python or numpy, which takes 0.3 s.
    """
    return pa.Array.from_buffers(pa.float64(), 1, [None, pa.py_buffer(struct.pack("=d", number))])[0]


def float_values(column: pa.ChunkedArray) -> Floats:
    """Return the values of a float64 column without nulls. `to_numpy` would import pandas."""
    values: Floats = np.from_dlpack(column.combine_chunks()).astype(np.float64, copy=False)
    return values
