"""Batches by sample cursor: every row once an epoch, for any batch sizes and restarts."""

from __future__ import annotations

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from shoestring.core.errors import DataError
from shoestring.data.formats.readers import EncodedRows
from shoestring.data.loading.loader import PREFETCH_ROWS, Batch, Loader
from shoestring.data.loading.shuffle import SampleCursor, sample_indices


def numbered(rows: int, parts: int = 1) -> EncodedRows:
    """Rows that contain their row number."""
    records = np.array(list(zip(range(rows), strict=True)), dtype=[("id", "i4")])
    return EncodedRows(np.array_split(records, parts))


def ids(batch: Batch) -> list[int]:
    found: list[int] = batch.records["id"].tolist()
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
                assert 0 < len(batch.records) <= size
                assert batch.start + len(batch.records) <= rows
                assert batch.start == len(met.setdefault(batch.epoch, []))
                met[batch.epoch] += ids(batch)
            cursor = loader.cursor
    for epoch, found in met.items():
        assert found == sample_indices(rows, seed, epoch, 0, len(found)).tolist()
        assert epoch == max(met) or len(found) == rows


def test_an_epoch_ends_with_a_short_batch_and_no_batch_spans_two() -> None:
    with Loader(numbered(10), SampleCursor(seed=0)) as loader:
        shapes = [
            (batch.epoch, batch.start, len(batch.records))
            for batch in (loader.next_batch(4) for _ in range(4))
        ]
    assert shapes == [(0, 0, 4), (0, 4, 4), (0, 8, 2), (1, 0, 4)]


def test_a_batch_larger_than_the_table_holds_the_whole_table() -> None:
    with Loader(numbered(5), SampleCursor(seed=1)) as loader:
        assert sorted(ids(loader.next_batch(1000))) == [0, 1, 2, 3, 4]
        assert loader.next_batch(1000).epoch == 1


def test_the_wait_share_is_between_0_and_1() -> None:
    with Loader(numbered(3 * PREFETCH_ROWS), SampleCursor(seed=0)) as loader:
        for _ in range(20):
            loader.next_batch(5000)
            assert 0.0 <= loader.wait_share <= 1.0


def test_an_empty_table_and_a_foreign_cursor_are_refused() -> None:
    with pytest.raises(DataError, match="no rows to train on"):
        Loader(numbered(0), SampleCursor(seed=0))
    for position in (-1, 6):
        with pytest.raises(ValueError, match="outside the data set of 5 rows"):
            Loader(numbered(5), SampleCursor(seed=0, position=position))


def test_an_error_in_the_background_thread_reaches_the_trainer() -> None:
    class Broken(EncodedRows):
        def take(self, positions: np.ndarray) -> np.ndarray:
            raise OSError("the disk is gone")

    with (
        Loader(Broken([np.zeros(5, dtype=[("id", "i4")])]), SampleCursor(seed=0)) as loader,
        pytest.raises(OSError, match="the disk is gone"),
    ):
        loader.next_batch(1)
