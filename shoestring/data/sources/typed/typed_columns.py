"""The columns of one Parquet or Arrow file: those that are read, with their types, and the others."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from shoestring.core.errors import DataError
from shoestring.data.sources.typed.arrow_types import LeftOut, plain_type, why_left_out
from shoestring.data.sources.typed.class_names import class_names
from shoestring.data.values import TEXT

SAVED_INDEX = re.compile(r"__index_level_[0-9]+__")
"""The column of an index of pandas that has no name. One that has a name is a column like any other."""


@dataclass(frozen=True, slots=True)
class TypedColumns:
    """The columns that are read, in order, and those that are left out. One without a value has the type
    null. `classes`: the names of the classes of columns that have their numbers."""

    schema: pa.Schema
    left_out: Mapping[str, LeftOut]
    classes: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, schema: pa.Schema, file_name: str) -> TypedColumns:
        """Raises DataError for a name that is missing or repeated."""
        names = schema.names
        if bad := sorted({name for name in names if not name or names.count(name) > 1}):
            raise DataError(
                f"{file_name}: every column needs a unique name; missing or repeated: "
                f"{', '.join(map(repr, bad))}"
            )
        read: list[pa.Field] = []
        left_out: dict[str, LeftOut] = {}
        for column in schema:
            kind = plain_type(column.type)
            if SAVED_INDEX.fullmatch(column.name):
                reason, advice = "the index of a table of pandas", "give the index a name to use it"
                left_out[column.name] = LeftOut(str(column.type), reason, advice)
            elif kind is None:
                left_out[column.name] = why_left_out(column.name, column.type)
            else:
                read.append(pa.field(column.name, kind))
        return cls(pa.schema(read), left_out, class_names(schema))

    def with_classes(self, columns: Collection[str]) -> TypedColumns:
        """Return the columns with these read as the names of their classes."""
        read = [each.with_type(TEXT) if each.name in columns else each for each in self.schema]
        return replace(self, schema=pa.schema(read))
