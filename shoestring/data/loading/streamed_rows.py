"""The encoded rows of shards, read from the store block by block. No shard is copied to this machine."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any

import numpy as np

from shoestring.core.datasets import DatasetPart
from shoestring.core.interfaces import PARALLEL_READS, Store
from shoestring.data.formats.packed import Records, record_type
from shoestring.data.loading.block_order import window_blocks
from shoestring.data.loading.shuffle import Indices
from shoestring.data.storage.shard_reads import open_shard, read_range

HELD_WINDOWS = 2
"""Windows of decoded blocks that are held: the one that is read, and the one that is read ahead."""


class StreamedRows:
    """The encoded rows of a split in shards, as `EncodedRows`. At most two windows of blocks are in memory.

    Each block is compared with its checksum whenever it is read. Threads may share the rows.
    """

    def __init__(self, store: Store, parts: Sequence[DatasetPart]) -> None:
        """Raises NotInStore, DataError for damaged shards."""
        self._store, self._keys = store, [part.key for part in parts]
        self._pool = ThreadPoolExecutor(PARALLEL_READS, "stream")
        self._shards = list(self._pool.map(lambda part: open_shard(store, part), parts))
        self.dtype: np.dtype[Any] = record_type(self._shards[0].schema)
        rows = [block.rows for shard in self._shards for block in shard.blocks]
        self.block_starts: Indices = np.cumsum([0, *rows], dtype=np.int64)
        self._places = [
            (shard, number) for shard, index in enumerate(self._shards) for number in range(len(index.blocks))
        ]
        self._max_held = HELD_WINDOWS * window_blocks(self.block_starts, self.dtype.itemsize)
        self._held: OrderedDict[int, Future[Records]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return int(self.block_starts[-1])

    def take(self, positions: Indices) -> Records:
        """Return copies of the rows at `positions` (int64[B], any order, repeats allowed): records[B].

        The blocks that hold them are requested at once. Raises IndexError for a position outside the rows,
        DataError for a damaged block.
        """
        if len(positions) and not 0 <= positions.min() <= positions.max() < len(self):
            raise IndexError(
                f"positions from {positions.min()} to {positions.max()} are outside the {len(self)} rows"
            )
        owners = np.searchsorted(self.block_starts, positions, side="right") - 1
        taken = np.empty(len(positions), self.dtype)
        by_block = np.argsort(owners, kind="stable")
        blocks, firsts = np.unique(owners[by_block], return_index=True)
        stops = np.append(firsts[1:], len(positions))
        for group in range(0, len(blocks), self._max_held):
            chosen = slice(group, group + self._max_held)
            waiting = self._request(blocks[chosen].tolist())
            for block, first, stop, records in zip(
                blocks[chosen].tolist(), firsts[chosen], stops[chosen], waiting, strict=True
            ):
                places = by_block[first:stop]
                taken[places] = records.result().take(positions[places] - self.block_starts[block])
        return taken

    def scan(self, batch_rows: int) -> Iterator[Records]:
        """Yield all rows in order, at most `batch_rows` at a time, as views that must not be written to."""
        for block in range(len(self._places)):
            ahead = range(block, min(block + PARALLEL_READS, len(self._places), block + self._max_held))
            records = self._request(list(ahead))[0].result()
            for start in range(0, len(records), batch_rows):
                yield records[start : start + batch_rows]

    def _request(self, blocks: Sequence[int]) -> list[Future[Records]]:
        """Return the records of these blocks, which are read unless they are held."""
        with self._lock:
            found = []
            for block in blocks:
                if block not in self._held:
                    self._held[block] = self._pool.submit(self._read, block)
                self._held.move_to_end(block)
                found.append(self._held[block])
            while len(self._held) > self._max_held:
                self._held.popitem(last=False)
            return found

    def _read(self, block: int) -> Records:
        shard, number = self._places[block]
        index, place = self._shards[shard], self._shards[shard].blocks[number]
        stored = read_range(self._store, self._keys[shard], place.start, place.start + place.stored_bytes)
        return index.decode_records(number, stored)
