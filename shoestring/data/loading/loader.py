"""Load training batches by sample cursor. The batch size may change at any time; each row appears once an
epoch.

Rows are gathered ahead in a background thread.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np

from shoestring.core.errors import DataError
from shoestring.data.formats.readers import EncodedRows
from shoestring.data.loading.shuffle import SampleCursor, sample_indices

# Rows that are gathered at once, ahead of the trainer: enough to hide the cost of a thread switch, few
# enough to discard at a stop.
PREFETCH_ROWS = 1 << 14

Records = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Batch:
    """Records of positions [start, start + len) of an epoch."""

    epoch: int
    start: int
    records: Records


@dataclass(frozen=True, slots=True)
class PrefetchedRows:
    """Records from position `start` of an epoch on, which the background thread gathers."""

    epoch: int
    start: int
    records: Future[Records]


class Loader:
    """Returns the rows from `cursor` on, in batches. The last batch of an epoch may be short; none spans
    two epochs.

    `wait_share` is the share of the loader's lifetime in which the trainer waited for rows.
    """

    def __init__(self, rows: EncodedRows, cursor: SampleCursor) -> None:
        """Raises DataError for a data set without rows, ValueError for a cursor outside this data set."""
        if not len(rows):
            raise DataError("there are no rows to train on")
        if not 0 <= cursor.position <= len(rows):
            raise ValueError(f"{cursor} is outside the data set of {len(rows)} rows")
        self._rows, self._cursor = rows, cursor
        self._pool = ThreadPoolExecutor(1, "loader")
        self._started_s, self._waited_s = time.monotonic(), 0.0
        self._current = self._prefetch(cursor.epoch, cursor.position)
        self._next = self._prefetch_after(self._current)

    @property
    def cursor(self) -> SampleCursor:
        """The position of the next batch."""
        return self._cursor

    @property
    def wait_share(self) -> float:
        return self._waited_s / max(1e-9, time.monotonic() - self._started_s)

    def next_batch(self, max_rows: int) -> Batch:
        """Return the next batch of at most `max_rows` rows; fewer at the end of an epoch or of the
        prefetched rows."""
        epoch, position = self._cursor.epoch, self._cursor.position
        if position == len(self._rows):
            epoch, position = epoch + 1, 0
        if epoch != self._current.epoch or position >= self._current.start + self._length(self._current):
            self._advance()
        gathered = self._wait(self._current)
        offset = position - self._current.start
        records = gathered[offset : offset + max_rows]
        if len(records) < max_rows and self._next.epoch == epoch:
            records = np.concatenate([records, self._wait(self._next)[: max_rows - len(records)]])
        self._cursor = SampleCursor(seed=self._cursor.seed, epoch=epoch, position=position + len(records))
        # A batch that reached into the next rows has used up the current ones, which need not stay in memory.
        if self._next.epoch == self._cursor.epoch and self._cursor.position > self._next.start:
            self._advance()
        return Batch(epoch, position, records)

    def _advance(self) -> None:
        self._current, self._next = self._next, self._prefetch_after(self._next)

    def _length(self, prefetched: PrefetchedRows) -> int:
        return min(PREFETCH_ROWS, len(self._rows) - prefetched.start)

    def _prefetch_after(self, prefetched: PrefetchedRows) -> PrefetchedRows:
        start = prefetched.start + self._length(prefetched)
        if start < len(self._rows):
            return self._prefetch(prefetched.epoch, start)
        return self._prefetch(prefetched.epoch + 1, 0)

    def _prefetch(self, epoch: int, start: int) -> PrefetchedRows:
        if start == len(self._rows):
            epoch, start = epoch + 1, 0
        count = min(PREFETCH_ROWS, len(self._rows) - start)
        return PrefetchedRows(epoch, start, self._pool.submit(self._gather, epoch, start, count))

    def _gather(self, epoch: int, start: int, count: int) -> Records:
        return self._rows.take(sample_indices(len(self._rows), self._cursor.seed, epoch, start, count))

    def _wait(self, prefetched: PrefetchedRows) -> Records:
        started_s = time.monotonic()
        records = prefetched.records.result()
        self._waited_s += time.monotonic() - started_s
        return records

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
