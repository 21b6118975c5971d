"""Columns whose values are in the names of folders, KEY=VALUE, as Hive, Spark, Polars and DuckDB write
them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from shoestring.core.errors import DataError
from shoestring.data.sources.data_file import DataFile
from shoestring.data.values import TEXT, text_array


def require_equal_keys(files: Sequence[DataFile]) -> None:
    """Raise DataError if some files of a table are in folders that are named by other keys."""
    first = files[0].keys.keys()
    for file in files:
        if (keys := file.keys.keys()) != first:
            missing = min(keys ^ first)
            names = (file.name, files[0].name)
            inside, outside = names if missing in keys else names[::-1]
            raise DataError(
                f"{inside} is in a folder {missing}=..., whose name is read as a column, and {outside} is in "
                "none: move it into one, or give each of them a source of its own"
            )


def text_value(value: str | None) -> pa.Array:
    """Return a value as text[1]."""
    return pa.nulls(1, TEXT) if value is None else text_array((value,))


def constant(column: str, value: pa.Array, own: pa.Array | None, rows: int, file_name: str) -> pa.Array:
    """Return the value[1] of a folder's key as a column of as many rows.

    `own`: the column of this name in the file itself. Raises DataError if it has another value.
    """
    if own is not None and own.null_count < rows:
        known = own.drop_null()
        differs = known if value.null_count else known.filter(pc.not_equal(known, value[0]))
        if len(differs):
            raise DataError(
                f"{file_name} has a column {column!r} itself, with {differs[0].as_py()!r} in a row, and its "
                f"folder is that of {value[0].as_py()!r}: rename the column, or the key of the folders"
            )
    return pa.repeat(value[0], rows)
