"""Left joins by lookup. They keep the order and the number of the left rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shoestring.core.errors import DataError, RecipeError
from shoestring.data.recipe import Join
from shoestring.data.sources.column_types import float_scalar

Indices = np.ndarray[Any, np.dtype[np.int64]]


MAX_EXAMPLES = 100
"""The keys without a row that are kept to be shown."""

MAX_KEYS_COMPARED = 10_000
"""The keys of the other table that those are compared with."""

MAX_OTHER_KEYS = 5
"""With more keys that are no numbers, a column is not one of numbers."""


@dataclass(slots=True)
class JoinCount:
    """How many rows of the main table found a row, and the first keys that found none."""

    rows: int = 0
    matched: int = 0
    unmatched: list[str] = field(default_factory=list)


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
        self._keys = table.select(join.by)
        self.count = JoinCount()
        self._columns = table.select(join.columns).combine_chunks()

    def join(self, left: pa.Table) -> pa.Table:
        """Return `left` with the columns of the join added; null where no row matches.

        Each call adds to `count`. Raises RecipeError when the key columns have incompatible types.
        """
        codes, found = np.zeros(left.num_rows, np.int64), np.full(left.num_rows, len(self._row_of_code) > 0)
        for name, (values, known) in zip(self._join.by, self._key_columns, strict=True):
            indices = self._left_indices(left, name, values)
            pairs = codes * len(values) + indices
            codes = np.searchsorted(known, pairs).clip(max=max(len(known) - 1, 0))
            found &= indices >= 0
            found[found] = known[codes[found]] == pairs[found]
        self._add(left, found)
        rows = np.zeros(left.num_rows, np.int64)
        rows[found] = self._row_of_code[codes[found]]
        # `pa.array` would import pandas for numbers of numpy, which takes 0.3 s.
        buffers = [pa.py_buffer(np.packbits(found, bitorder="little")), pa.py_buffer(rows)]
        added = self._columns.take(pa.Array.from_buffers(pa.int64(), len(rows), buffers))
        for name in self._join.columns:
            left = left.append_column(name, added[name])
        return left

    def _add(self, left: pa.Table, found: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
        count = self.count
        count.rows += len(found)
        count.matched += int(found.sum())
        for row in np.flatnonzero(~found)[: MAX_EXAMPLES - len(count.unmatched)].tolist():
            # A row without a key has none to show.
            has_key = all(left[name][row].is_valid for name in self._join.by)
            if has_key and (key := _key_text(left, self._join.by, row)) not in count.unmatched:
                count.unmatched.append(key)

    def similar_keys(self) -> tuple[str, str] | None:
        """Return a key of the main table that found no row, and the key of the other table that is most like
        it; None if one of them has no keys."""
        if not self.count.unmatched or not (keys := self._keys_compared()):
            return None
        by_form = {_plain(key): key for key in reversed(keys)}
        alike = ((key, by_form[_plain(key)]) for key in self.count.unmatched if _plain(key) in by_form)
        return next(alike, (self.count.unmatched[0], keys[0]))

    def check(self) -> None:
        """Raise RecipeError if no row has found one, and the recipe does not allow it."""
        if self._join.allow_unmatched or self.count.matched or not self.count.rows:
            return
        by, table = ", ".join(self._join.by), self._join.table
        found = f"0 of {self.count.rows:,} rows found a row of {table} by {by}"
        if (similar := self.similar_keys()) is None:
            reason = f"one of the tables has no value in {by}"
        else:
            reason = f"the keys differ, such as {similar[0]!r} and {similar[1]!r}"
        raise RecipeError(
            f"{found}: {reason}: {self._remedy(similar)}, or set `allow_unmatched: true` in the join"
        )

    def _remedy(self, similar: tuple[str, str] | None) -> str:
        """Return how these keys become equal."""
        if similar is None or _plain(similar[0]) != _plain(similar[1]):
            return "join by columns that hold the same keys"
        others = [key for key in self._keys_compared() if not key.strip().isdecimal()]
        is_number = len(self._join.by) == 1 and all(key.strip().isdecimal() for key in similar)
        if not is_number or len(others) > MAX_OTHER_KEYS:
            return "write them alike in the files"
        kinds = f"write `kinds: {{{self._join.by[0]}: number}}` in the recipe, which reads text as numbers"
        missing = f", and `read: {{missing: [{', '.join(others)}]}}` in the source of {self._join.table}"
        return f"{kinds}{missing if others else ''}"

    def _keys_compared(self) -> list[str]:
        rows = range(min(self._keys.num_rows, MAX_KEYS_COMPARED))
        return [_key_text(self._keys, self._join.by, row) for row in rows]

    def _left_indices(self, left: pa.Table, name: str, values: pa.Array) -> Indices:
        try:
            return _indices(left[name].cast(values.type), values)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            types = f"{left[name].type} with {values.type}"
            raise RecipeError(
                f"the join with {self._join.table} by {name} compares {types}, which never match: "
                "join by another column"
            ) from None


def _key_text(table: pa.Table, names: tuple[str, ...], row: int) -> str:
    # As text first: a date of Python would import pandas.
    return ", ".join(table[name].slice(row, 1).cast(pa.string())[0].as_py() for name in names)


def _plain(key: str) -> str:
    """Return a key without case, blanks, punctuation and leading zeros."""
    return "".join(each for each in key.casefold() if each.isalnum()).lstrip("0")


def _indices(column: pa.ChunkedArray, values: pa.Array) -> Indices:
    """Return the index of each value in `values`: int64[rows], -1 for a null or an unknown value."""
    found = pc.index_in(column.combine_chunks(), values, skip_nulls=True)
    # `np.asarray` and numbers of Python would import pandas here, too.
    indices: Indices = np.from_dlpack(found.fill_null(float_scalar(-1).cast(pa.int32()))).astype(np.int64)
    return indices
