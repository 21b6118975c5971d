"""What a column of text really holds: whole numbers, numbers, true/false, moments, or text."""

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
"""A column is of a kind when all but this share of its values are; rows with the others are quarantined."""

MAX_BLOCK_MISMATCH_SHARE = 0.2
"""More than this share in one block, and the kind is given up: damage may come in clusters, but not that dense."""

PROBED_VALUES = 64
"""Tried first: a failed conversion costs Arrow 100 times one that succeeds. When none of so many distinct values fits, none is taken to."""

TYPE_NAMES = {
    INTEGER: "a whole number",
    NUMBER: "a number",
    BOOLEAN: "true or false",
    TIMESTAMP: "a date and time",
    TIMESTAMP_UTC: "a date and time with zone",
}


class TypeGuess:
    """What one column is, from all of its blocks: the kind that fits most values; the narrower one of two that fit alike."""

    def __init__(self) -> None:
        self._misfits: dict[pa.DataType, int] = dict.fromkeys(COLUMN_TYPES, 0)
        self._values = 0

    def add(self, column: pa.Array) -> None:
        """Take in a block of text."""
        values = len(column) - column.null_count
        self._values += values
        for kind in tuple(self._misfits) if values else ():
            bad = mismatches(column, kind, int(values * MAX_BLOCK_MISMATCH_SHARE))
            if bad is None:
                del self._misfits[kind]
                continue
            self._misfits[kind] += int(bad.sum())
            if not bad.any():
                # Whatever is a whole number is a number as well; no other two kinds share a value.
                self._misfits = {
                    other: self._misfits[other]
                    for other in self._misfits
                    if other == kind or (kind, other) == (INTEGER, NUMBER)
                }
                return

    def column_type(self) -> pa.DataType:
        """The kind of the column; text when nothing narrower fits, or there was no value."""
        fitting = [
            kind for kind, count in self._misfits.items() if count <= self._values * MAX_MISMATCH_SHARE
        ]
        return min(fitting, key=self._misfits.__getitem__) if fitting and self._values else TEXT


def mismatches(column: pa.Array, kind: pa.DataType, most: int) -> Mask | None:
    """Which values of a text column are not of the kind: bool[rows]; None when they are more than `most`. A null fits any kind."""
    if can_parse(column[:PROBED_VALUES], kind) and can_parse(column, kind):
        return np.zeros(len(column), bool)
    encoded = pc.utf8_trim_whitespace(column).dictionary_encode()
    codes = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy()
    counts = np.bincount(codes, minlength=len(encoded.dictionary) + 1)[:-1]
    bad = _unparsable(encoded.dictionary, counts, kind, most)
    return None if bad is None else np.append(bad, False)[codes]


def parse_column(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Mask]:
    """The values of a text column as the kind, null where they are not of it, and where that is: bool[rows]."""
    if kind == TEXT or can_parse(column, kind):
        return column.cast(kind), np.zeros(len(column), bool)
    bad = mismatches(column, kind, len(column))
    assert bad is not None
    kept = pc.if_else(pa.array(bad), pa.scalar(None, TEXT), pc.utf8_trim_whitespace(column))
    return kept.cast(kind), bad


def can_parse(texts: pa.Array, kind: pa.DataType) -> bool:
    """Whether every text is of the kind, by the rules of Arrow's own conversion."""
    try:
        texts.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def _unparsable(texts: pa.Array, counts: Counts, kind: pa.DataType, most: int) -> Mask | None:
    """Which of some distinct texts are not of the kind, by halving; None when they count for more than `most`."""
    if not any(can_parse(texts[at : at + 1], kind) for at in range(min(len(texts), PROBED_VALUES))):
        return np.ones(len(texts), bool) if counts.sum() <= most else None
    bad = np.zeros(len(texts), bool)
    spans, found = [(0, len(texts))], 0
    while spans:
        start, stop = spans.pop()
        if can_parse(texts[start:stop], kind):
            continue
        if stop - start == 1:
            bad[start] = True
            found += int(counts[start])
            if found > most:
                return None
            continue
        middle = (start + stop) // 2
        spans += [(middle, stop), (start, middle)]
    return bad
