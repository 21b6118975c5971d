"""The shuffled order of rows that are streamed in blocks: blocks are shuffled, and the rows of a window of
blocks are shuffled together. A reader holds a window at a time.

Like the order of single rows, it is a function of the data set's version, the seed, the epoch and the
selection alone, and maps any position of an epoch to its row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from shoestring.data.loading.shuffle import Indices, SampleCursor, permuted

WINDOW_BYTES = 64 << 20
"""Decoded bytes of the blocks whose rows are shuffled together. Part of the order: another value is another
version of it."""

QUALITY_BATCH_ROWS, QUALITY_BATCHES = 1024, 256


@dataclass(frozen=True, slots=True)
class EpochWindows:
    """The windows of one epoch. `blocks`: their numbers in shuffled order. `block_stops` and `window_stops`:
    the position behind each block and each window, if rows were not shuffled inside of windows."""

    blocks: Indices
    block_stops: Indices
    window_stops: Indices


class BlockOrder:
    """The order of samples that are stored in blocks."""

    def __init__(self, starts: Indices, window_blocks: int) -> None:
        """`starts`: int64[blocks + 1], the first sample of each block, and the number of samples. Blocks
        without samples are never read. `window_blocks`: blocks of a window."""
        self._starts, self._sizes, self.window_blocks = starts, np.diff(starts), window_blocks
        self._filled = np.flatnonzero(self._sizes)
        self._windows = lru_cache(maxsize=4)(self._make_windows)

    def positions(self, cursor: SampleCursor, epoch: int, start: int, count: int, step: int = 1) -> Indices:
        """Return the samples at `count` positions of an epoch, from `start` on, `step` apart: int64[count].
        Over an epoch the result is a permutation. Raises ValueError for positions outside the epoch.
        """
        end = start + step * (count - 1) + 1 if count else start
        if not 0 <= start <= end <= self._starts[-1]:
            raise ValueError(f"positions {start} to {end} are not in an epoch of {self._starts[-1]} rows")
        windows = self._windows(cursor.seed, epoch)
        found = np.empty(count, np.int64)
        done = 0
        while done < count:
            at = start + step * done
            window = int(np.searchsorted(windows.window_stops, at, side="right"))
            first = int(windows.window_stops[window - 1]) if window else 0
            rows = int(windows.window_stops[window]) - first
            taken = min(count - done, -((at - first - rows) // step))
            inner = permuted(rows, (cursor.seed, epoch, window + 1), at - first, taken, step=step) + first
            owners = np.searchsorted(windows.block_stops, inner, side="right")
            blocks = windows.blocks[owners]
            offset = inner - windows.block_stops[owners] + self._sizes[blocks]
            found[done : done + taken] = self._starts[blocks] + offset
            done += taken
        return found

    def first_samples(self, seed: int, count: int) -> Indices:
        """Return `count` samples of as few blocks as possible, chosen by the seed; more include fewer."""
        windows = self._windows(seed, 0)
        whole = int(np.searchsorted(windows.block_stops, count, side="left")) + 1
        chosen = windows.blocks[:whole]
        pieces = [np.arange(self._starts[block], self._starts[block + 1]) for block in chosen]
        return np.concatenate(pieces)[:count]

    def _make_windows(self, seed: int, epoch: int) -> EpochWindows:
        count = len(self._filled)
        blocks = self._filled[permuted(count, (seed, epoch), 0, count)]
        stops = np.cumsum(self._sizes[blocks])
        last = np.minimum(np.arange(0, count, self.window_blocks) + self.window_blocks, count) - 1
        return EpochWindows(blocks, stops, stops[last])

    def quality(self, seed: int) -> float:
        """Return how well the order mixes: the variance of a batch's mean that a uniform shuffle has, divided
        by the one of this order, for the worst feature, which is the place of a row in storage. At most 1.

        Batches have 1,024 rows; at most 256 of the first epoch are looked at, evenly spaced. 0.5 means that
        batches vary as those of half as many rows in a uniform shuffle.
        """
        rows, cursor = int(self._starts[-1]), SampleCursor(seed=seed, order=3)
        size = min(QUALITY_BATCH_ROWS, max(1, rows // 2))
        starts = np.unique(np.linspace(0, rows - size, QUALITY_BATCHES).astype(np.int64) // size * size)
        means = np.array([self.positions(cursor, 0, int(at), size).mean() for at in starts])
        uniform = (rows * rows - 1) / 12 / size * (rows - size) / max(rows - 1, 1)
        found = float(np.mean((means - (rows - 1) / 2) ** 2))
        return 1.0 if found <= uniform else round(uniform / found, 4)


def window_blocks(starts: Indices, row_bytes: int) -> int:
    """Return how many blocks a window has: as many of the largest one as `WINDOW_BYTES` hold, at least one.

    `starts`: the first stored row of each block, and the number of rows.
    """
    largest = int(np.diff(starts).max(initial=1)) * row_bytes
    return max(1, WINDOW_BYTES // largest)
