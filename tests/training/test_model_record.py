"""Sample ranges: adjacent ones are merged, and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoestring.training.model_record import SampleRange, add_sample_range


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20), st.integers(1, 10)), max_size=30))
def test_sample_ranges_hold_exactly_the_trained_samples(batches: list[tuple[int, int, int]]) -> None:
    ranges: tuple[SampleRange, ...] = ()
    for epoch, first, count in batches:
        ranges = add_sample_range(ranges, epoch, first, first + count)
    found = [(each.epoch, position) for each in ranges for position in range(each.start, each.stop)]
    assert found == [
        (epoch, position) for epoch, first, count in batches for position in range(first, first + count)
    ]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=20))
def test_contiguous_batches_are_one_range_an_epoch(sizes: list[int]) -> None:
    ranges: tuple[SampleRange, ...] = ()
    for epoch in (0, 1):
        first = 0
        for size in sizes:
            ranges = add_sample_range(ranges, epoch, first, first + size)
            first += size
    assert ranges == tuple(SampleRange(epoch=epoch, start=0, stop=sum(sizes)) for epoch in (0, 1))


def test_a_gap_starts_a_new_range() -> None:
    assert len(add_sample_range((SampleRange(epoch=0, start=0, stop=5),), 0, 6, 8)) == 2
