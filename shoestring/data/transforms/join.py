"""Left joins by lookup: the order and the number of the left rows stay as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shoestring.core.errors import DataError, RecipeError
from shoestring.data.recipe import Join

Indices = np.ndarray[Any, np.dtype[np.int64]]


class JoinLookup:
    """One table, held in memory, found by the columns of `join.by`. Raises DataError when they do not name one row each."""

    def __init__(self, table: pa.Table, join: Join) -> None:
        for name in join.by:
            table = table.filter(pc.is_valid(table[name]))
        self._join = join
        self._steps: list[tuple[pa.Array, Indices]] = []
        codes = np.zeros(table.num_rows, np.int64)
        for name in join.by:
            values = table[name].combine_chunks().unique()
            # Dense after every column, so that codes stay below rows squared whatever the number of columns.
            pairs = codes * len(values) + _indices(table[name], values)
            known, codes = np.unique(pairs, return_inverse=True)
            self._steps.append((values, known))
        doubled = np.flatnonzero(np.bincount(codes) > 1)
        if len(doubled):
            row = int(np.flatnonzero(codes == doubled[0])[0])
            example = ", ".join(f"{name} = {table[name][row]}" for name in join.by)
            raise DataError(
                f"table {join.table} has {len(doubled)} doubled keys, such as {example}: a join needs one row for each {', '.join(join.by)}"
            )
        self._row_of_code = np.argsort(codes)
        self._columns = table.select(join.columns).combine_chunks()

    def join(self, left: pa.Table) -> pa.Table:
        """`left` with the columns of the join; null where nothing was found. Raises RecipeError when a key is of another type."""
        codes, found = np.zeros(left.num_rows, np.int64), np.full(left.num_rows, len(self._row_of_code) > 0)
        for name, (values, known) in zip(self._join.by, self._steps, strict=True):
            places = self._left_places(left, name, values)
            pairs = codes * len(values) + places
            codes = np.searchsorted(known, pairs).clip(max=max(len(known) - 1, 0))
            found &= places >= 0
            found[found] = known[codes[found]] == pairs[found]
        rows = np.zeros(left.num_rows, np.int64)
        rows[found] = self._row_of_code[codes[found]]
        brought = self._columns.take(pa.array(rows, mask=~found))
        for name in self._join.columns:
            left = left.append_column(name, brought[name])
        return left

    def _left_places(self, left: pa.Table, name: str, values: pa.Array) -> Indices:
        try:
            return _indices(left[name].cast(values.type), values)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            types = f"{left[name].type} with {values.type}"
            raise RecipeError(
                f"the join with {self._join.table} by {name} compares {types}, which never match: join by another column"
            ) from None


def _indices(column: pa.ChunkedArray, values: pa.Array) -> Indices:
    """Where each value stands in `values`: int64[rows], -1 for a null or an unknown one."""
    return np.asarray(pc.index_in(column, values, skip_nulls=True).fill_null(-1)).astype(np.int64)
