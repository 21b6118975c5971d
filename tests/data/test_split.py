from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoestring.data.recipe import Split
from shoestring.data.transforms.split import Indices, _mix, assign_splits

BY_DAY = Split(by=("month", "day"))


def places(table: pa.Table, split: Split, seed: int) -> Indices:
    return assign_splits(table, split, seed, table.column_names).split_indices


def days(count: int, per_day: int = 3) -> pa.Table:
    return pa.table(
        {
            "month": np.repeat(np.arange(count) // 28, per_day),
            "day": np.repeat(np.arange(count) % 28, per_day),
        }
    )


@given(seed=st.integers(0, 2**32 - 1), cut=st.integers(0, 300))
def test_a_group_is_in_one_split_for_any_order_and_batches(seed: int, cut: int) -> None:
    table = days(100)
    whole = places(table, BY_DAY, seed)
    assert (whole.reshape(-1, 3) == whole[::3, None]).all()
    shuffled = np.random.default_rng(seed).permutation(300)
    assert np.array_equal(places(table.take(shuffled), BY_DAY, seed), whole[shuffled])
    assert np.array_equal(
        np.concatenate([places(table[:cut], BY_DAY, seed), places(table[cut:], BY_DAY, seed)]), whole
    )


@given(seed=st.integers(0, 2**32 - 1), cut=st.integers(0, 500))
def test_a_row_keeps_its_split_when_rows_are_inserted_before_it_or_batches_change(
    seed: int, cut: int
) -> None:
    table = people(500)
    whole = places(table, Split(), seed)
    parts = [places(table[:cut], Split(), seed), places(table[cut:], Split(), seed)]
    assert np.array_equal(np.concatenate(parts), whole)
    inserted = pa.concat_tables([table[:cut], people(40, 1000), table[cut:]])
    found = places(inserted, Split(), seed)
    assert np.array_equal(np.concatenate([found[:cut], found[cut + 40 :]]), whole)


def people(count: int, first: int = 0) -> pa.Table:
    numbers = list(range(first, first + count))
    return pa.table(
        {
            "name": [None if number % 50 == 0 else f"p{number}" for number in numbers],
            "age": [number % 90 for number in numbers],
            "height": [None if number % 7 == 0 else 150 + number % 53 / 2 for number in numbers],
            "member": [number % 2 == 0 for number in numbers],
            "joined": pa.array([number * 86_400_000 for number in numbers], pa.timestamp("ms")),
        }
    )


def test_a_row_keeps_its_split_when_a_column_gets_a_wider_type_or_another_place() -> None:
    table = people(300)
    whole = places(table, Split(), 0)
    wider = table.set_column(1, "age", table["age"].cast(pa.float64()))
    assert np.array_equal(places(wider, Split(), 0), whole)
    assert np.array_equal(places(table.select(table.column_names[::-1]), Split(), 0), whole)


def test_a_group_keeps_its_split_when_whole_numbers_become_floats() -> None:
    table = days(100)
    wider = table.set_column(0, "month", table["month"].cast(pa.float64()))
    assert np.array_equal(places(wider, BY_DAY, 3), places(table, BY_DAY, 3))


def test_equal_rows_share_a_split_and_values_in_other_columns_make_another_row() -> None:
    twice = pa.concat_tables([people(200), people(200)])
    found = places(twice, Split(), 3)
    assert np.array_equal(found[:200], found[200:])
    swapped = pa.table({"a": np.arange(400), "b": np.arange(400)[::-1]})
    half = places(swapped, Split(train=0.5, val=0.25, test=0.25), 0)
    assert not np.array_equal(half, half[::-1])


@pytest.mark.parametrize(
    "split", [Split(train=0.6, val=0.3, test=0.1), Split(by=("month", "day"), train=0.6, val=0.3, test=0.1)]
)
def test_the_shares_hold_on_average_and_another_seed_gives_another_split(split: Split) -> None:
    table = days(20_000, 1).append_column("row", pa.array(np.arange(20_000)))
    found = places(table, split, 1)
    shares = np.bincount(found, minlength=3) / len(found)
    assert shares == pytest.approx([0.6, 0.3, 0.1], abs=4 * np.sqrt(0.25 / 20_000))
    assert 0.3 < np.mean(found == places(table, split, 2)) < 0.6


def test_a_group_has_one_id_and_other_groups_have_others() -> None:
    groups = assign_splits(days(365), BY_DAY, 0, ("month", "day")).groups
    assert groups is not None
    assert (groups.reshape(-1, 3) == groups[::3, None]).all()
    assert len(np.unique(groups)) == 365
    assert assign_splits(days(3), Split(), 0, ("month", "day")).groups is None


def test_missing_group_values_form_a_group() -> None:
    table = pa.table({"month": [None, None, 1], "day": [1, 1, None]})
    groups = assign_splits(table, BY_DAY, 0, ("month", "day")).groups
    assert groups is not None
    assert groups[0] == groups[1] != groups[2]


def test_row_hashes_are_splitmix64() -> None:
    # The first outputs for seed 1234567 in Vigna's splitmix64.c.
    assert _mix(np.arange(3, dtype=np.uint64), np.uint64(1234567)).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]
