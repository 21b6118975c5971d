"""The training order: a permutation, independent of batches, different for every epoch and seed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from shoestring.core.errors import DataError
from shoestring.data.loading.shuffle import MAX_ROWS, Order, sample_indices

OLD = [140, 359, 317, 211, 68, 710]
both_orders = pytest.mark.parametrize("order", [1, 2])
seeds = st.integers(0, 2**32 - 1)
epochs = st.integers(0, 1000)


@both_orders
@given(n=st.one_of(st.integers(1, 70), st.integers(1, 5000)), seed=seeds, epoch=epochs)
def test_every_epoch_is_a_permutation(order: Order, n: int, seed: int, epoch: int) -> None:
    assert sorted(sample_indices(n, seed, epoch, 0, n, order)) == list(range(n))


def test_the_first_order_is_that_of_earlier_versions() -> None:
    assert sample_indices(1000, 7, 3, 500, 6, 1).tolist() == OLD
    assert sample_indices(1000, 7, 3, 500, 6).tolist() != OLD


@given(st.data(), st.integers(1, 2000), seeds, epochs)
def test_the_order_does_not_depend_on_how_it_is_split_into_batches(
    data: st.DataObject, n: int, seed: int, epoch: int
) -> None:
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, n), max_size=6))), n]
    pieces = [sample_indices(n, seed, epoch, first, last - first) for first, last in itertools.pairwise(cuts)]
    assert np.array_equal(np.concatenate(pieces), sample_indices(n, seed, epoch, 0, n))


@given(st.integers(50, 3000), seeds, epochs)
def test_another_epoch_or_seed_has_another_order(n: int, seed: int, epoch: int) -> None:
    here = sample_indices(n, seed, epoch, 0, n)
    assert not np.array_equal(here, sample_indices(n, seed, epoch + 1, 0, n))
    assert not np.array_equal(here, sample_indices(n, (seed + 1) % 2**32, epoch, 0, n))


@both_orders
@pytest.mark.parametrize("n", [997, 10_000, 65_536, 99_999])
def test_the_order_has_no_rank_correlation(order: Order, n: int) -> None:
    """The rank correlation of a random permutation has a standard deviation of n ** -0.5; five of them
    are rare."""
    for epoch in range(5):
        here, after = (sample_indices(n, 7, each, 0, n, order) for each in (epoch, epoch + 1))
        assert abs(spearmanr(here, np.arange(n)).statistic) < 5 / np.sqrt(n)
        assert abs(spearmanr(here[:-1], here[1:]).statistic) < 5 / np.sqrt(n)
        assert abs(spearmanr(here, after).statistic) < 5 / np.sqrt(n)


def test_neighbours_in_the_order_are_spread_over_the_table() -> None:
    """Any 1,000 neighbours fall into tenths of the table evenly: 100 each, within five standard
    deviations."""
    order = sample_indices(100_000, 3, 0, 0, 100_000).reshape(100, 1000)
    counts = np.array([np.bincount(window // 10_000, minlength=10) for window in order])
    assert abs(counts - 100).max() < 5 * np.sqrt(90)


def test_the_largest_epoch_has_rows_below_its_size() -> None:
    found = sample_indices(MAX_ROWS, 0, 0, MAX_ROWS - 50_000, 50_000)
    assert len(np.unique(found)) == 50_000 and 0 <= found.min() < found.max() < MAX_ROWS
    assert abs(found.mean() / MAX_ROWS - 0.5) < 5 / np.sqrt(12 * 50_000)
    with pytest.raises(DataError, match="4,294,705,153 rows, and at most 4,294,705,152 can be shuffled"):
        sample_indices(MAX_ROWS + 1, 0, 0, 0, 1)


def test_positions_beyond_the_epoch_are_refused() -> None:
    for start, count in ((-1, 2), (8, 3), (11, 0)):
        with pytest.raises(ValueError, match="not within an epoch of 10 rows"):
            sample_indices(10, 0, 0, start, count)
