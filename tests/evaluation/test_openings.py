"""Evaluations on one sealed test split are counted over all runs, each run once, also when several count at
the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from encoded_datasets import dataset, trained
from test_evaluate import CLOCK, ROWS, evaluation_request, quiet, true_predictor

from shoestring.backends.folder_store import FolderStore
from shoestring.core import store_layout
from shoestring.core.datasets import SplitRule
from shoestring.core.interfaces import Store
from shoestring.core.text import ordinal
from shoestring.data.split_settings import Split
from shoestring.data.storage.blobs import load_manifest
from shoestring.data.transforms.split import unit_name
from shoestring.evaluation.evaluate import evaluate
from shoestring.evaluation.openings import count_opening, sealed_split

SPLIT = "a" * 64


def test_each_run_counts_once_and_another_split_has_its_own_count(tmp_path: Path) -> None:
    store, runs = FolderStore(tmp_path), ("one", "two", "one", "three", "two")
    assert [count_opening(store, SPLIT, run) for run in runs] == [1, 2, 1, 3, 2]
    assert count_opening(store, "b" * 64, "one") == 1


def test_runs_that_count_at_the_same_time_get_different_numbers(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        found = threads.map(lambda run: count_opening(FolderStore(tmp_path), SPLIT, f"run-{run}"), range(40))
    assert sorted(found) == list(range(1, 41))


class Racing(FolderStore):
    """A store in which another run counts after this one has looked."""

    def list(self, prefix: str) -> Iterator[str]:
        found = list(super().list(prefix))
        count_opening(FolderStore(self.root), SPLIT, "another")
        yield from found


def test_a_number_that_another_run_took_in_between_is_not_used_again(tmp_path: Path) -> None:
    assert count_opening(Racing(tmp_path), SPLIT, "one") == 2
    assert list(FolderStore(tmp_path).list(store_layout.test_openings(SPLIT)))[:2] == [
        store_layout.test_opening(SPLIT, 1),
        store_layout.test_opening(SPLIT, 2),
    ]


def identity(store: Store, key: str, split: Split, seed: int = 0) -> str:
    return sealed_split(store, load_manifest(store, key), split, seed)


def test_the_count_goes_by_data_split_and_seed_and_not_by_features(tmp_path: Path) -> None:
    store, key = dataset(tmp_path, "binary", ROWS)
    first = identity(store, key, Split())
    assert identity(store, key, Split(by=("day",))) != first
    assert identity(store, key, Split(train=0.7, test=0.2)) != first
    assert identity(store, key, Split(), seed=1) != first
    manifest = load_manifest(store, key)
    other_features = manifest.model_copy(update={"name": "other", "encoding": None})
    assert sealed_split(store, other_features, Split(), 0) == first


def test_the_count_goes_by_the_rule_of_the_split_and_the_columns_that_it_ignored(tmp_path: Path) -> None:
    store, key = dataset(tmp_path, "binary", ROWS)
    earlier = load_manifest(store, key)
    assert earlier.split_unit == "rows"

    def of(rule: SplitRule, by: tuple[str, ...] = ()) -> str:
        return sealed_split(store, earlier.model_copy(update={"split_rule": rule}), Split(by=by), 0)

    hashed = {
        sealed_split(store, earlier, Split(), 0),
        of(SplitRule(unit="rows", ignored=("y",))),
        of(SplitRule(unit="distinct rows", ignored=("y",))),
        of(SplitRule(unit="distinct rows", ignored=("leak", "y"))),
    }
    assert len(hashed) == 4
    by_day = sealed_split(store, earlier, Split(by=("day",)), 0)
    assert of(SplitRule(unit="groups"), ("day",)) == by_day


def test_an_evaluation_says_how_many_the_test_rows_have_had(tmp_path: Path) -> None:
    store, key = dataset(tmp_path, "binary", ROWS, groups=30)
    trained(store, key, 0.6)
    found = []
    for run in ("one", "two", "two"):
        days = Split(by=("year", "month", "Day"))
        request = evaluation_request(key, true_predictor("binary"), run_id=run, split=days)
        results = evaluate(request, store, CLOCK, quiet)
        assert results.opening is not None
        found.append(results.opening.sentence)
    on_these = f"evaluation on these {results.unit_count} days"
    assert found == [f"the 1st {on_these}", f"the 2nd {on_these}", f"the 2nd {on_these}"]


@pytest.mark.parametrize(
    ("by", "unit"),
    [((), "distinct rows"), (("customer",), "groups"), (("date",), "days"), (("day", "hour"), "groups")],
)
def test_the_unit_is_what_the_split_keeps_together(by: tuple[str, ...], unit: str) -> None:
    # Earlier versions recorded no rule, which is read as that of rows.
    assert unit_name(Split(by=by), "rows" if by else "distinct rows") == unit


def test_ordinals() -> None:
    numbers = (1, 2, 3, 4, 11, 12, 13, 21, 101, 111, 1002)
    assert " ".join(map(ordinal, numbers)) == "1st 2nd 3rd 4th 11th 12th 13th 21st 101st 111th 1,002nd"
