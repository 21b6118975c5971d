"""Infer the type of a text column: integer, number, boolean, timestamp or text."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shoestring.data.sources.text.written_dates import WrittenDate, iso_dates
from shoestring.data.sources.text.written_numbers import CommaCounts, WrittenNumber, plain_texts

Floats = np.ndarray[Any, np.dtype[np.float64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]
Counts = np.ndarray[Any, np.dtype[np.int64]]
Codes = np.ndarray[Any, np.dtype[np.int32]]

INTEGER, NUMBER, BOOLEAN = pa.int64(), pa.float64(), pa.bool_()
TIMESTAMP, TIMESTAMP_UTC = pa.timestamp("us"), pa.timestamp("us", "UTC")
TEXT = pa.string()
COLUMN_TYPES = (INTEGER, NUMBER, BOOLEAN, TIMESTAMP, TIMESTAMP_UTC)

ColumnKind: TypeAlias = pa.DataType | WrittenNumber | WrittenDate
"""How the text of a column is read: as an Arrow type, or as numbers or dates that are written in some way."""

MAX_MISMATCH_SHARE = 0.02
"""A column has a type when at most this share of its values does not parse. Rows with such values are
quarantined."""

MAX_BLOCK_MISMATCH_SHARE = 0.2
"""With more than this share of mismatches in one block, a type is ruled out. Damage may be clustered, but
not that densely."""

PROBED_VALUES = 64
"""Values that are tried first, since a failed Arrow conversion costs 100 times a successful one. When
none of this many distinct values parses, none is assumed to."""

PROBED_ROWS = 4096
"""Rows in which these values are looked for first, since finding all distinct values costs more."""

TYPE_NAMES: dict[pa.DataType, str] = {
    INTEGER: "a whole number",
    NUMBER: "a number",
    BOOLEAN: "true or false",
    TIMESTAMP: "a date and time",
    TIMESTAMP_UTC: "a date and time with zone",
}


class TypeGuess:
    """Infers the kind of one column from all of its blocks: the one with the fewest mismatches, the narrower
    of two equal ones, from `kinds`. Where none fits, or there is no value, it is `otherwise`.
    """

    def __init__(self, kinds: Sequence[ColumnKind] = COLUMN_TYPES, otherwise: ColumnKind = TEXT) -> None:
        self._mismatches: dict[ColumnKind, int] = dict.fromkeys(kinds, 0)
        self._otherwise = otherwise
        self._values, self._commas = 0, CommaCounts()

    def add(self, column: pa.Array) -> tuple[ColumnKind, pa.Array] | None:
        """Add a block of text values. Returns them with the best kind so far, when all of them fit it."""
        values = len(column) - column.null_count
        self._values += values
        if not values or not self._mismatches:
            return None
        best = self._best()
        if best is not None and (parsed := _parsed(column, best)) is not None:
            self._narrow(best)
            return best, parsed
        if any(isinstance(kind, WrittenNumber) for kind in self._mismatches):
            self._commas.add(column)
        for kind in self._usable():
            if kind != best and (parsed := _parsed(column, kind)) is not None:
                self._narrow(kind)
                return kind, parsed
        distinct = _DistinctTexts(column)
        for kind in tuple(self._mismatches):
            bad = distinct.mismatches(kind, int(values * MAX_BLOCK_MISMATCH_SHARE))
            if bad is None:
                del self._mismatches[kind]
            else:
                self._mismatches[kind] += int(bad.sum())
        return None

    def kind(self) -> ColumnKind:
        """Return the kind of the column."""
        best = self._best()
        if best is None or not self._values:
            return self._otherwise
        is_fixed = self._otherwise != TEXT
        fits = is_fixed or self._mismatches[best] <= self._values * MAX_MISMATCH_SHARE
        return best if fits else self._otherwise

    @property
    def has_values(self) -> bool:
        return self._values > 0

    def rules_out(self, kind: ColumnKind) -> bool:
        """Return True when the column is not of the kind, whatever its further values are."""
        if kind == TEXT or (kind == self._otherwise and self._best() is None):
            return False
        return kind not in self._mismatches or (kind == INTEGER and self._best() != INTEGER)

    def _usable(self) -> list[ColumnKind]:
        return [kind for kind in self._mismatches if self._allows(kind)]

    def _allows(self, kind: ColumnKind) -> bool:
        """Return whether the values are of this kind, if they fit it, and of no other."""
        if kind == self._otherwise:
            return True
        if isinstance(kind, WrittenDate):
            others = self._mismatches.get(kind.other)
            return kind.is_certain or others is None or others > self._values * MAX_MISMATCH_SHARE
        return not isinstance(kind, WrittenNumber) or self._commas.allow(kind)

    def _best(self) -> ColumnKind | None:
        return min(self._usable(), key=self._mismatches.__getitem__, default=None)

    def _narrow(self, kind: ColumnKind) -> None:
        """Keep the kinds that have all values of a block that fit this kind."""
        if kind == NUMBER:
            self._commas.add_points()
        self._mismatches = {
            other: count
            for other, count in self._mismatches.items()
            if other == kind or _is_wider(other, kind)
        }


def _is_wider(kind: ColumnKind, narrow: ColumnKind) -> bool:
    """Return whether every value of the kind `narrow` is also one of `kind`."""
    if isinstance(kind, WrittenDate):
        return False
    if isinstance(kind, WrittenNumber):
        is_wider = narrow == INTEGER or (narrow == NUMBER and kind.decimal == ".")
        return bool(is_wider and not kind.sign)
    return bool(kind == NUMBER and narrow == INTEGER)


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


def mismatches(column: pa.Array, kind: ColumnKind, max_count: int) -> Mask | None:
    """Return which values of a text column do not parse as the kind: bool[rows]. Nulls always fit.

    Returns None when there are more than `max_count`.
    """
    return _DistinctTexts(column).mismatches(kind, max_count)


class _DistinctTexts:
    """A text column whose distinct values are found once, for all kinds that are tried."""

    def __init__(self, column: pa.Array) -> None:
        self._column = column

    @cached_property
    def _probed(self) -> pa.Array:
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
        if _parsed(self._column, kind) is not None:
            return np.zeros(len(self._column), bool)
        if not any(can_parse(self._probed[index : index + 1], kind) for index in range(len(self._probed))):
            bad = pc.is_valid(self._column)
            return (
                None
                if pc.sum(bad, min_count=0).as_py() > max_count
                else np.from_dlpack(bad.cast(pa.uint8())) > 0
            )
        texts, codes, counts = self._encoded
        bad = _unparsable(texts, counts, kind, max_count)
        return None if bad is None else np.append(bad, False)[codes]


def parse_column(column: pa.Array, kind: ColumnKind) -> tuple[pa.Array, Mask]:
    """Return the values of a text column as the kind, null where they do not parse, and where that is:
    bool[rows]."""
    if (parsed := _parsed(column, kind)) is not None:
        return parsed, np.zeros(len(column), bool)
    bad = mismatches(column, kind, len(column))
    assert bad is not None
    good = pc.if_else(pa.array(bad), pa.scalar(None, TEXT), pc.utf8_trim_whitespace(column))
    return _cast(good, kind), bad


def can_parse(texts: pa.Array, kind: ColumnKind) -> bool:
    """Return True when every text parses as the kind, by the rules of Arrow's own conversion."""
    try:
        _cast(texts, kind)
    except pa.ArrowInvalid:
        return False
    return True


def _parsed(column: pa.Array, kind: ColumnKind) -> pa.Array | None:
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
    return plain_texts(texts, kind).cast(NUMBER) if isinstance(kind, WrittenNumber) else texts.cast(kind)


def _unparsable(texts: pa.Array, counts: Counts, kind: ColumnKind, max_count: int) -> Mask | None:
    """Return which of the distinct texts do not parse, by bisection; None when their counts exceed
    `max_count`."""
    bad = np.zeros(len(texts), bool)
    spans, found = [(0, len(texts))], 0
    while spans:
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


def float_scalar(number: float) -> pa.DoubleScalar:
    """Return a number as Arrow holds it.

    It is made from bytes: pyarrow imports pandas to convert a value of Python or numpy, which takes 0.3 s.
    """
    return pa.Array.from_buffers(pa.float64(), 1, [None, pa.py_buffer(struct.pack("=d", number))])[0]


def float_values(column: pa.ChunkedArray) -> Floats:
    """Return the values of a float64 column without nulls. `to_numpy` would import pandas."""
    values: Floats = np.from_dlpack(column.combine_chunks()).astype(np.float64, copy=False)
    return values
