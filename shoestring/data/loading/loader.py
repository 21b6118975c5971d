"""Load training batches by sample cursor. The batch size, the number of ranks and the number of threads may
change at any time; each row appears once an epoch, in the same order.

Rows are gathered ahead in background threads, bounded in bytes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from shoestring.core.errors import DataError
from shoestring.data.loading.gathering import NO_SECONDS, GatheredSamples, LoaderTimes, gather_samples
from shoestring.data.loading.samples import Positions, SampleReader
from shoestring.data.loading.shuffle import SampleCursor

# Rows that are gathered at once: enough to hide the cost of a thread switch, few enough to discard at a stop.
PREFETCH_ROWS = 1 << 15
PREFETCH_BYTES, STREAMED_BYTES = 16 << 20, 64 << 20
"""At most this many stored bytes are gathered, with those that the trainer reads now; a block has at least a
row. Small blocks stay in the processor's cache; of streamed rows, large ones hide the time of requests."""

MAX_KEPT_BYTES = (32 << 20) - (1 << 16)
"""The largest allocation, with its header, whose release raises the thresholds of glibc's allocator."""

CALM_BLOCKS = 16
"""After this many blocks that were ready in time, one less is gathered ahead."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The samples at positions [start, stop) of an epoch that belong to one rank: all, if there is one.

    `samples`: as the loader gathers them.
    """

    epoch: int
    start: int
    stop: int
    samples: Any


class Permuted(NamedTuple):
    """The samples of a rank at positions [start, stop) of an epoch: int64, in the order of the training."""

    epoch: int
    start: int
    stop: int
    samples: Positions


@dataclass(frozen=True, slots=True)
class Block:
    """The samples of a rank at positions [start, stop) of an epoch, which a background thread gathers."""

    epoch: int
    start: int
    stop: int
    gathered: Future[GatheredSamples]


class Loader:
    """Returns the rows from `cursor` on, in batches. The last batch of an epoch may be short; none spans
    two epochs.

    A batch of the global order is divided among `ranks` processes: position p belongs to rank p modulo
    `ranks`. All ranks ask for the same batches; their cursors stay equal.
    """

    def __init__(
        self,
        rows: SampleReader,
        cursor: SampleCursor,
        *,
        gather: Callable[[SampleReader, Positions], GatheredSamples] = gather_samples,
        rank: int = 0,
        ranks: int = 1,
        threads: int = 1,
        prefetch_bytes: int | None = None,
    ) -> None:
        """`gather`: returns the samples of `rows` at positions. Background threads call it.

        Raises DataError for a data set without rows, ValueError for a cursor outside this data set or a
        rank outside its group.
        """
        if not len(rows):
            raise DataError("there are no rows to train on")
        if not 0 <= cursor.position <= len(rows):
            raise ValueError(f"{cursor} is outside the data set of {len(rows)} rows")
        if not 0 <= rank < ranks:
            raise ValueError(f"there is no rank {rank} of {ranks}: ranks are 0 to {ranks - 1}")
        _keep_freed_memory()
        self._rows, self._began, self._rank, self._ranks = rows, cursor, rank, ranks
        self._gather_rows = gather
        self._epoch, self._position = cursor.epoch, cursor.position
        # The block that the trainer reads, and those ahead of it, at most two for each thread.
        self._max_ahead = 2 * threads
        if prefetch_bytes is None:
            prefetch_bytes = PREFETCH_BYTES if rows.order != 3 else STREAMED_BYTES
        own_rows = prefetch_bytes // (self._max_ahead + 1) // rows.row_bytes
        self._block_rows = ranks * max(1, min(PREFETCH_ROWS, own_rows))
        self._pool = ThreadPoolExecutor(threads, "loader")
        self._started_s, self._waited_s, self._gathering = time.monotonic(), 0.0, NO_SECONDS
        self._ahead, self._calm_blocks, self._batch_rows = 1, 0, 1
        self._permuted = Permuted(cursor.epoch, 0, 0, np.empty(0, np.int64))
        self._blocks: deque[Block] = deque()
        self._gather_ahead()

    @property
    def cursor(self) -> SampleCursor:
        """The position of the next batch."""
        return self._began.model_copy(update={"epoch": self._epoch, "position": self._position})

    @property
    def wait_share(self) -> float:
        """The share of the loader's lifetime in which the trainer waited for rows."""
        return self._waited_s / max(1e-9, time.monotonic() - self._started_s)

    @property
    def times(self) -> LoaderTimes:
        return LoaderTimes(time.monotonic() - self._started_s, self._waited_s, self._gathering)

    def next_batch(self, max_rows: int) -> Batch:
        """Return the next batch of `max_rows` rows of all ranks; fewer at the end of an epoch."""
        epoch, start, self._batch_rows = self._epoch, self._position, max_rows
        if start == len(self._rows):
            epoch, start = epoch + 1, 0
        stop, at, pieces = min(start + max_rows, len(self._rows)), start, list[Any]()
        if not self._blocks:
            self._gather_ahead()
        while at < stop:
            block = self._blocks[0]
            until = min(stop, block.stop)
            first = self._own_before(block.start)
            own = slice(self._own_before(at) - first, self._own_before(until) - first)
            pieces.append(self._wait(block).part(own.start, own.stop))
            at = until
            if at == block.stop:
                self._drop_first()
        self._epoch, self._position = epoch, stop
        return Batch(epoch, start, stop, type(pieces[0]).joined(pieces))

    def pass_over(self, rows: int) -> None:
        """Move the position behind the next rows of an epoch, without reading them."""
        if self._position == len(self._rows):
            self._epoch, self._position = self._epoch + 1, 0
        self._position = min(self._position + rows, len(self._rows))
        for block in self._blocks:
            block.gathered.cancel()
        self._blocks.clear()

    def _own_before(self, position: int) -> int:
        """Return how many positions of this rank an epoch has before `position`."""
        return -((self._rank - position) // self._ranks)

    def _drop_first(self) -> None:
        """Drop the block that was used up, and gather others. Fewer are held when the trainer never waits."""
        gathered = self._blocks.popleft().gathered.result()
        self._gathering = self._gathering.plus(gathered.seconds)
        is_ready = self._blocks[0].gathered.done()
        self._calm_blocks = self._calm_blocks + 1 if is_ready else 0
        if not is_ready:
            self._ahead = min(self._max_ahead, self._ahead + 1)
        elif self._calm_blocks >= CALM_BLOCKS:
            self._ahead, self._calm_blocks = max(1, self._ahead - 1), 0
        self._gather_ahead()

    def _gather_ahead(self) -> None:
        while len(self._blocks) <= self._ahead:
            epoch, start = self._epoch, self._position
            if self._blocks:
                epoch, start = self._blocks[-1].epoch, self._blocks[-1].stop
            if start == len(self._rows):
                epoch, start = epoch + 1, 0
            stop = self._block_end(epoch, start)
            gathered = self._pool.submit(self._gather, epoch, start, stop)
            self._blocks.append(Block(epoch, start, stop, gathered))

    def _block_end(self, epoch: int, start: int) -> int:
        """Return where a block ends: with a batch, if one fits, since a batch of two blocks is a copy."""
        stop = start + self._block_rows
        if stop >= len(self._rows):
            return len(self._rows)
        first = self._position if epoch == self._epoch else 0
        aligned = stop - (stop - first) % self._batch_rows
        return aligned if aligned > start else stop

    def _gather(self, epoch: int, start: int, stop: int) -> GatheredSamples:
        """Return the rows of this rank at positions [start, stop)."""
        return self._gather_rows(self._rows, self._samples_at(epoch, start, stop))

    def _samples_at(self, epoch: int, start: int, stop: int) -> Positions:
        """Return the samples of this rank at positions [start, stop), from those that were computed last if
        they are among them: the permutation of a few rows takes as long as that of thousands."""
        found = self._permuted
        if found.epoch != epoch or not found.start <= start <= stop <= found.stop:
            until = min(len(self._rows), max(stop, start + self._ranks * PREFETCH_ROWS))
            count = self._own_before(until) - self._own_before(start)
            first = self._rank + self._own_before(start) * self._ranks if count else start
            samples = self._rows.positions(self._began, epoch, first, count, self._ranks)
            found = self._permuted = Permuted(epoch, start, until, samples)
        before = self._own_before(found.start)
        return found.samples[self._own_before(start) - before : self._own_before(stop) - before]

    def _wait(self, block: Block) -> Any:
        started_s = time.monotonic()
        gathered = block.gathered.result()
        self._waited_s += time.monotonic() - started_s
        return gathered.samples

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def _keep_freed_memory() -> None:
    """Let glibc's allocator keep the memory of dropped blocks for the next ones.

    It gives freed memory above a threshold back to the system, at first 128 KB, later twice the largest
    allocation that was freed, up to 64 MB (mallopt(3)). Mapping the pages of a block again costs as much as
    gathering its rows. This memory is never touched, so it takes no time; other allocators ignore it.
    """
    np.empty(MAX_KEPT_BYTES, np.uint8)
