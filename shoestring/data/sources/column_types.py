"""Infer the type of a text column: integer, number, boolean, timestamp or text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Mask = np.ndarray[Any, np.dtype[np.bool_]]
Counts = np.ndarray[Any, np.dtype[np.int64]]

INTEGER, NUMBER, BOOLEAN = pa.int64(), pa.float64(), pa.bool_()
TIMESTAMP, TIMESTAMP_UTC = pa.timestamp("us"), pa.timestamp("us", "UTC")
TEXT = pa.string()
COLUMN_TYPES = (INTEGER, NUMBER, BOOLEAN, TIMESTAMP, TIMESTAMP_UTC)

MAX_MISMATCH_SHARE = 0.02
"""A column has a type when at most this share of its values does not parse. Rows with such values are
quarantined."""

MAX_BLOCK_MISMATCH_SHARE = 0.2
"""With more than this share of mismatches in one block, a type is ruled out. Damage may be clustered, but
not that densely."""

PROBED_VALUES = 64
"""Values that are tried first, since a failed Arrow conversion costs 100 times a successful one. When
none of this many distinct values parses, none is assumed to."""

TYPE_NAMES = {
    INTEGER: "a whole number",
    NUMBER: "a number",
    BOOLEAN: "true or false",
    TIMESTAMP: "a date and time",
    TIMESTAMP_UTC: "a date and time with zone",
}


class TypeGuess:
    """Infers the type of one column from all of its blocks: the type with the fewest mismatches, the
    narrower of two equal ones."""

    def __init__(self) -> None:
        self._mismatches: dict[pa.DataType, int] = dict.fromkeys(COLUMN_TYPES, 0)
        self._values = 0

    def add(self, column: pa.Array) -> None:
        """Add a block of text values."""
        values = len(column) - column.null_count
        self._values += values
        for kind in tuple(self._mismatches) if values else ():
            bad = mismatches(column, kind, int(values * MAX_BLOCK_MISMATCH_SHARE))
            if bad is None:
                del self._mismatches[kind]
                continue
            self._mismatches[kind] += int(bad.sum())
            if not bad.any():
                # Every integer is also a number. No other two types share a value.
                self._mismatches = {
                    other: self._mismatches[other]
                    for other in self._mismatches
                    if other == kind or (kind, other) == (INTEGER, NUMBER)
                }
                return

    def column_type(self) -> pa.DataType:
        """Return the type of the column; text when no other type fits, or there was no value."""
        allowed = self._values * MAX_MISMATCH_SHARE
        fitting = [kind for kind, count in self._mismatches.items() if count <= allowed]
        return min(fitting, key=self._mismatches.__getitem__) if fitting and self._values else TEXT


def mismatches(column: pa.Array, kind: pa.DataType, max_count: int) -> Mask | None:
    """Return which values of a text column do not parse as the type: bool[rows]. Nulls always fit.

    Returns None when there are more than `max_count`.
    """
    if can_parse(column[:PROBED_VALUES], kind) and can_parse(column, kind):
        return np.zeros(len(column), bool)
    encoded = pc.utf8_trim_whitespace(column).dictionary_encode()
    codes = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy()
    counts = np.bincount(codes, minlength=len(encoded.dictionary) + 1)[:-1]
    bad = _unparsable(encoded.dictionary, counts, kind, max_count)
    return None if bad is None else np.append(bad, False)[codes]


def parse_column(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Mask]:
    """Return the values of a text column as the type, null where they do not parse, and where that is:
    bool[rows]."""
    if kind == TEXT or can_parse(column, kind):
        return column.cast(kind), np.zeros(len(column), bool)
    bad = mismatches(column, kind, len(column))
    assert bad is not None
    good = pc.if_else(pa.array(bad), pa.scalar(None, TEXT), pc.utf8_trim_whitespace(column))
    return good.cast(kind), bad


def can_parse(texts: pa.Array, kind: pa.DataType) -> bool:
    """Return True when every text parses as the type, by the rules of Arrow's own conversion."""
    try:
        texts.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def _unparsable(texts: pa.Array, counts: Counts, kind: pa.DataType, max_count: int) -> Mask | None:
    """Return which of the distinct texts do not parse, by bisection; None when their counts exceed
    `max_count`."""
    if not any(can_parse(texts[index : index + 1], kind) for index in range(min(len(texts), PROBED_VALUES))):
        return np.ones(len(texts), bool) if counts.sum() <= max_count else None
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
