"""The raw columns that a model reads, and other data as columns of the types that it has learned from."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shoestring.core.errors import DataError
from shoestring.core.record import Record
from shoestring.data.sources.column_types import (
    BOOLEAN,
    INTEGER,
    MAX_MISMATCH_SHARE,
    TIMESTAMP,
    TIMESTAMP_UTC,
    ColumnKind,
    kind_name,
    parse_column,
)
from shoestring.data.sources.text.fixed_kinds import KINDS
from shoestring.data.sources.typed.arrow_types import plain_values
from shoestring.data.values import NUMBER, TEXT

WITH_ZONE = re.compile(r"timestamp\[(s|ms|us|ns), tz=(.+)\]")


class RawColumn(Record):
    """A column of the source as the model has learned from it.

    `type`: Arrow's name of its type. `written`: how its text is read where that is not plain, such as
    "decimal comma".
    """

    name: str
    type: str
    written: str = ""

    @property
    def arrow_type(self) -> pa.DataType:
        if found := WITH_ZONE.fullmatch(self.type):
            return pa.timestamp(*found.groups())
        return pa.type_for_alias(self.type.partition("[day]")[0] if "date" in self.type else self.type)

    @property
    def kind(self) -> ColumnKind:
        """How its text is read."""
        if self.written:
            return KINDS[self.written]
        type_ = self.arrow_type
        if pa.types.is_string(type_):
            return TEXT
        if pa.types.is_boolean(type_):
            return BOOLEAN
        if pa.types.is_temporal(type_):
            return TIMESTAMP_UTC if getattr(type_, "tz", None) else TIMESTAMP
        return INTEGER if pa.types.is_integer(type_) else NUMBER

    @property
    def described(self) -> str:
        """What its values are, for a sentence."""
        return "text" if self.kind == TEXT else kind_name(self.kind)


@dataclass(slots=True)
class ColumnReader:
    """Reads a column of new data as one that the model knows, and counts what does not fit."""

    wanted: RawColumn
    rows: int = 0
    misfits: int = 0
    example: str = ""

    def read(self, values: pa.Array) -> pa.Array:
        """Return the values in the type that the model knows; null where text does not fit it.

        A number for which that type is too narrow, such as 0.5 where all were whole, is a float64. Raises
        DataError for a column of another type.
        """
        self.rows += len(values)
        try:
            values = plain_values(values)
        except pa.ArrowInvalid as error:
            reason = f"holds a date outside the years 1 to 9999 ({error})"
            raise DataError(f"column {self.wanted.name} {reason}: write it as missing") from None
        if values.type == TEXT:
            return self._parsed(values)
        return _converted(values, self.wanted)

    def _parsed(self, texts: pa.Array) -> pa.Array:
        kind, type_ = self.wanted.kind, self.wanted.arrow_type
        if kind == TEXT:
            return texts
        found, bad = parse_column(texts, kind)
        if bad.any():
            self.example = self.example or texts[int(np.flatnonzero(bad)[0])].as_py()
            self.misfits += int(bad.sum())
        try:
            return found.cast(type_)
        except pa.ArrowInvalid:
            # An older type of the column is narrower: what is read of it does not depend on the type.
            return found

    def check(self) -> None:
        """Raise DataError when the values are too often not of the kind that the model knows."""
        if self.misfits > MAX_MISMATCH_SHARE * self.rows:
            raise DataError(
                f"column {self.wanted.name}: {self.misfits:,} of {self.rows:,} values are not "
                f"{self.wanted.described}, as the model has learned from, such as {self.example!r}; at most "
                f"{MAX_MISMATCH_SHARE:.0%} are read as missing"
            )

    @property
    def note(self) -> str:
        """A sentence about values that are read as missing; empty without any."""
        if not self.misfits:
            return ""
        return (
            f"column {self.wanted.name}: {self.misfits:,} of {self.rows:,} values are not "
            f"{self.wanted.described}, such as {self.example!r}: read as missing"
        )


def _is_text(type_: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_))


def _is_number(type_: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_))


def _converted(values: pa.Array, wanted: RawColumn) -> pa.Array:
    """Return typed values in the type that the model knows. Raises DataError."""
    type_, other = wanted.arrow_type, values.type
    if pa.types.is_null(other):
        return pa.nulls(len(values), type_)
    if pa.types.is_temporal(other) == pa.types.is_temporal(type_) or _is_text(type_):
        if pa.types.is_floating(other) or pa.types.is_decimal(other):
            values = _as_floats(values)
            if _is_text(type_):
                values = _whole_if_possible(values)
        try:
            return values.cast(type_)
        except pa.ArrowException:
            if _is_number(other) and _is_number(type_):
                return values.cast(pa.float64(), safe=False)
    raise DataError(
        f"column {wanted.name} is of type {other}, and the model has learned from {wanted.described} "
        f"({wanted.type}): convert it"
    )


def _as_floats(values: pa.Array) -> pa.Array:
    """Return float64 with nulls where values are NaN, as pandas writes missing ones."""
    found = values.cast(pa.float64(), safe=False)
    return pc.if_else(pc.is_nan(found), pa.scalar(None, pa.float64()), found)


def _whole_if_possible(values: pa.Array) -> pa.Array:
    """Return floats as whole numbers if all of them are: where one is missing, a table in memory often has
    floats, and 7.0 is no category that the model knows as 7."""
    try:
        return values.cast(INTEGER)
    except pa.ArrowInvalid:
        return values
