"""Assign rows to splits by a keyed hash of their group or of their values, so that rows added anywhere never
move others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from shoestring.data.recipe import Split
from shoestring.data.sources.column_types import float_scalar, float_values

SPLITS = ("train", "val", "test")

Hashes = np.ndarray[Any, np.dtype[np.uint64]]
Indices = np.ndarray[Any, np.dtype[np.int64]]
Groups = np.ndarray[Any, np.dtype[np.int32]]


@dataclass(frozen=True, slots=True)
class SplitAssignment:
    """The index in SPLITS of each row, int64[rows], and its group id, int32[rows]: the low half of the
    group's hash.

    `groups` is None when each row is assigned by itself.
    """

    split_indices: Indices
    groups: Groups | None


def assign_splits(table: pa.Table, split: Split, seed: int, columns: Sequence[str]) -> SplitAssignment:
    """Assign the rows of a table to splits. `columns` are those of the main table, before its joins.

    A group goes to the split whose share contains hash / 2^64. The hash is blake2b of the group's values;
    when there are no groups, each row is its own group, by the values of all `columns`. So equal rows share
    a split, wherever they stand in the data. Hashes are keyed by the seed: the shares hold on average, and
    the more groups there are, the more closely.
    """
    key = hashlib.blake2b(digest_size=8, key=str(seed).encode())
    if split.by:
        chosen = table.select(split.by)
        rows, groups = _groups(chosen)
        hashes = np.array([_hash(group, key) for group in chosen.take(rows).to_pylist()], np.uint64)
        indices = _split_indices(hashes, split)
        return SplitAssignment(indices[groups], hashes.astype(np.uint32).view(np.int32)[groups])
    return SplitAssignment(_split_indices(_row_hashes(table.select(list(columns)), key), split), None)


def _split_indices(hashes: Hashes, split: Split) -> Indices:
    return np.searchsorted([split.train, split.train + split.val], hashes / 2.0**64, side="right")


def _hash(group: dict[str, Any], key: hashlib.blake2b) -> int:
    return _digest(json.dumps([_group_text(value) for value in group.values()]), key)


def _group_text(value: object) -> str:
    """Return the text of a value; a whole number has the same text in a column of floats."""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def _digest(text: str, key: hashlib.blake2b) -> int:
    return _digest_bytes(text.encode(), key)


def _digest_bytes(data: bytes, key: hashlib.blake2b) -> int:
    found = key.copy()
    found.update(data)
    return int.from_bytes(found.digest(), "little")


def _row_hashes(table: pa.Table, key: hashlib.blake2b) -> Hashes:
    """Return a hash of each row's values: uint64[rows]. The order of the columns does not matter.

    A row's hash is the mixed sum of the hashes of its values, each keyed by the name of its column.
    """
    total = np.zeros(table.num_rows, np.uint64)
    for name in table.column_names:
        total += _mix(_value_bits(table[name], key), np.uint64(_digest(name, key)))
    return _mix(total, np.uint64(int.from_bytes(key.digest(), "little")))


def _value_bits(column: pa.ChunkedArray, key: hashlib.blake2b) -> Hashes:
    """Return 64 bits for each value; equal numbers have equal bits, whatever their type. A null is a NaN."""
    kind = column.type
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        column = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_binary(kind):
        return np.array([_digest_bytes(data or b"", key) for data in column.to_pylist()], np.uint64)
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        encoded = column.cast(pa.string()).combine_chunks().dictionary_encode(null_encoding="encode")
        digests = np.array([_digest(repr(text), key) for text in encoded.dictionary.to_pylist()], np.uint64)
        return digests[np.from_dlpack(encoded.indices)] if len(column) else np.zeros(0, np.uint64)
    numbers = column.cast(pa.float64(), safe=False).fill_null(float_scalar(np.nan))
    # Adding 0 turns -0 into 0.
    values = float_values(numbers) + 0.0
    values[np.isnan(values)] = np.nan
    bits: Hashes = np.ascontiguousarray(values).view(np.uint64)
    return bits


def _mix(values: Hashes, key: np.uint64) -> Hashes:
    """Return SplitMix64's output number `values` from the state `key` (Steele, Lea and Flood 2014, figure
    16): uint64[rows]."""
    state = key + (values + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def _groups(columns: pa.Table) -> tuple[Indices, Indices]:
    """Return one row of each group, and the group of each row."""
    first, groups = np.zeros(0, np.int64), np.zeros(columns.num_rows, np.int64)
    for name in columns.column_names:
        encoded = columns[name].combine_chunks().dictionary_encode(null_encoding="encode")
        pairs = groups * len(encoded.dictionary) + np.from_dlpack(encoded.indices).astype(np.int64)
        _, first, groups = np.unique(pairs, return_index=True, return_inverse=True)
    return first, groups
