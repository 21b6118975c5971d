"""Decide what a column of text is, from all of its values: for the preview as for ingest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

import pyarrow as pa

from shoestring.data.sources.column_types import (
    INTEGER,
    MAX_MISMATCH_SHARE,
    PROBED_VALUES,
    TEXT_KINDS,
    ColumnKind,
    DistinctTexts,
    can_parse,
    try_parse,
)
from shoestring.data.values import (
    NUMBER,
    SIGNS,
    TEXT,
    WrittenDate,
    WrittenNumber,
    first_ambiguous,
    known_texts,
    missing_spellings,
    signs_of,
    written_numbers,
)

MAX_BLOCK_MISMATCH_SHARE = 0.2
"""With more than this share of mismatches in one block, a type is ruled out. Damage may be clustered, but
not that densely."""


@dataclass(frozen=True, slots=True)
class ColumnReading:
    """How a column is read.

    Args:
        kind: of its values.
        missing: how often each spelling of a missing value occurs; none in a column of text.
        others: the kinds that its values fit as well, and that would read some of them otherwise.
        nearest: of text, the kind that most of its values have, if these are at least four of five.
        example: a value that the others read otherwise, or one that is not of the nearest kind.
        values: those that are not missing. `misfits` of them are not of the kind, or of the nearest one.
    """

    kind: ColumnKind
    missing: Mapping[str, int] = field(default_factory=dict)
    others: tuple[ColumnKind, ...] = ()
    example: str = ""
    nearest: ColumnKind | None = None
    values: int = 0
    misfits: int = 0


class TypeGuess:
    """Infers the kind of one column from all of its blocks: the one with the fewest mismatches, the narrower
    of two equal ones, from `kinds`. Where none fits, or there is no value, it is `otherwise`.
    """

    def __init__(self, kinds: Sequence[ColumnKind] = TEXT_KINDS, otherwise: ColumnKind = TEXT) -> None:
        self._mismatches: dict[ColumnKind, int] = dict.fromkeys(kinds, 0)
        self._otherwise = otherwise
        self._values, self._missing, self._example = 0, Counter[str](), ""
        self._first_misfit: dict[ColumnKind, str] = {}

    def add(self, column: pa.Array) -> tuple[ColumnKind, pa.Array] | None:
        """Add a block of text values. Returns them with the best kind so far, when all of them fit it."""
        if not self._mismatches:
            self._values += len(column) - column.null_count
            return None
        found = self._fit(column, self._tried_first())
        if found is None:
            known = known_texts(column)
            if known.null_count > column.null_count:
                self._missing += missing_spellings(column)
            column = known
            self._drop_signs(column)
            found = self._fit(column, self._usable())
        values = len(column) - column.null_count
        self._values += values
        if found is None and values:
            self._count(column, int(values * MAX_BLOCK_MISMATCH_SHARE))
        return found

    def kind(self) -> ColumnKind:
        """Return the kind of the column."""
        best = self._best()
        if best is None or not self._values:
            return self._otherwise
        return best if self._otherwise != TEXT or self._fits(best) else self._otherwise

    def reading(self) -> ColumnReading:
        """Return how the column is read."""
        kind, values = self.kind(), self._values
        if kind == TEXT:
            dates = tuple(each for each in self._mismatches if isinstance(each, WrittenDate))
            if values and len(dates) > 1 and all(map(self._fits, dates)):
                return ColumnReading(kind, others=dates, example=self._example, values=values)
            nearest = min(self._mismatches, key=self._mismatches.__getitem__, default=None)
            if nearest is None or not values:
                return ColumnReading(kind, values=values)
            example, misfits = self._first_misfit.get(nearest, ""), self._mismatches[nearest]
            return ColumnReading(kind, nearest=nearest, example=example, values=values, misfits=misfits)
        others: tuple[ColumnKind, ...] = ()
        if isinstance(kind, WrittenNumber) and self._fits(kind.other) and self._example:
            others = (kind.other,)
        misfits = self._mismatches.get(kind, 0)
        return ColumnReading(kind, self._missing, others, self._example, None, values, misfits)

    @property
    def has_values(self) -> bool:
        return self._values > 0

    def rules_out(self, kind: ColumnKind) -> bool:
        """Return True when the column is not of the kind, whatever its further values are."""
        if kind == TEXT or (kind == self._otherwise and self._best() is None):
            return False
        return kind not in self._mismatches or (kind == INTEGER and self._best() != INTEGER)

    def _fits(self, kind: ColumnKind) -> bool:
        """Return whether all but a few values are of the kind."""
        count = self._mismatches.get(kind)
        return count is not None and count <= self._values * MAX_MISMATCH_SHARE

    def _usable(self) -> list[ColumnKind]:
        return [kind for kind in self._mismatches if self._allows(kind)]

    def _allows(self, kind: ColumnKind) -> bool:
        """Return whether the values are of this kind, if they fit it, and of no other."""
        if kind == self._otherwise or not isinstance(kind, WrittenDate) or kind.is_certain:
            return True
        return kind.other not in self._mismatches or not self._fits(kind.other)

    def _tried_first(self) -> list[ColumnKind]:
        """Return the kinds that a block may have as it is written: of the first one any that is no convention
        of writing, since these tolerate what a narrower kind does not."""
        best = self._best()
        if not self._values:
            return [kind for kind in self._usable() if isinstance(kind, pa.DataType)]
        return [] if best is None else [best]

    def _best(self) -> ColumnKind | None:
        return min(self._usable(), key=self._mismatches.__getitem__, default=None)

    def _fit(self, column: pa.Array, kinds: Sequence[ColumnKind]) -> tuple[ColumnKind, pa.Array] | None:
        """Return the values as the first of the kinds that all of them fit, and keep those that also may."""
        if column.null_count == len(column):
            return None
        for kind in kinds:
            if (parsed := try_parse(column, kind)) is not None:
                self._narrow(column, kind)
                return kind, parsed
        return None

    def _narrow(self, column: pa.Array, kind: ColumnKind) -> None:
        """Keep the kinds that a block may also have all of whose values are of `kind`."""
        most = int((len(column) - column.null_count) * MAX_BLOCK_MISMATCH_SHARE)
        for other in [*self._mismatches]:
            if other == kind or _is_wider(other, kind):
                continue
            bad = most + 1
            # Most columns of plain numbers cannot be anything else, which a few of them show.
            if _may_be_both(other, kind) and (kind != NUMBER or can_parse(column[:PROBED_VALUES], other)):
                bad = written_numbers(column, other).null_count - column.null_count
            if bad > most:
                del self._mismatches[other]
            else:
                self._mismatches[other] += bad
        if isinstance(kind, WrittenNumber):
            self._note_example(column)

    def _count(self, column: pa.Array, most: int) -> None:
        """Count the values that are not of each kind, and rule out those with more than `most` of them."""
        distinct = DistinctTexts(column)
        for kind in [*self._mismatches]:
            bad = distinct.mismatches(kind, most)
            if bad is None:
                del self._mismatches[kind]
            elif bad.any():
                self._mismatches[kind] += int(bad.sum())
                self._first_misfit.setdefault(kind, column[int(bad.argmax())].as_py())
        self._note_example(column)

    def _drop_signs(self, column: pa.Array) -> None:
        """Rule out numbers with signs that the first values do not have."""
        found = signs_of(column.drop_null()[:PROBED_VALUES]) if column.null_count < len(column) else {*SIGNS}
        for kind in [*self._mismatches]:
            if isinstance(kind, WrittenNumber) and kind.sign and kind.sign not in found:
                del self._mismatches[kind]

    def _note_example(self, column: pa.Array) -> None:
        """Keep a value that two of the kinds read differently."""
        if self._example:
            return
        for kind in self._mismatches:
            if isinstance(kind, WrittenDate | WrittenNumber) and kind.other in self._mismatches:
                self._example = first_ambiguous(column, kind)
                return


def _is_wider(kind: ColumnKind, narrow: ColumnKind) -> bool:
    """Return whether every value of the kind `narrow` is also one of `kind`."""
    if isinstance(kind, WrittenNumber):
        is_wider = narrow == INTEGER or (narrow == NUMBER and kind.decimal == ".")
        return bool(is_wider and not kind.sign)
    return bool(kind == NUMBER and narrow == INTEGER)


def _may_be_both(kind: ColumnKind, other: ColumnKind) -> TypeGuard[WrittenNumber]:
    """Return whether the same numbers may be of both kinds, with other values."""
    return isinstance(kind, WrittenNumber) and (kind.other == other or (other == NUMBER and not kind.sign))
