"""Selections: the rows of an epoch, chosen once and stored."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from small_dataset import reader, table

from shoestring.backends.folder_store import FolderStore
from shoestring.core.errors import DataError
from shoestring.data.loading.loader import Loader
from shoestring.data.loading.selection import choose_share, read_selection, store_selection
from shoestring.data.loading.shuffle import SampleCursor


def test_a_larger_share_holds_the_rows_of_a_smaller_one() -> None:
    shares = [choose_share(997, 3, share) for share in (0.0001, 0.1, 0.5, 1)]
    assert [len(each) for each in shares] == [1, 100, 498, 997]
    for small, large in itertools.pairwise(shares):
        assert {*small.tolist()} < {*large.tolist()}
        assert np.array_equal(large, np.unique(large))
    assert not np.array_equal(choose_share(997, 4, 0.1), shares[1])


def test_a_stored_selection_is_read_again_and_fits_its_split_only(tmp_path: Path) -> None:
    store, chosen = FolderStore(tmp_path), choose_share(1000, 0, 0.2)
    sha256 = store_selection(store, chosen)
    assert np.array_equal(read_selection(store, sha256, 1000), chosen)
    with pytest.raises(DataError, match="of another split: it names rows beyond 900"):
        read_selection(store, sha256, 900)


def test_an_epoch_over_a_selection_has_each_of_its_rows_once() -> None:
    rows, chosen = table(500, 0), choose_share(500, 0, 0.3)
    subset = reader(rows).subset(chosen)
    assert len(subset) == 150
    with Loader(subset, SampleCursor(seed=0)) as loader:
        met = np.concatenate([loader.next_batch(40).samples["number"][:, 0] for _ in range(4)])
        assert loader.next_batch(40).epoch == 1
    assert sorted(met) == sorted(rows["number"][chosen])
    again = np.concatenate([each["number"][:, 0] for each in subset.scan(64)])
    assert np.array_equal(again, rows["number"][chosen])
    assert np.array_equal(
        subset.subset(np.array([7, 3])).take(np.array([1]))["target"], rows["y"][chosen[[3]]]
    )
