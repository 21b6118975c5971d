"""Assign rows to splits by a keyed hash of their group, so that rows added later never move existing ones."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from shoestring.data.recipe import Split

SPLITS = ("train", "val", "test")

GROUP_COLUMN = "_group"
"""The column of group ids in a data set that was split by groups. A bootstrap draws the rows of a group
together."""

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


def assign_splits(table: pa.Table, split: Split, seed: int, first_row: int) -> SplitAssignment:
    """Assign the rows of a table to splits. `first_row` is the row number of its first row in the whole
    data set.

    A group goes to the split whose share contains hash / 2^64. The hash is blake2b of the group's values,
    or SplitMix64 of the row number when there are no groups; both are keyed by the seed. So the shares
    hold on average, and the more groups there are, the more closely.
    """
    key = hashlib.blake2b(digest_size=8, key=str(seed).encode())
    if split.by:
        columns = table.select(split.by)
        rows, groups = _groups(columns)
        hashes = np.array([_hash(group, key) for group in columns.take(rows).to_pylist()], np.uint64)
    else:
        groups = np.arange(table.num_rows)
        hashes = _mix(
            np.arange(first_row, first_row + table.num_rows, dtype=np.uint64),
            np.uint64(int.from_bytes(key.digest(), "little")),
        )
    indices = np.searchsorted([split.train, split.train + split.val], hashes / 2.0**64, side="right")
    group_ids = hashes.astype(np.uint32).view(np.int32)[groups] if split.by else None
    return SplitAssignment(indices[groups], group_ids)


def _hash(group: dict[str, Any], key: hashlib.blake2b) -> int:
    found = key.copy()
    found.update(json.dumps([str(value) for value in group.values()]).encode())
    return int.from_bytes(found.digest(), "little")


def _mix(rows: Hashes, key: np.uint64) -> Hashes:
    """Return SplitMix64's output number `rows` from the state `key` (Steele, Lea and Flood 2014, figure
    16): uint64[rows]."""
    state = key + (rows + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def _groups(columns: pa.Table) -> tuple[Indices, Indices]:
    """Return one row of each group, and the group of each row."""
    first, groups = np.zeros(0, np.int64), np.zeros(columns.num_rows, np.int64)
    for name in columns.column_names:
        encoded = columns[name].combine_chunks().dictionary_encode(null_encoding="encode")
        pairs = groups * len(encoded.dictionary) + np.asarray(encoded.indices).astype(np.int64)
        _, first, groups = np.unique(pairs, return_index=True, return_inverse=True)
    return first, groups
