"""The columns of one Parquet or Arrow file: those that are read, with their types, and the others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from shoestring.core.errors import DataError
from shoestring.data.sources.typed.arrow_types import LeftOut, plain_type, why_left_out

SAVED_INDEX = re.compile(r"__index_level_[0-9]+__")
"""The column of an index of pandas that has no name. One that has a name is a column like any other."""


@dataclass(frozen=True, slots=True)
class TypedColumns:
    """The columns that are read, in order, and those that are left out. One without a value has the type
    null."""

    schema: pa.Schema
    left_out: Mapping[str, LeftOut]

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
                left_out[column.name] = why_left_out(column.type)
            else:
                read.append(pa.field(column.name, kind))
        return cls(pa.schema(read), left_out)
