"""The keys of the folders of typed files: columns whose kinds are inferred from the names of the folders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from shoestring.core.errors import DataError
from shoestring.data.sources.column_types import TEXT_KINDS, ColumnKind, arrow_type, parse_column
from shoestring.data.sources.folders.folder_keys import text_value
from shoestring.data.sources.table import FixedColumns
from shoestring.data.sources.text.fixed_kinds import KINDS, NOT_FIXED, FixedKinds
from shoestring.data.sources.text.type_guess import TypeGuess
from shoestring.data.split_settings import SPLIT_COLUMN
from shoestring.data.values import TEXT, WrittenDate, WrittenNumber, text_array


class FolderKeys:
    """The keys of the folders of files, by the files' names; all have the same ones."""

    def __init__(self, values: Mapping[str, Mapping[str, str | None]], fixed: FixedKinds = NOT_FIXED) -> None:
        self._values = values
        keys = next(iter(values.values()))
        self._kinds: dict[str, ColumnKind] = {key: self._kind(key, fixed) for key in keys}

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def type(self, key: str) -> pa.DataType:
        return arrow_type(self._kinds[key])

    def candidates(self, key: str) -> tuple[ColumnKind, ...]:
        """Return the kinds that a key may have in a table of text, which reads a key as text otherwise."""
        kind = self._kinds[key]
        return () if kind == TEXT else (kind,)

    @property
    def written(self) -> dict[str, str]:
        """How the values of keys are written that are not plain ones."""
        found = self._kinds.items()
        return {key: kind.name for key, kind in found if isinstance(kind, WrittenNumber | WrittenDate)}

    def fix(self, columns: FixedColumns) -> None:
        """Read the values as these kinds."""
        for column in columns.schema:
            if column.name in self._kinds:
                written = columns.written.get(column.name)
                self._kinds[column.name] = KINDS[written] if written else column.type

    def value(self, file_name: str, field: pa.Field) -> pa.Array:
        """Return the value of a key as the type of a column, of one row. Raises DataError."""
        text = self._values[file_name][field.name]
        own = arrow_type(self._kinds[field.name]) != field.type
        values, bad = parse_column(text_value(text), field.type if own else self._kinds[field.name])
        if bad.any():
            raise DataError(
                f"{file_name}: the column {field.name} is of type {field.type}, and its folder is named "
                f"{field.name}={text}: rename the folder, state `kinds: {{{field.name}: text}}`, or give the "
                "recipe another `name`, under which the types are inferred again"
            )
        return values

    def _kind(self, key: str, fixed: FixedKinds) -> ColumnKind:
        """Return the kind that the values in the names of all folders have."""
        if key == SPLIT_COLUMN:
            return TEXT
        values = {keys[key] for keys in self._values.values()}
        texts = text_array(tuple(sorted(each for each in values if each is not None)))
        if (stated := fixed.get(key)) is not None:
            kinds = stated.kinds
            guess = TypeGuess(() if kinds[0] == TEXT else kinds, otherwise=kinds[0])
            guess.add(texts)
            return guess.kind()
        guess = TypeGuess(TEXT_KINDS)
        guess.add(texts)
        # Each value is that of whole files, so none is set aside.
        return TEXT if parse_column(texts, guess.kind())[1].any() else guess.kind()
