"""Shards: rows read from the store block by block, in a shuffled order of blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from shoestring.backends.folder_store import FolderStore
from shoestring.core.datasets import DatasetPart, Encoding
from shoestring.core.errors import DataError
from shoestring.core.interfaces import Store
from shoestring.core.types import Format
from shoestring.data.formats import shards
from shoestring.data.formats.readers import write_table
from shoestring.data.loading.block_order import BlockOrder
from shoestring.data.loading.loader import Loader
from shoestring.data.loading.samples import Collator, SampleReader
from shoestring.data.loading.selection import choose_samples
from shoestring.data.loading.shuffle import SampleCursor
from shoestring.data.loading.streamed_rows import StreamedRows
from shoestring.data.storage.blobs import put_blob

ROWS, WIDTH = 1000, 20_000
"""Of 20 kB: 52 rows are a block."""


class CountingStore(FolderStore):
    """Counts the bytes that are read in ranges, and refuses to return whole objects."""

    read_bytes, reads = 0, 0

    def fetch(self, key: str) -> Path:
        assert not key.startswith("blobs/"), f"{key} is fetched as a whole"
        return super().fetch(key)

    def read(self, key: str, start: int, stop: int) -> bytes:
        with (self.root / key).open("rb") as file:
            file.seek(start)
            found = file.read(stop - start)
        self.read_bytes, self.reads = self.read_bytes + len(found), self.reads + 1
        return found


def stored_shards(folder: Path, rows: int = ROWS, parts: int = 3) -> tuple[CountingStore, list[DatasetPart]]:
    store, found = CountingStore(folder / "store"), list[DatasetPart]()
    noise = np.random.default_rng(0).integers(0, 256, (rows, WIDTH), np.uint8)
    for numbers in np.array_split(np.arange(rows), parts):
        pixels = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(WIDTH), len(numbers), [None, pa.py_buffer(noise[numbers].tobytes())]
        )
        path = folder / "shard"
        write_table(pa.table({"y": numbers.astype(np.float64), "pixels": pixels}), Format.SHARDS, path)
        sha256 = put_blob(store, path)
        found.append(DatasetPart(sha256=sha256, rows=len(numbers), size_bytes=path.stat().st_size))
    return store, found


def streamed(store: Store, parts: list[DatasetPart]) -> SampleReader:
    rows = StreamedRows(store, parts)
    return SampleReader(rows, Collator(Encoding(features=(), task="regression"), rows.dtype))


def test_streamed_rows_are_the_stored_ones_and_only_their_blocks_are_read(tmp_path: Path) -> None:
    store, parts = stored_shards(tmp_path)
    rows = StreamedRows(store, parts)
    opened = store.read_bytes
    assert opened < 4 * shards.FIRST_READ_BYTES and len(rows) == ROWS
    positions = np.array([7, 7, 3, 40])
    assert rows.take(positions)["y"].tolist() == [7, 7, 3, 40]
    assert (store.reads, store.read_bytes - opened < 2 * shards.BLOCK_BYTES) == (4, True)
    assert np.concatenate([each["y"] for each in rows.scan(13)]).tolist() == list(range(ROWS))
    order = np.random.default_rng(1).permutation(ROWS)
    assert rows.take(order)["y"].tolist() == order.tolist()
    with pytest.raises(IndexError):
        rows.take(np.array([ROWS]))


def test_a_changed_byte_of_a_shard_is_found_before_its_rows_are_used(tmp_path: Path) -> None:
    store, (part,) = stored_shards(tmp_path, 100, 1)
    path, chance = store.root / part.key, np.random.default_rng(2)
    whole = path.read_bytes()
    places = [*range(40), *chance.integers(0, len(whole), 60).tolist()]
    for place in places:
        changed = bytearray(whole)
        changed[place] ^= int(chance.integers(1, 256))
        path.write_bytes(changed)
        with pytest.raises(DataError, match="damaged"):
            list(StreamedRows(store, [part]).scan(1000))
    path.write_bytes(whole[:-1])
    with pytest.raises(DataError, match="damaged"):
        list(StreamedRows(store, [part]).scan(1000))


@examples(80)
@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(sum),
    window=st.integers(1, 5),
    seed=st.integers(0, 50),
    step=st.integers(1, 4),
)
def test_an_epoch_of_blocks_holds_every_row_once_and_windows_one_after_another(
    sizes: list[int], window: int, seed: int, step: int
) -> None:
    starts = np.cumsum([0, *sizes])
    order, rows = BlockOrder(starts, window), int(starts[-1])
    cursor = SampleCursor(seed=seed, order=3)
    found = order.positions(cursor, 1, 0, rows)
    assert sorted(found.tolist()) == list(range(rows))
    begin = seed % rows
    count = -((begin - rows) // step)
    assert order.positions(cursor, 1, begin, count, step).tolist() == found[begin::step].tolist()
    blocks = np.searchsorted(starts, found, side="right") - 1
    # Once the rows of a later window come, no block of an earlier one does.
    firsts = {block: int(np.flatnonzero(blocks == block)[0]) for block in set(blocks.tolist())}
    lasts = {block: int(np.flatnonzero(blocks == block)[-1]) for block in firsts}
    for block, last in lasts.items():
        assert sum(firsts[other] < last < lasts[other] for other in firsts if other != block) < window


def test_a_training_on_shards_meets_every_row_once_over_resumes_batch_sizes_and_ranks(tmp_path: Path) -> None:
    store, parts = stored_shards(tmp_path)
    cursor, met = SampleCursor(seed=5, order=3), list[int]()
    for batch_rows, ranks, threads in ((100, 1, 2), (64, 3, 1), (333, 2, 4), (1000, 1, 1)):
        loaders = [
            Loader(streamed(store, parts), cursor, rank=rank, ranks=ranks, threads=threads)
            for rank in range(ranks)
        ]
        for _ in range(2):
            if (start := cursor.position) == ROWS:
                break
            batches = [loader.next_batch(batch_rows) for loader in loaders]
            ids = np.empty(batches[0].stop - start, np.int64)
            for rank, batch in enumerate(batches):
                ids[(rank - start) % ranks :: ranks] = batch.samples["target"]
            met += ids.tolist()
            cursor = loaders[0].cursor
        for loader in loaders:
            loader.__exit__(None, None, None)
    assert sorted(met) == list(range(ROWS))
    assert met == streamed(store, parts).positions(SampleCursor(seed=5, order=3), 0, 0, ROWS).tolist()


def test_a_share_of_streamed_rows_reads_the_blocks_of_that_share_alone(tmp_path: Path) -> None:
    store, parts = stored_shards(tmp_path)
    rows = streamed(store, parts)
    chosen = choose_samples(rows, 3, 0.1)
    assert len(chosen) == 100 and set(chosen.tolist()) < set(choose_samples(rows, 3, 0.3).tolist())
    store.reads = 0
    part = rows.subset(chosen)
    begin = SampleCursor(seed=0, order=part.order)
    assert sorted(part.take(part.positions(begin, 0, 0, 100))["target"].tolist()) == chosen.tolist()
    assert store.reads <= 4


def test_shuffle_quality_is_the_share_of_the_spread_that_a_uniform_shuffle_has() -> None:
    starts = np.arange(0, 1_000_001, 1000)
    by_window = [BlockOrder(starts, window).quality(0) for window in (1, 8, 64, 1000)]
    assert by_window[0] < 0.005 and by_window[-1] == pytest.approx(1, abs=0.2)
    assert by_window == sorted(by_window)
    # Batches of 1,024 rows that come from 64 blocks vary as those of about 64 rows.
    assert by_window[2] == pytest.approx(64 / 1024, rel=0.4)
