"""Batches by sample cursor: any batch size at any time, an epoch's rows each exactly once, gathered ahead in the background."""

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

# Rows gathered at once, ahead of the trainer: large enough to hide a thread's switch, small enough to throw away at a stop.
PREFETCH_ROWS = 1 << 14

Records = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Batch:
    """Records of positions [first, first + len) of an epoch."""

    epoch: int
    first: int
    records: Records


@dataclass(frozen=True, slots=True)
class PrefetchedRows:
    epoch: int
    first: int
    records: Future[Records]


class Loader:
    """Hands out the rows from `cursor` on. The last batch of an epoch may be short; none mixes two epochs.

    `stall_share` is the share of the time since it began in which the trainer waited for rows.
    """

    def __init__(self, rows: EncodedRows, cursor: SampleCursor) -> None:
        """Raises DataError for a data set without rows, ValueError for a cursor that is not in this one."""
        if not len(rows):
            raise DataError("there are no rows to train on")
        if not 0 <= cursor.position <= len(rows):
            raise ValueError(f"{cursor} is not in a data set of {len(rows)} rows")
        self._rows, self._at = rows, cursor
        self._pool = ThreadPoolExecutor(1, "loader")
        self._began_s, self._waited_s = time.monotonic(), 0.0
        self._chunk = self._ask(cursor.epoch, cursor.position)
        self._next = self._ask_after(self._chunk)

    @property
    def cursor(self) -> SampleCursor:
        """Where the next batch begins."""
        return self._at

    @property
    def wait_share(self) -> float:
        return self._waited_s / max(1e-9, time.monotonic() - self._began_s)

    def next_batch(self, most_rows: int) -> Batch:
        """The next rows, at most so many; fewer at the end of an epoch or of what was gathered."""
        epoch, position = self._at.epoch, self._at.position
        if position == len(self._rows):
            epoch, position = epoch + 1, 0
        if epoch != self._chunk.epoch or position >= self._chunk.first + self._length(self._chunk):
            self._chunk, self._next = self._next, self._ask_after(self._next)
        chunk = self._wait(self._chunk)
        offset = position - self._chunk.first
        records = chunk[offset : offset + most_rows]
        if len(records) < most_rows and self._next.epoch == epoch:
            records = np.concatenate([records, self._wait(self._next)[: most_rows - len(records)]])
        self._at = SampleCursor(seed=self._at.seed, epoch=epoch, position=position + len(records))
        self._drop_spent()
        return Batch(epoch, position, records)

    def _drop_spent(self) -> None:
        """Go on to the next chunk when this batch reached into it, so that it is never held twice."""
        if self._next.epoch == self._at.epoch and self._at.position > self._next.first:
            self._chunk, self._next = self._next, self._ask_after(self._next)

    def _length(self, chunk: PrefetchedRows) -> int:
        return min(PREFETCH_ROWS, len(self._rows) - chunk.first)

    def _ask_after(self, chunk: PrefetchedRows) -> PrefetchedRows:
        first = chunk.first + self._length(chunk)
        return self._ask(chunk.epoch, first) if first < len(self._rows) else self._ask(chunk.epoch + 1, 0)

    def _ask(self, epoch: int, first: int) -> PrefetchedRows:
        if first == len(self._rows):
            epoch, first = epoch + 1, 0
        count = min(PREFETCH_ROWS, len(self._rows) - first)
        return PrefetchedRows(epoch, first, self._pool.submit(self._gather, epoch, first, count))

    def _gather(self, epoch: int, first: int, count: int) -> Records:
        return self._rows.take(sample_indices(len(self._rows), self._at.seed, epoch, first, count))

    def _wait(self, chunk: PrefetchedRows) -> Records:
        began_s = time.monotonic()
        records = chunk.records.result()
        self._waited_s += time.monotonic() - began_s
        return records

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
