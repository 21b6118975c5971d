"""Columns of stored records that are read together, and the codes that models read for stored ones.

Shape suffixes: B records of a batch; C categorical features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from shoestring.core.datasets import Feature
from shoestring.core.errors import DataError

Array = np.ndarray[Any, np.dtype[Any]]
Codes = np.ndarray[Any, np.dtype[np.int32]]


def column_of(feature: Feature) -> str:
    """Return the stored column of a feature."""
    return feature.column or feature.name


class ColumnBlock:
    """Columns of one type that are read together: [B, columns].

    The records are seen as one row of values of that type each, from the first of the columns to the last.
    """

    def __init__(self, record: np.dtype[Any], columns: Sequence[str]) -> None:
        """Raises DataError for columns of several types."""
        found: Mapping[str, Any] = record.fields or {}
        types = {found[name][0] for name in columns}
        if len(types) > 1:
            raise DataError(f"columns {', '.join(columns)} are of several types: run preprocess again")
        dtype = types.pop() if types else np.dtype(np.int32)
        offsets = np.array([found[name][1] for name in columns], np.int64)
        first = int(offsets.min(initial=record.itemsize))
        places = (offsets - first) // dtype.itemsize
        width = int(places.max(initial=-1)) + 1
        names: Any = {
            "names": ["block"],
            "formats": [(dtype, (width,))],
            "offsets": [first if width else 0],
            "itemsize": record.itemsize,
        }
        self._view = np.dtype(names)
        self._places = None if np.array_equal(places, np.arange(width)) else places

    def read(self, records: Array) -> Array:
        """Return the columns of the records; a view where they lie side by side, in order."""
        block: Array = records.view(self._view)["block"]
        return block if self._places is None else block[:, self._places]


class CodeTable:
    """The model's codes of all columns in one table, each from its own offset on."""

    def __init__(self, tables: Sequence[Codes]) -> None:
        self._codes = np.concatenate(tables)
        self._offsets = np.cumsum([0, *map(len, tables)])[:-1]

    @classmethod
    def of(cls, features: Sequence[Feature], model_codes: Mapping[str, Codes]) -> Self | None:
        """Return the table of these features; None when their codes are stored ready to use."""
        if not any(column_of(each) in model_codes for each in features):
            return None
        # A column that is missing in all rows has no values.
        none = np.zeros(1, np.int32)
        return cls([model_codes.get(column_of(each), none) for each in features])

    def look_up(self, codes_BC: Codes) -> Codes:
        """Return the model's codes of stored codes. Raises DataError for a code that is in no dictionary."""
        try:
            found: Codes = self._codes.take(codes_BC + self._offsets)
        except IndexError:
            raise DataError("a stored code is in no dictionary: the data set is damaged") from None
        return found
