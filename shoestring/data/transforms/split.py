"""Which split a row belongs to: a keyed hash of its group, so that rows which come later never move those already there."""

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
"""Column of an encoded data set that was split by groups: rows of equal value share their fate, and are drawn together by a bootstrap."""

Hashes = np.ndarray[Any, np.dtype[np.uint64]]
Indices = np.ndarray[Any, np.dtype[np.int64]]
Groups = np.ndarray[Any, np.dtype[np.int32]]


@dataclass(frozen=True, slots=True)
class SplitAssignment:
    """Place in SPLITS of each row, int64[rows], and which group it is of, int32[rows]: half of the group's hash. None: by itself."""

    split_indices: Indices
    groups: Groups | None


def assign_splits(table: pa.Table, split: Split, seed: int, first_row: int) -> SplitAssignment:
    """Share out the rows of a table. `first_row` is the place of its first row in the whole.

    A group goes where its hash / 2^64 falls between the shares: blake2b of its values, or of a row by itself SplitMix64 of its place, both
    keyed by the seed. So the shares are met on average, and the closer the more groups there are.
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
    places = np.searchsorted([split.train, split.train + split.val], hashes / 2.0**64, side="right")
    return SplitAssignment(
        places[groups], hashes.astype(np.uint32).view(np.int32)[groups] if split.by else None
    )


def _hash(group: dict[str, Any], key: hashlib.blake2b) -> int:
    found = key.copy()
    found.update(json.dumps([str(value) for value in group.values()]).encode())
    return int.from_bytes(found.digest(), "little")


def _mix(rows: Hashes, key: np.uint64) -> Hashes:
    """SplitMix64 (Steele, Lea and Flood 2014, figure 16), from the state `key`, its output number `rows`: uint64[rows]."""
    state = key + (rows + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def _groups(columns: pa.Table) -> tuple[Indices, Indices]:
    """A row of each group, and the group of each row."""
    first, groups = np.zeros(0, np.int64), np.zeros(columns.num_rows, np.int64)
    for name in columns.column_names:
        encoded = columns[name].combine_chunks().dictionary_encode(null_encoding="encode")
        pairs = groups * len(encoded.dictionary) + np.asarray(encoded.indices).astype(np.int64)
        _, first, groups = np.unique(pairs, return_index=True, return_inverse=True)
    return first, groups
