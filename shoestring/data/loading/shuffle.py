"""The shuffled order of training rows: a keyed permutation, so that a position in an epoch maps to a row
in O(1) memory.

The state is (seed, epoch, position). It does not depend on the batch size, so a run that dies or changes
its batch size continues with the next unseen row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shoestring.core.record import Record

Indices = np.ndarray[Any, np.dtype[np.int64]]
UInt64s = np.ndarray[Any, np.dtype[np.uint64]]

ROUNDS = 6


class SampleCursor(Record):
    """The next sample: `position` of `epoch`, in the order determined by `seed`."""

    seed: int
    epoch: int = 0
    position: int = 0


def sample_indices(n: int, seed: int, epoch: int, start: int, count: int) -> Indices:
    """Return the rows at positions [start, start + count) of an epoch over n rows: int64[count], each in
    [0, n).

    A Feistel network over Z_a x Z_b with a*b just above n (Black & Rogaway, "Ciphers with Arbitrary
    Finite Domains", CT-RSA 2002), with cycle-walking for results outside [0, n). Over an epoch the result
    is a permutation.
    """
    if not 0 <= start <= start + count <= n:
        raise ValueError(f"positions {start} to {start + count} are not within an epoch of {n} rows")
    a = max(1, int(np.ceil(np.sqrt(n))))
    b = -(-n // a) if n else 1
    keys = np.random.SeedSequence((seed, epoch)).generate_state(ROUNDS, np.uint64).astype(np.uint64)
    found = _permute(np.arange(start, start + count, dtype=np.uint64), a, b, keys)
    while (outside := np.flatnonzero(found >= n)).size:
        found[outside] = _permute(found[outside], a, b, keys)
    return found.astype(np.int64)


def _permute(x: UInt64s, a: int, b: int, keys: UInt64s) -> UInt64s:
    left, right = x % np.uint64(a), x // np.uint64(a)
    for number, key in enumerate(keys):
        if number % 2:
            right = (right + _mix(left + key) % np.uint64(b)) % np.uint64(b)
        else:
            left = (left + _mix(right + key) % np.uint64(a)) % np.uint64(a)
    return left + np.uint64(a) * right


def _mix(x: UInt64s) -> UInt64s:
    """Apply SplitMix64's finaliser (Steele, Lea & Flood, OOPSLA 2014): each input bit affects each output
    bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
