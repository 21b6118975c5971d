"""Windows of what was seen: merged where they touch, and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoestring.training.model_record import SampleRange, add_sample_range


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20), st.integers(1, 10)), max_size=30))
def test_windows_hold_what_was_seen_and_nothing_else(batches: list[tuple[int, int, int]]) -> None:
    windows: tuple[SampleRange, ...] = ()
    for epoch, first, count in batches:
        windows = add_sample_range(windows, epoch, first, first + count)
    told = [(window.epoch, position) for window in windows for position in range(window.start, window.stop)]
    assert told == [
        (epoch, position) for epoch, first, count in batches for position in range(first, first + count)
    ]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=20))
def test_batches_in_a_row_are_one_window_an_epoch(sizes: list[int]) -> None:
    windows: tuple[SampleRange, ...] = ()
    for epoch in (0, 1):
        first = 0
        for size in sizes:
            windows = add_sample_range(windows, epoch, first, first + size)
            first += size
    assert windows == tuple(SampleRange(epoch=epoch, start=0, stop=sum(sizes)) for epoch in (0, 1))


def test_a_gap_begins_a_window() -> None:
    assert len(add_sample_range((SampleRange(epoch=0, start=0, stop=5),), 0, 6, 8)) == 2
