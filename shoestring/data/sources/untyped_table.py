"""Read text whose columns have no types: once, in blocks, with the kinds that all rows have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shoestring.data.sources.column_types import (
    TYPE_NAMES,
    ColumnKind,
    arrow_type,
    kind_name,
    parse_column,
)
from shoestring.data.sources.data_file import SAMPLE_BYTES
from shoestring.data.sources.quarantine import Misfit, Quarantine
from shoestring.data.sources.table import FixedColumns, TypesChanged
from shoestring.data.sources.text.fixed_kinds import KINDS, NOT_FIXED, FixedKinds
from shoestring.data.sources.text.type_guess import ColumnReading, TypeGuess
from shoestring.data.values import TEXT, WrittenDate, WrittenNumber, text_array

BLOCK_BYTES = 8 << 20

SAMPLE_BLOCKS = 4
"""The kinds of the columns are inferred from this many blocks. A table of this size is read once in any
case."""

Parsed = Mapping[str, tuple[ColumnKind, pa.Array] | None]


class TextFile(Protocol):
    """One file of a table."""

    @property
    def name(self) -> str: ...

    @property
    def keys(self) -> Mapping[str, str | None]:
        """The columns that the names of the file and its folders give, and their values."""
        ...

    @property
    def remarks(self) -> Sequence[str]:
        """How the file is read, if it is not plain, as parts of a sentence."""
        ...

    def blocks(self, block_bytes: int, quarantine: Quarantine | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the well-formed rows, with all columns as text, and quarantine the others. Raises
        DataError."""
        ...

    def row_number(self, good_before: int) -> int:
        """Return the row number of the row after `good_before` well-formed rows."""
        ...

    def row_text(self, block: pa.RecordBatch, index: int) -> str:
        """Return a row as it would be written in the file."""
        ...


class UntypedTable:
    """One or several text files with the same columns. `candidates`: the kinds that a column may have, unless
    it is one of `fixed`.
    """

    def __init__(
        self,
        files: Sequence[TextFile],
        candidates: Mapping[str, tuple[ColumnKind, ...]],
        fixed: FixedKinds = NOT_FIXED,
    ) -> None:
        self.names = [*candidates]
        self.files, self.fixed, self.file = files, fixed, ""
        self._candidates = candidates
        self._kinds: dict[str, ColumnKind] = {}
        self._empty: set[str] = set()
        self.readings: dict[str, ColumnReading] = {}

    @property
    def schema(self) -> pa.Schema:
        return _schema(self._kinds)

    @property
    def written(self) -> dict[str, str]:
        """How the numbers and dates of columns are written that are not plain ones, once all batches were
        read."""
        found = self._kinds.items()
        return {name: kind.name for name, kind in found if isinstance(kind, WrittenNumber | WrittenDate)}

    @property
    def kinds(self) -> dict[str, ColumnKind | None]:
        """The kinds of the columns, once all batches were read; None for one without a value."""
        return {name: None if name in self._empty else kind for name, kind in self._kinds.items()}

    def guess(self, name: str) -> TypeGuess:
        """Return what infers the kind of a column."""
        if (fixed := self.fixed.get(name)) is None:
            return TypeGuess(self._candidates[name])
        is_text = fixed.kinds[0] == TEXT
        return TypeGuess(() if is_text else fixed.kinds, otherwise=fixed.kinds[0])

    @property
    def file_names(self) -> Sequence[str]:
        return [file.name for file in self.files]

    @property
    def columns(self) -> FixedColumns:
        return FixedColumns(self.schema, self.written)

    def own_names(self) -> Mapping[str, Sequence[str]]:
        return {}

    def fix(self, columns: FixedColumns) -> None:
        """Read the columns as these kinds, whatever their values are."""
        self.names, self._kinds = columns.schema.names, _kinds_of(columns)

    def texts(self, block_bytes: int, quarantine: Quarantine | None = None) -> Iterator[pa.Table]:
        """Yield the well-formed rows in blocks, with all columns as text, and quarantine the others. Raises
        DataError."""
        for file in self.files:
            for block in file.blocks(block_bytes, quarantine):
                yield pa.Table.from_batches([block])

    def peek(self, names: Sequence[str]) -> Iterator[pa.Table]:
        for file in self.files:
            for block in file.blocks(SAMPLE_BYTES):
                guesses = {name: self.guess(name) for name in names}
                parsed = _parse(guesses, block)
                kinds = {name: guess.kind() for name, guess in guesses.items()}
                yield pa.table({name: _values(block, name, kind, parsed)[0] for name, kind in kinds.items()})

    def batches(self, quarantine: Quarantine) -> Iterator[pa.Table]:
        """Yield the rows with the kinds of their columns, as `SourceTable` says.

        The kinds are inferred from the first blocks, then checked in all others.
        """
        blocks = self._placed_blocks(quarantine)
        if self._kinds:
            for place, block in blocks:
                yield self._fitting(place, block, self._kinds, {}, quarantine)
            return
        guesses = {name: self.guess(name) for name in self.names}
        sample = [(*placed, _parse(guesses, placed[1])) for placed in islice(blocks, SAMPLE_BLOCKS)]
        kinds = {name: guess.kind() for name, guess in guesses.items()}
        while sample:
            place, block, parsed = sample.pop(0)
            yield self._fitting(place, block, kinds, parsed, quarantine)
        for place, block in blocks:
            parsed = _parse(guesses, block)
            if any(guess.rules_out(kinds[name]) for name, guess in guesses.items()):
                break
            yield self._fitting(place, block, kinds, parsed, quarantine)
        for _, block in blocks:
            _parse(guesses, block)
            yield _schema(kinds).empty_table()
        self._kinds = {name: guess.kind() for name, guess in guesses.items()}
        self._empty = {name for name, guess in guesses.items() if not guess.has_values}
        self.readings = {name: guess.reading() for name, guess in guesses.items()}
        if self._kinds != kinds:
            raise TypesChanged

    def _fitting(
        self,
        place: tuple[TextFile, int],
        block: pa.RecordBatch,
        kinds: Mapping[str, ColumnKind],
        parsed: Parsed,
        quarantine: Quarantine,
    ) -> pa.Table:
        """Return the rows as the kinds. Values that do not fit are missing, and are named in the quarantine.

        `parsed` has columns that are parsed already.
        """
        file, good_before = place
        self.file = file.name
        columns: list[pa.Array] = []
        for name, kind in kinds.items():
            values, bad = _values(block, name, kind, parsed)
            columns.append(values)
            for index in bad:
                misfit = Misfit(name, block.column(name)[index].as_py())
                number, text = file.row_number(good_before + index), file.row_text(block, index)
                quarantine.add_cell(file.name, number, _misfit_reason(name, kind), text, misfit)
        return pa.table(columns, schema=_schema(kinds))

    def _placed_blocks(self, quarantine: Quarantine) -> Iterator[tuple[tuple[TextFile, int], pa.RecordBatch]]:
        """Yield the blocks, each with its file and the number of well-formed rows before it."""
        for file in self.files:
            good_before = 0
            for block in file.blocks(BLOCK_BYTES, quarantine):
                yield (file, good_before), block
                good_before += block.num_rows


def without_spellings(block: pa.RecordBatch, missing: Sequence[str]) -> pa.RecordBatch:
    """Return text with null for the values that are stated to be missing, in any column."""
    if not missing:
        return block
    spellings, none = text_array(tuple(missing)), pa.nulls(1, TEXT)[0]
    trimmed = map(pc.utf8_trim_whitespace, block.columns)
    found = [pc.is_in(column, value_set=spellings) for column in trimmed]
    columns = [pc.if_else(each, none, column) for each, column in zip(found, block.columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, block.schema.names)


def _parse(guesses: Mapping[str, TypeGuess], block: pa.RecordBatch) -> Parsed:
    return {name: guess.add(block.column(name)) for name, guess in guesses.items()}


def _schema(kinds: Mapping[str, ColumnKind]) -> pa.Schema:
    return pa.schema([(name, arrow_type(kind)) for name, kind in kinds.items()])


def _kinds_of(columns: FixedColumns) -> dict[str, ColumnKind]:
    return {
        column.name: KINDS[columns.written[column.name]] if column.name in columns.written else column.type
        for column in columns.schema
    }


def misfit_reasons(columns: FixedColumns) -> list[str]:
    """Return why values are missing that do not fit the kinds of these columns."""
    kinds = _kinds_of(columns).items()
    return [
        _misfit_reason(name, kind) for name, kind in kinds if kind in TYPE_NAMES or name in columns.written
    ]


def _misfit_reason(name: str, kind: ColumnKind) -> str:
    return f"{name} is not {kind_name(kind)}"


def _values(
    block: pa.RecordBatch, name: str, kind: ColumnKind, parsed: Parsed
) -> tuple[pa.Array, Sequence[int]]:
    """Return a column as the kind, and the rows that do not fit it."""
    if (found := parsed.get(name)) is not None and found[0] == kind:
        return found[1], ()
    if kind == TEXT:
        return block.column(name), ()
    values, bad = parse_column(block.column(name), kind)
    return values, np.flatnonzero(bad).tolist()
