"""Batches by sample cursor: every row once an epoch, for any batch sizes and restarts."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from shoestring.core.datasets import Encoding, StoredField
from shoestring.core.errors import DataError
from shoestring.data.formats.readers import EncodedRows
from shoestring.data.loading.loader import PREFETCH_ROWS, Batch, Loader
from shoestring.data.loading.samples import Array, Collator, Positions, SampleReader, Samples
from shoestring.data.loading.shuffle import SampleCursor, sample_indices

RECORD = np.dtype([("y", "f4")])
COLLATOR = Collator(Encoding(features=(), task="regression"), RECORD)


def numbered(rows: int, parts: int = 1) -> SampleReader:
    """Samples whose target is their row number."""
    records = np.array(list(zip(range(rows), strict=True)), RECORD)
    return SampleReader(EncodedRows(np.array_split(records, parts)), COLLATOR)


def ids(batch: Batch) -> list[int]:
    found: list[int] = batch.samples["target"].astype(int).tolist()
    return found


@given(
    rows=st.one_of(
        st.integers(1, 40),
        st.sampled_from([PREFETCH_ROWS - 1, PREFETCH_ROWS, PREFETCH_ROWS + 1, 2 * PREFETCH_ROWS + 7]),
    ),
    starts=st.lists(
        st.lists(st.sampled_from([1, 3, 16, 1000, PREFETCH_ROWS, 50_000]), max_size=8), min_size=1, max_size=8
    ),
    seed=st.integers(0, 100),
)
@examples(60)
def test_every_row_is_loaded_once_an_epoch_over_batch_sizes_and_resumes(
    rows: int, starts: list[list[int]], seed: int
) -> None:
    table, cursor, met = numbered(rows, min(3, rows)), SampleCursor(seed=seed), {0: list[int]()}
    for sizes in starts:
        with Loader(table, cursor) as loader:
            for size in sizes:
                batch = loader.next_batch(size)
                assert 0 < len(batch.samples) <= size
                assert batch.start + len(batch.samples) <= rows
                assert batch.start == len(met.setdefault(batch.epoch, []))
                met[batch.epoch] += ids(batch)
            cursor = loader.cursor
    for epoch, found in met.items():
        assert found == sample_indices(rows, seed, epoch, 0, len(found)).tolist()
        assert epoch == max(met) or len(found) == rows


def test_an_epoch_ends_with_a_short_batch_and_no_batch_spans_two() -> None:
    with Loader(numbered(10), SampleCursor(seed=0)) as loader:
        shapes = [
            (batch.epoch, batch.start, len(batch.samples))
            for batch in (loader.next_batch(4) for _ in range(4))
        ]
    assert shapes == [(0, 0, 4), (0, 4, 4), (0, 8, 2), (1, 0, 4)]


@given(moves=st.lists(st.tuples(st.booleans(), st.integers(1, 25)), max_size=20))
def test_rows_that_are_passed_over_are_those_that_would_have_been_read(
    moves: list[tuple[bool, int]],
) -> None:
    """A learner that holds all rows still moves the position of the training."""
    with (
        Loader(numbered(20), SampleCursor(seed=0)) as one,
        Loader(numbered(20), SampleCursor(seed=0)) as whole,
    ):
        for reads, rows in moves:
            expected = whole.next_batch(rows)
            if reads:
                found = one.next_batch(rows)
                assert (found.epoch, found.start, ids(found)) == (
                    expected.epoch,
                    expected.start,
                    ids(expected),
                )
            else:
                one.pass_over(rows)
            assert one.cursor == whole.cursor


def test_a_batch_larger_than_the_table_holds_the_whole_table() -> None:
    with Loader(numbered(5), SampleCursor(seed=1)) as loader:
        assert sorted(ids(loader.next_batch(1000))) == [0, 1, 2, 3, 4]
        assert loader.next_batch(1000).epoch == 1


def test_the_wait_share_is_between_0_and_1() -> None:
    with Loader(numbered(3 * PREFETCH_ROWS), SampleCursor(seed=0)) as loader:
        for _ in range(20):
            loader.next_batch(5000)
            assert 0.0 <= loader.wait_share <= 1.0


@given(
    rows=st.one_of(st.integers(1, 40), st.integers(100, 300)),
    starts=st.lists(
        st.tuples(
            st.integers(1, 5),
            st.integers(1, 3),
            st.integers(1, 400),
            st.lists(st.integers(1, 90), max_size=9),
        ),
        min_size=1,
        max_size=5,
    ),
)
@examples(40)
def test_the_global_order_does_not_depend_on_ranks_threads_and_prefetched_bytes(
    rows: int, starts: list[tuple[int, int, int, list[int]]]
) -> None:
    table, cursor, met = numbered(rows), SampleCursor(seed=5), {0: list[int]()}
    for ranks, threads, prefetch_bytes, sizes in starts:
        with ExitStack() as stack:
            loaders = [
                stack.enter_context(
                    Loader(
                        table, cursor, rank=rank, ranks=ranks, threads=threads, prefetch_bytes=prefetch_bytes
                    )
                )
                for rank in range(ranks)
            ]
            for size in sizes:
                batches = [loader.next_batch(size) for loader in loaders]
                epoch, start, stop = batches[0].epoch, batches[0].start, batches[0].stop
                assert {(each.epoch, each.start, each.stop) for each in batches} == {(epoch, start, stop)}
                own = [iter(ids(batch)) for batch in batches]
                met.setdefault(epoch, []).extend(next(own[at % ranks]) for at in range(start, stop))
                assert [next(each, None) for each in own] == [None] * ranks
            (cursor,) = {loader.cursor for loader in loaders}
    for epoch, found in met.items():
        assert found == sample_indices(rows, 5, epoch, 0, len(found)).tolist()
        assert epoch == max(met) or len(found) == rows


class WatchedRows(SampleReader):
    """Rows that count how many were read, and that take time to read and to decode."""

    read_s = decode_s = 0.0
    read_rows = 0

    def has_read(self, rows: int) -> bool:
        return self.read_rows >= rows

    def read(self, positions: Positions) -> Array:
        time.sleep(self.read_s)
        self.read_rows += len(positions)
        return super().read(positions)

    def collate(self, records: Array) -> Samples:
        time.sleep(self.decode_s)
        return super().collate(records)


def watched(rows: int) -> WatchedRows:
    records = np.array(list(zip(range(rows), strict=True)), RECORD)
    return WatchedRows(EncodedRows([records]), COLLATOR)


def test_a_batch_is_a_view_of_the_rows_gathered_ahead_also_where_it_does_not_divide_a_block() -> None:
    images = np.zeros(5000, np.dtype([("y", "f4"), ("_image", "u1", (64,))]))
    images["y"] = np.arange(5000)
    field = StoredField(name="_image", dtype="uint8", shape=(1, 8, 8), use="image")
    encoding = Encoding(features=(), fields=(field,), task="regression")
    rows = SampleReader(EncodedRows([images]), Collator(encoding, images.dtype))
    with Loader(rows, SampleCursor(seed=0), prefetch_bytes=3 * 100 * images.dtype.itemsize) as loader:
        # The first blocks, of 100 rows, are gathered before a batch of 30 is asked for.
        batches = [loader.next_batch(30) for _ in range(100)]
    assert not any(batch.samples["image"].flags.owndata for batch in batches[10:])
    assert len({number for batch in batches for number in ids(batch)}) == 3000


def test_the_permutation_of_several_blocks_is_computed_at_once() -> None:
    calls = list[int]()

    class Counted(SampleReader):
        def positions(
            self, cursor: SampleCursor, epoch: int, start: int, count: int, step: int = 1
        ) -> Positions:
            calls.append(count)
            return super().positions(cursor, epoch, start, count, step)

    rows = Counted(EncodedRows([np.zeros(5000, RECORD)]), COLLATOR)
    with Loader(rows, SampleCursor(seed=0), prefetch_bytes=3 * 100 * RECORD.itemsize) as loader:
        for _ in range(40):
            loader.next_batch(100)
    assert calls == [5000]


def test_dropped_blocks_leave_their_memory_to_the_next_ones() -> None:
    program = """
import resource, numpy as np
from test_loader import EncodedRows, Collator, Encoding, StoredField, Loader, SampleCursor, SampleReader
rows = np.ones(60_000, np.dtype([("y", "f4"), ("_image", "u1", (784,))]))
field = StoredField(name="_image", dtype="uint8", shape=(1, 28, 28), use="image")
encoding = Encoding(features=(), fields=(field,), task="regression")
reader = SampleReader(EncodedRows([rows]), Collator(encoding, rows.dtype))
with Loader(reader, SampleCursor(seed=0)) as loader:
    for epoch in range(20):
        if epoch == 5:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(60):
            loader.next_batch(1000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    found = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": f"{Path(__file__).parent}:{Path(__file__).parents[1]}"},
    )
    # 15 epochs of 47 MB are 172,000 pages of 4 KB; about 10,000 of them were mapped again.
    assert int(found.stdout) < 3_000


def until(condition: Callable[[int], bool], value: int) -> None:
    ends_s = time.monotonic() + 10
    while not condition(value):
        assert time.monotonic() < ends_s
        time.sleep(0.001)


def test_rows_ahead_of_the_trainer_are_bounded_in_bytes_and_given_back_when_it_never_waits() -> None:
    rows, taken, in_a_row = watched(5000), 0, 0
    rows.read_s = 0.005
    with Loader(rows, SampleCursor(seed=0), prefetch_bytes=3 * 10 * RECORD.itemsize) as loader:
        while taken < 100:
            taken += len(loader.next_batch(10).samples)
            assert rows.read_rows <= taken + 30
        until(rows.has_read, taken + 30)
        rows.read_s = 0.0
        # A busy machine may make the trainer wait for a block, and then one more is held for a while.
        while in_a_row < 5:
            until(rows.has_read, taken + 20)
            time.sleep(0.005)
            in_a_row = in_a_row + 1 if rows.read_rows == taken + 20 else 0
            taken += len(loader.next_batch(10).samples)
            assert taken < 4500


@pytest.mark.parametrize("bottleneck", ["read", "decode", "compute"])
def test_the_bottleneck_is_where_the_trainer_loses_its_time(bottleneck: str) -> None:
    rows = watched(1000)
    rows.read_s, rows.decode_s = 0.01 * (bottleneck == "read"), 0.01 * (bottleneck == "decode")
    with Loader(rows, SampleCursor(seed=0), prefetch_bytes=3 * 50 * RECORD.itemsize) as loader:
        before = loader.times
        for _ in range(10):
            loader.next_batch(50)
            time.sleep(0.01 * (bottleneck == "compute"))
        shares = loader.times.shares_since(before)
    assert shares.bottleneck == bottleneck
    assert shares.read + shares.decode + shares.compute == pytest.approx(1)
    assert getattr(shares, bottleneck) > 0.5


def test_a_rank_outside_its_group_is_refused() -> None:
    with pytest.raises(ValueError, match="no rank 2 of 2: ranks are 0 to 1"):
        Loader(numbered(5), SampleCursor(seed=0), rank=2, ranks=2)


def test_an_empty_table_and_a_foreign_cursor_are_refused() -> None:
    with pytest.raises(DataError, match="no rows to train on"):
        Loader(numbered(0), SampleCursor(seed=0))
    for position in (-1, 6):
        with pytest.raises(ValueError, match="outside the data set of 5 rows"):
            Loader(numbered(5), SampleCursor(seed=0, position=position))


def test_an_error_in_the_background_thread_reaches_the_trainer() -> None:
    class Broken(SampleReader):
        def read(self, positions: np.ndarray) -> np.ndarray:
            raise OSError("the disk is gone")

    with (
        Loader(Broken(EncodedRows([np.zeros(5, RECORD)]), COLLATOR), SampleCursor(seed=0)) as loader,
        pytest.raises(OSError, match="the disk is gone"),
    ):
        loader.next_batch(1)
