"""The shuffled order of training rows: a keyed permutation, so that a position in an epoch maps to a row
in O(1) memory.

The state is (seed, epoch, position). It does not depend on the batch size, so a run that dies or changes
its batch size continues with the next unseen row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from shoestring.core.errors import DataError
from shoestring.core.record import Record

Indices = np.ndarray[Any, np.dtype[np.int64]]
UInt32s = np.ndarray[Any, np.dtype[np.uint32]]
UInt64s = np.ndarray[Any, np.dtype[np.uint64]]

ROUNDS = 6

MAX_ROWS = (1 << 32) - (1 << 18)

Order = Literal[1, 2, 3]
"""The version of the order. Trainings that began with version 1 go on with it; it takes 4 times as long.
Version 3 is that of rows that are streamed in blocks (block_order.py)."""


class SampleCursor(Record):
    """The next sample: `position` of `epoch`, in the order determined by `seed`.

    `selection` is the digest of the blob with the rows of an epoch; empty: all rows of the split. With the
    version of the data set, this determines the order of every epoch.
    """

    seed: int
    epoch: int = 0
    position: int = 0
    order: Order = 2
    selection: str = ""


def sample_indices(
    n: int, seed: int, epoch: int, start: int, count: int, order: Order = 2, step: int = 1
) -> Indices:
    """Return the rows at `count` positions of an epoch over n rows, from `start` on, `step` apart:
    int64[count], each in [0, n), n up to `MAX_ROWS`.

    A Feistel network over Z_a x Z_b with a*b just above n (Black & Rogaway, "Ciphers with Arbitrary
    Finite Domains", CT-RSA 2002), with cycle-walking for results outside [0, n). Over an epoch the result
    is a permutation.
    """
    return permuted(n, (seed, epoch), start, count, order, step)


def permuted(
    n: int, key: tuple[int, ...], start: int, count: int, order: Order = 2, step: int = 1
) -> Indices:
    """Return the numbers at these positions of the permutation of [0, n) that a key names, like
    `sample_indices`."""
    end = start + step * (count - 1) + 1 if count else start
    if not 0 <= start <= end <= n:
        raise ValueError(f"positions {start} to {end} are not within an epoch of {n} rows")
    if n > MAX_ROWS:
        raise DataError(f"a split has {n:,} rows, and at most {MAX_ROWS:,} can be shuffled")
    a = math.isqrt(n - 1) + 1 if n else 1
    b = -(-n // a) if n else 1
    permute = _permutation(a, b, np.random.SeedSequence(key), order)
    found = permute(np.arange(start, end, step, dtype=np.uint32))
    while (outside := np.flatnonzero(found >= n)).size:
        found[outside] = permute(found[outside])
    return found.astype(np.int64)


def _permutation(
    a: int, b: int, sequence: np.random.SeedSequence, order: Order
) -> Callable[[UInt32s], UInt32s]:
    """Return the permutation of [0, a * b) of one epoch."""
    if order == 1:
        wide_keys = sequence.generate_state(ROUNDS, np.uint64).astype(np.uint64)
        return lambda x: _permute_64(x, a, b, wide_keys)
    keys = sequence.generate_state(ROUNDS, np.uint32).astype(np.uint32)
    return lambda x: _permute_32(x, a, b, keys)


def _permute_32(x: UInt32s, a: int, b: int, keys: UInt32s) -> UInt32s:
    """Each round adds a hash of one half to the other, modulo a or b. Neither is above 2^16, so that 16 bits
    of the hash scale to it (Lemire 2019, "Fast Random Integer Generation in an Interval", ACM TOMACS).

    The multipliers are those of lowbias32 (Wellons 2018, "Prospecting for Hash Functions").
    """
    right: UInt32s = x // np.uint32(a)
    left: UInt32s = x - right * np.uint32(a)
    added, other = np.empty_like(left), np.empty_like(left)
    for number, key in enumerate(keys):
        half, into, modulus = (left, right, b) if number % 2 else (right, left, a)
        np.bitwise_xor(half, key, out=added)
        added *= np.uint32(0x7FEB352D)
        np.right_shift(added, np.uint32(15), out=other)
        added ^= other
        added *= np.uint32(0x846CA68B)
        added >>= np.uint32(16)
        added *= np.uint32(modulus)
        added >>= np.uint32(16)
        into += added
        # A difference below 0 wraps around to a larger number.
        np.subtract(into, np.uint32(modulus), out=other)
        np.minimum(into, other, out=into)
    right *= np.uint32(a)
    left += right
    return left


def _permute_64(x: UInt32s, a: int, b: int, keys: UInt64s) -> UInt32s:
    values = x.astype(np.uint64)
    left, right = values % np.uint64(a), values // np.uint64(a)
    for number, key in enumerate(keys):
        if number % 2:
            right = (right + _mix_64(left + key) % np.uint64(b)) % np.uint64(b)
        else:
            left = (left + _mix_64(right + key) % np.uint64(a)) % np.uint64(a)
    return (left + np.uint64(a) * right).astype(np.uint32)


def _mix_64(x: UInt64s) -> UInt64s:
    """Apply SplitMix64's finaliser (Steele, Lea & Flood, OOPSLA 2014): each input bit affects each output
    bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
