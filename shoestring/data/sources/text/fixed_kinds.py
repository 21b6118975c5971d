"""The kinds of columns of text that are not inferred: the recipe states them, or the first version of the
data set fixed them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from shoestring.data.source import ReadSettings, StatedKind
from shoestring.data.sources.column_types import (
    BOOLEAN,
    INTEGER,
    TEXT_KINDS,
    TIMESTAMP,
    TIMESTAMP_UTC,
    ColumnKind,
)
from shoestring.data.values import NUMBER, SIGNS, TEXT, DecimalSign, WrittenDate, WrittenNumber


class FixedKind(NamedTuple):
    """The kinds that a column may have. It has the first of them where none fits.

    `is_stated`: by the recipe.
    """

    kinds: tuple[ColumnKind, ...]
    is_stated: bool = False


FixedKinds = Mapping[str, FixedKind]
"""By column."""
NOT_FIXED: FixedKinds = MappingProxyType({})


def _signed(decimal: DecimalSign, *signs: str) -> tuple[WrittenNumber, ...]:
    return tuple(WrittenNumber(sign, decimal) for sign in signs)


STATED: dict[StatedKind, tuple[ColumnKind, ...]] = {
    "text": (TEXT,),
    "number": (NUMBER, *_signed(".", *SIGNS)),
    "thousands commas": _signed(".", "", *SIGNS),
    "decimal comma": _signed(",", "", *SIGNS),
    "true or false": (BOOLEAN,),
    "date": (TIMESTAMP, TIMESTAMP_UTC),
    "day first": (WrittenDate("day", is_certain=True),),
    "month first": (WrittenDate("month", is_certain=True),),
}
"""What a recipe may state, and the kinds that it allows."""

PLAIN: dict[str, ColumnKind] = {
    "text": TEXT,
    "whole number": INTEGER,
    "number": NUMBER,
    "true or false": BOOLEAN,
    "date and time": TIMESTAMP,
    "date and time with zone": TIMESTAMP_UTC,
}
WRITTEN: dict[str, ColumnKind] = {
    kind.name: kind
    for name in ("thousands commas", "decimal comma", "day first", "month first")
    for kind in STATED[name]
    if isinstance(kind, WrittenNumber | WrittenDate)
}
KINDS = PLAIN | WRITTEN
"""The name of each kind, as it is stored."""


def kinds_as_read(read: ReadSettings, kinds: Sequence[ColumnKind] = TEXT_KINDS) -> tuple[ColumnKind, ...]:
    """Return those of the kinds that values may have which are written as a source states."""
    found: list[ColumnKind] = []
    for kind in kinds:
        if isinstance(kind, WrittenNumber):
            is_possible = read.decimal in (None, kind.decimal)
        elif isinstance(kind, WrittenDate):
            is_possible = read.dates in (None, kind.name)
            kind = WrittenDate(kind.first, is_certain=read.dates is not None)
        else:
            is_possible = kind != NUMBER or read.decimal != ","
        if is_possible:
            found.append(kind)
    return tuple(found)


def stored_name(kind: ColumnKind) -> str:
    """Return the name of a kind, a key of KINDS."""
    if isinstance(kind, WrittenNumber | WrittenDate):
        return kind.name
    return next(name for name, plain in PLAIN.items() if plain == kind)


def fixed_kinds(stated: Mapping[str, StatedKind], known: Mapping[str, str]) -> dict[str, FixedKind]:
    """Return the kinds of the columns that are fixed. What the recipe states goes before what is `known`, the
    stored names of an earlier version.
    """
    found: dict[str, FixedKind] = {}
    for name, stored in known.items():
        found[name] = FixedKind((KINDS[stored],))
    return found | {name: FixedKind(STATED[kind], is_stated=True) for name, kind in stated.items()}
