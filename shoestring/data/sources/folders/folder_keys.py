"""Columns whose values are in the names of folders, KEY=VALUE, as Hive, Spark, Polars and DuckDB write
them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from shoestring.core.errors import DataError
from shoestring.data.values import TEXT, text_array

MISSING_VALUE = "__HIVE_DEFAULT_PARTITION__"


def folder_keys(name: str) -> dict[str, str | None]:
    """Return the keys of a file's folders and their values, without escapes; None is a missing value.

    `name`: of the file, with its folders below the source.
    """
    found: dict[str, str | None] = {}
    for folder in PurePosixPath(name).parts[:-1]:
        key, sign, value = folder.partition("=")
        if key and sign:
            found[unquote(key)] = None if value in ("", MISSING_VALUE) else unquote(value)
    return found


def require_equal_keys(names: Sequence[str]) -> None:
    """Raise DataError if some files of a table are in folders that are named by other keys."""
    first = folder_keys(names[0]).keys()
    for name in names:
        if (keys := folder_keys(name).keys()) != first:
            missing = min(keys ^ first)
            inside, outside = (name, names[0]) if missing in keys else (names[0], name)
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
