"""The dictionaries of an encoded data set: for each column with codes its values, in the order of the codes,
how many rows have each, and the code that a model reads.

One Arrow file, with the columns `column`, `value`, `rows` and `model_code`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from shoestring.core.types import Format
from shoestring.data.formats.readers import read_table, write_table

Counts = np.ndarray[Any, np.dtype[np.int64]]
Codes = np.ndarray[Any, np.dtype[np.int32]]


@dataclass(frozen=True, slots=True)
class ColumnDictionary:
    """The value number i of a column is stored as the code i + 1.

    `rows` are its rows, int64[values]: of train for a feature, of all splits for the target. `model_codes`,
    int32[values], are what a model reads for it; of the target the index of its class, -1 for one that train
    does not contain.
    """

    column: str
    values: Sequence[str]
    rows: Counts
    model_codes: Codes


def write_dictionaries(columns: Sequence[ColumnDictionary], path: Path) -> None:
    """Write the dictionaries of the columns. Equal dictionaries give equal bytes."""
    names = [column.column for column in columns]
    lengths = [len(column.values) for column in columns]
    table = pa.table(
        {
            "column": pa.array(np.repeat(np.array(names, object), lengths).tolist(), pa.string()),
            "value": pa.array([value for column in columns for value in column.values], pa.string()),
            "rows": np.concatenate([np.zeros(0, np.int64), *(column.rows for column in columns)]),
            "model_code": np.concatenate(
                [np.zeros(0, np.int32), *(column.model_codes for column in columns)]
            ),
        }
    )
    write_table(table, Format.ARROW, path)


def read_dictionaries(path: Path) -> dict[str, ColumnDictionary]:
    """Return the dictionary of each column that has values. Raises DataError for a damaged file."""
    table = read_table(path, Format.ARROW).combine_chunks()
    values = table["value"].to_pylist()
    rows, model_codes = np.asarray(table["rows"]), np.asarray(table["model_code"])
    return {
        name: ColumnDictionary(name, values[start:stop], rows[start:stop], model_codes[start:stop])
        for name, start, stop in _places(table)
    }


def read_model_codes(path: Path) -> dict[str, Codes]:
    """Return for each column with codes what a model reads for each: int32[codes], from code 0 on.

    A missing value (code 0) is 0 to a model. Raises DataError for a damaged file.
    """
    table = read_table(path, Format.ARROW)
    model_codes = np.asarray(table["model_code"].combine_chunks())
    none = np.zeros(1, np.int32)
    return {name: np.concatenate([none, model_codes[start:stop]]) for name, start, stop in _places(table)}


def _places(table: pa.Table) -> Iterator[tuple[str, int, int]]:
    """Yield the columns, each with where its values start and stop."""
    start = 0
    for column in table["column"].combine_chunks().value_counts().to_pylist():
        stop = start + column["counts"]
        yield column["values"], start, stop
        start = stop
