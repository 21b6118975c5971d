"""Left joins by lookup. They keep the order and the number of the left rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shoestring.core.errors import DataError, RecipeError
from shoestring.data.recipe import Join
from shoestring.data.sources.column_types import float_scalar

Indices = np.ndarray[Any, np.dtype[np.int64]]


class JoinLookup:
    """The right table of a join, held in memory, and found by the columns of `join.by`."""

    def __init__(self, table: pa.Table, join: Join) -> None:
        """Build the lookup. Raises DataError when the key columns do not identify one row each."""
        for name in join.by:
            table = table.filter(pc.is_valid(table[name]))
        self._join = join
        self._key_columns: list[tuple[pa.Array, Indices]] = []
        codes = np.zeros(table.num_rows, np.int64)
        for name in join.by:
            values = table[name].combine_chunks().unique()
            # Codes are made dense after every column, so that they stay below rows squared for any number
            # of columns.
            pairs = codes * len(values) + _indices(table[name], values)
            known, codes = np.unique(pairs, return_inverse=True)
            self._key_columns.append((values, known))
        repeated = np.flatnonzero(np.bincount(codes) > 1)
        if len(repeated):
            row = int(np.flatnonzero(codes == repeated[0])[0])
            example = ", ".join(f"{name} = {table[name][row]}" for name in join.by)
            raise DataError(
                f"table {join.table} has {len(repeated)} repeated key{'s' * (len(repeated) > 1)}, "
                f"such as {example}: "
                f"a join needs one row for each {', '.join(join.by)}"
            )
        self._row_of_code = np.argsort(codes)
        self._columns = table.select(join.columns).combine_chunks()

    def join(self, left: pa.Table) -> pa.Table:
        """Return `left` with the columns of the join added; null where no row matches.

        Raises RecipeError when the key columns have incompatible types.
        """
        codes, found = np.zeros(left.num_rows, np.int64), np.full(left.num_rows, len(self._row_of_code) > 0)
        for name, (values, known) in zip(self._join.by, self._key_columns, strict=True):
            indices = self._left_indices(left, name, values)
            pairs = codes * len(values) + indices
            codes = np.searchsorted(known, pairs).clip(max=max(len(known) - 1, 0))
            found &= indices >= 0
            found[found] = known[codes[found]] == pairs[found]
        rows = np.zeros(left.num_rows, np.int64)
        rows[found] = self._row_of_code[codes[found]]
        # `pa.array` would import pandas for numbers of numpy, which takes 0.3 s.
        buffers = [pa.py_buffer(np.packbits(found, bitorder="little")), pa.py_buffer(rows)]
        added = self._columns.take(pa.Array.from_buffers(pa.int64(), len(rows), buffers))
        for name in self._join.columns:
            left = left.append_column(name, added[name])
        return left

    def _left_indices(self, left: pa.Table, name: str, values: pa.Array) -> Indices:
        try:
            return _indices(left[name].cast(values.type), values)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            types = f"{left[name].type} with {values.type}"
            raise RecipeError(
                f"the join with {self._join.table} by {name} compares {types}, which never match: "
                "join by another column"
            ) from None


def _indices(column: pa.ChunkedArray, values: pa.Array) -> Indices:
    """Return the index of each value in `values`: int64[rows], -1 for a null or an unknown value."""
    found = pc.index_in(column.combine_chunks(), values, skip_nulls=True)
    # `np.asarray` and numbers of Python would import pandas here, too.
    indices: Indices = np.from_dlpack(found.fill_null(float_scalar(-1).cast(pa.int32()))).astype(np.int64)
    return indices
