"""Hashes of rows, keyed by a seed, by the values of their columns."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa

from shoestring.data.sources.column_types import float_scalar, float_values

Hashes = np.ndarray[Any, np.dtype[np.uint64]]


def hash_key(seed: int) -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=8, key=str(seed).encode())


def text_hash(text: str, key: hashlib.blake2b) -> int:
    return _digest_bytes(text.encode(), key)


def _digest_bytes(data: bytes, key: hashlib.blake2b) -> int:
    found = key.copy()
    found.update(data)
    return int.from_bytes(found.digest(), "little")


def row_hashes(table: pa.Table, key: hashlib.blake2b) -> Hashes:
    """Return a hash of each row's values: uint64[rows]. The order of the columns does not matter.

    A row's hash is the mixed sum of the hashes of its values, each keyed by the name of its column.
    """
    total = np.zeros(table.num_rows, np.uint64)
    for name in table.column_names:
        total += mix(_value_bits(table[name], key), np.uint64(text_hash(name, key)))
    return mix(total, np.uint64(int.from_bytes(key.digest(), "little")))


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
        digests = np.array([text_hash(repr(text), key) for text in encoded.dictionary.to_pylist()], np.uint64)
        return digests[np.from_dlpack(encoded.indices)] if len(column) else np.zeros(0, np.uint64)
    numbers = column.cast(pa.float64(), safe=False).fill_null(float_scalar(np.nan))
    # Adding 0 turns -0 into 0.
    values = float_values(numbers) + 0.0
    values[np.isnan(values)] = np.nan
    bits: Hashes = np.ascontiguousarray(values).view(np.uint64)
    return bits


def mix(values: Hashes, key: np.uint64 | Hashes) -> Hashes:
    """Return SplitMix64's output number `values` from the state `key` (Steele, Lea and Flood 2014, figure
    16): uint64[rows]."""
    state = key + (values + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
