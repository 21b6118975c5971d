from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from image_sources import image_recipe

from shoestring.core.datasets import SplitRule
from shoestring.data.recipe import Recipe
from shoestring.data.split_settings import Split
from shoestring.data.transforms.split import (
    MIN_DISTINCT_ROWS,
    SplitAssignment,
    assign_splits,
    assign_table,
    count_repeats,
)
from shoestring.data.transforms.splits.given_split import Indices
from shoestring.data.transforms.splits.row_hashes import mix

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


def test_missing_group_values_form_a_group() -> None:
    table = pa.table({"month": [None, None, 1], "day": [1, 1, None]})
    groups = assign_splits(table, BY_DAY, 0, ("month", "day")).groups
    assert groups is not None
    assert groups[0] == groups[1] != groups[2]


def answers(rows: int, distinct: int, seed: int = 0) -> pa.Table:
    """Return rows with few distinct answers, a target, and a leak that copies it."""
    random = np.random.default_rng(seed)
    sheet, y = random.integers(0, distinct, rows), random.integers(0, 2, rows)
    return pa.table({"first": sheet % 7, "second": [f"s{each // 7}" for each in sheet], "y": y, "leak": -y})


def assigned(table: pa.Table, **fields: object) -> tuple[SplitRule, SplitAssignment]:
    recipe = {"name": "a", "source": {"t": {"path": "t.csv"}}, "target": {"column": "y"}, "leaks": ["leak"]}
    return assign_table(table, Recipe.model_validate(recipe | fields), table.column_names)


@pytest.mark.parametrize(("rows", "distinct"), [(2_000, 40), (6_000, 2_000), (500, 10**9)])
def test_neither_the_target_nor_leaks_nor_the_choice_of_features_move_a_row(rows: int, distinct: int) -> None:
    table = answers(rows, distinct)
    rule, found = assigned(table)
    assert rule.ignored == ("leak", "y")
    other = table.set_column(2, "y", pa.array(np.arange(rows))).set_column(3, "leak", pa.array(["x"] * rows))
    for again in (assigned(other), assigned(table, numeric=["first"])):
        assert again[0] == rule and np.array_equal(again[1].split_indices, found.split_indices)


def test_an_image_is_with_its_copies_whatever_their_labels_and_names(tmp_path: Path) -> None:
    contents = [bytes([number % 50]) for number in range(500)]
    names = [f"{number}.png" for number in range(500)]
    table = pa.table({"_image": contents, "path": names, "label": np.arange(500)})
    rule, found = assign_table(table, image_recipe(tmp_path), table.column_names)
    assert rule == SplitRule(unit="distinct rows", ignored=("label", "path"))
    assert found.groups is not None and len(np.unique(found.groups)) == 50
    assert np.array_equal(found.split_indices, np.tile(found.split_indices[:50], 10))


def test_of_two_distinct_rows_each_split_gets_its_share() -> None:
    rule, found = assigned(answers(20_000, 2))
    assert rule.unit == "rows" and found.groups is None
    shares = np.bincount(found.split_indices, minlength=3) / 20_000
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=4 * np.sqrt(0.25 / 20_000))


def test_from_a_thousand_distinct_rows_on_equal_rows_are_one_unit() -> None:
    numbers = np.tile(np.arange(MIN_DISTINCT_ROWS), 3)
    few = pa.table({"a": numbers % (MIN_DISTINCT_ROWS - 1), "y": np.arange(len(numbers))})
    many = few.set_column(0, "a", pa.array(numbers))
    (few_rule, of_few), (many_rule, of_many) = assigned(few), assigned(many)
    assert (few_rule.unit, many_rule.unit) == ("rows", "distinct rows")
    assert of_few.groups is None and of_many.groups is not None
    assert len(np.unique(of_many.groups)) == MIN_DISTINCT_ROWS
    copies = of_many.split_indices.reshape(3, -1)
    assert (copies == copies[0]).all()
    # The first of equal rows is where it was with one distinct row less. Its copies were not.
    first = slice(0, MIN_DISTINCT_ROWS - 1)
    assert np.array_equal(of_few.split_indices[first], of_many.split_indices[first])
    assert 0.5 < np.mean(of_few.split_indices == of_many.split_indices) < 0.9


@given(seed=st.integers(0, 99), cuts=st.lists(st.integers(0, 900), min_size=2, max_size=2).map(sorted))
def test_appended_rows_move_no_row_whatever_parts_hold_them(seed: int, cuts: list[int]) -> None:
    table = answers(900, 30, seed)
    columns = ["first", "second"]
    _, whole = assigned(table)
    assert np.array_equal(assigned(table[: cuts[1]])[1].split_indices, whole.split_indices[: cuts[1]])
    parts = [table[: cuts[0]], table[cuts[0] : cuts[1]], table[cuts[1] :]]
    repeats = count_repeats(parts, 0, columns)
    assert repeats is not None
    found = [
        assign_splits(part, Split(), 0, columns, repeats.positions(index)).split_indices
        for index, part in enumerate(parts)
    ]
    assert np.array_equal(np.concatenate(found), whole.split_indices)


def test_row_hashes_are_splitmix64() -> None:
    # The first outputs for seed 1234567 in Vigna's splitmix64.c.
    assert mix(np.arange(3, dtype=np.uint64), np.uint64(1234567)).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]
