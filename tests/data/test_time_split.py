"""Rows split by time: the latest are test, those before them val, and the others train."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import numpy as np
import pytest
from data_files import of, preprocessed, recipe_of, table_of

from shoestring.core.datasets import GROUP_COLUMN, Manifest, SplitRule
from shoestring.core.errors import DataError, RecipeError
from shoestring.core.interfaces import Store
from shoestring.data.inspect.guess import guess_recipe
from shoestring.data.inspect.page import inspect_data, page_of_run
from shoestring.data.inspect.recipe_text import recipe_text
from shoestring.data.split_settings import SPLITS, Split
from shoestring.data.transforms.times import time_split
from shoestring.evaluation.openings import sealed_split

Row = dict[str, object]
BY_TIME = {"split": {"time": "sold_on"}}


def sold(rows: int = 1000, a_day: int = 10) -> list[Row]:
    """Rows of `a_day` sales a day."""
    began = datetime(2025, 1, 1, tzinfo=UTC)
    return [
        {
            "sold_on": f"{began + timedelta(days=number // a_day):%Y-%m-%d}",
            "n": number,
            "town": "abc"[number % 3],
            "y": number * 7 % 2,
        }
        for number in range(rows)
    ]


def numbers_of(store: Store, manifest: Manifest) -> list[list[int]]:
    """Return the `n` of each split, sorted."""
    return [sorted(map(int, table_of(store, manifest, split)["n"].to_pylist())) for split in SPLITS]


def test_the_last_rows_are_test_and_those_before_them_val_in_whatever_order_they_are_written(
    tmp_path: Path,
) -> None:
    rows = sold()
    Random(3).shuffle(rows)
    recipe = recipe_of(of(tmp_path, rows), **BY_TIME)
    _, manifest, store = preprocessed(recipe, tmp_path / "one")
    expected = [[*range(800)], [*range(800, 900)], [*range(900, 1000)]]
    assert numbers_of(store, manifest) == expected
    assert manifest.split_rule == SplitRule(unit="days", boundaries=("2025-03-22", "2025-04-01"))
    page = inspect_data(recipe)
    assert page.splits == dict(zip(SPLITS, (800, 100, 100), strict=True)) and page.unit == "days"
    assert "rows are split by sold_on: val from 2025-03-22 on, test from 2025-04-01 on" in page.notes
    Random(4).shuffle(rows)
    other = recipe_of(of(tmp_path, rows, "other.csv"), seed=5, **BY_TIME)
    _, again, store = preprocessed(other, tmp_path / "two")
    assert numbers_of(store, again) == expected
    assert again.split_rule == manifest.split_rule


def test_rows_of_one_time_are_one_unit_and_go_to_one_split(tmp_path: Path) -> None:
    rows = sold(1000, a_day=37)
    _, manifest, store = preprocessed(recipe_of(of(tmp_path, rows), **BY_TIME), tmp_path)
    days = [{number // 37 for number in numbers} for numbers in numbers_of(store, manifest)]
    assert sum(map(len, days)) == len(set.union(*days)) == 28
    assert max(days[0]) < min(days[1]) and max(days[1]) < min(days[2])
    test = table_of(store, manifest, "test")
    numbers, ids = test["n"].to_pylist(), test[GROUP_COLUMN].to_pylist()
    units = {(int(n) // 37, unit) for n, unit in zip(numbers, ids, strict=True)}
    assert len(units) == len(days[2]) == len({unit for _, unit in units})


def test_a_split_that_few_times_make_uneven_is_named_with_its_rows(tmp_path: Path) -> None:
    rows = [row | {"sold_on": f"20{20 + min(index // 300, 3)}-01-01"} for index, row in enumerate(sold())]
    notes = inspect_data(recipe_of(of(tmp_path, rows), **BY_TIME)).notes
    named = [note for note in notes if "and not 10%, since many have the same sold_on" in note]
    assert [note.split(" rows")[0] for note in named] == ["val gets 300 of 1,000"]


def test_where_no_time_repeats_each_row_is_a_unit(tmp_path: Path) -> None:
    rows = [
        {**row, "sold_on": f"2025-01-01 00:{number // 60:02}:{number % 60:02}"}
        for number, row in enumerate(sold(600))
    ]
    _, manifest, store = preprocessed(recipe_of(of(tmp_path, rows), **BY_TIME), tmp_path)
    assert manifest.split_unit == "rows"
    assert GROUP_COLUMN not in table_of(store, manifest, "test").column_names
    assert manifest.split_rule is not None
    assert manifest.split_rule.boundaries == ("2025-01-01T00:08:00", "2025-01-01T00:09:00")


def test_rows_without_a_time_are_left_out_and_counted_and_those_without_a_target_move_no_boundary(
    tmp_path: Path,
) -> None:
    rows = sold()
    for number in (3, 500, 950):
        rows[number]["sold_on"] = ""
    rows += [{**row, "n": 1000, "sold_on": "2026-12-31", "y": ""} for row in rows[:200]]
    recipe = recipe_of(of(tmp_path, rows), **BY_TIME)
    _, manifest, store = preprocessed(recipe, tmp_path)
    found = numbers_of(store, manifest)
    assert found == [
        [n for n in range(800) if n not in (3, 500)],
        [*range(800, 900)],
        [n for n in range(900, 1000) if n != 950],
    ]
    assert manifest.quarantined == {
        "y is missing": 200,
        "sold_on is missing, by which rows are split": 3,
    }
    assert manifest.rows == 997
    page = page_of_run(recipe)
    assert "3 rows without sold_on are left out" in page.notes
    assert sum(page.splits.values()) == 997


@pytest.mark.parametrize("year", [lambda row: int(row) // 100, lambda row: 2000.5 + int(row) // 100])
def test_a_number_such_as_a_year_is_a_time_and_no_feature(tmp_path: Path, year: object) -> None:
    assert callable(year)
    rows = [{**row, "sold_on": year(row["n"])} for row in sold()]
    recipe = recipe_of(of(tmp_path, rows), **BY_TIME)
    _, manifest, store = preprocessed(recipe, tmp_path)
    assert list(map(len, numbers_of(store, manifest))) == [800, 100, 100]
    assert manifest.split_rule is not None and manifest.split_rule.unit == "times"
    assert manifest.split_rule.boundaries == (str(year(800)), str(year(900)))
    assert manifest.encoding is not None
    assert [each.name for each in manifest.encoding.features] == ["town", "n"]
    assert {each.name: each.use for each in inspect_data(recipe).columns}["sold_on"] == "not used"


def test_the_calendar_of_the_time_is_a_feature_and_its_moment_is_not(tmp_path: Path) -> None:
    recipe = recipe_of(of(tmp_path, sold()), **BY_TIME)
    _, manifest, _ = preprocessed(recipe, tmp_path / "inferred")
    assert manifest.encoding is not None
    names = [each.name for each in manifest.encoding.features]
    assert "sold_on_weekday" in names and "sold_on" not in names
    named = recipe.model_copy(update={"dates": ("sold_on",)})
    _, manifest, _ = preprocessed(named, tmp_path / "named")
    assert manifest.encoding is not None
    assert "sold_on" in [each.name for each in manifest.encoding.features]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            ["2025-01-01", "2025-01-02"],
            "the rows with a target have 2 different values of sold_on, and 3 are",
        ),
        (["north", "south", "east"], "the column sold_on is of type string, and has to hold dates"),
    ],
)
def test_a_time_that_cannot_split_the_rows_is_refused_before_a_run(
    tmp_path: Path, values: list[str], message: str
) -> None:
    rows = [{**row, "sold_on": values[number % len(values)]} for number, row in enumerate(sold())]
    recipe = recipe_of(of(tmp_path, rows), **BY_TIME)
    assert message in inspect_data(recipe).refusal
    for start in (page_of_run, lambda recipe: preprocessed(recipe, tmp_path)):
        with pytest.raises((DataError, RecipeError), match=message):
            start(recipe)


def test_a_time_is_no_group_and_belongs_to_the_main_table(tmp_path: Path) -> None:
    path = of(tmp_path, sold())
    with pytest.raises(ValueError, match="rows are split by `by`, town, or by `time`, sold_on"):
        recipe_of(path, split={"by": ["town"], "time": "sold_on"})
    with pytest.raises(RecipeError, match=r"split.time: sold is not a column of table rows"):
        inspect_data(recipe_of(path, split={"time": "sold"}))


def test_later_rows_move_the_boundaries_as_a_run_from_nothing_has_them(tmp_path: Path) -> None:
    folder = tmp_path / "days"
    folder.mkdir()
    of(folder, sold(), "a.csv")
    recipe = recipe_of(folder, **BY_TIME)
    _, first, store = preprocessed(recipe, tmp_path / "kept")
    of(
        folder,
        [
            {**row, "n": 1000 + int(str(row["n"]))}
            | {"sold_on": f"2025-{6 + number // 300:02}-{1 + number % 28:02}"}
            for number, row in enumerate(sold(600))
        ],
        "b.csv",
    )
    _, second, store = preprocessed(recipe, tmp_path / "kept")
    _, fresh, empty = preprocessed(recipe, tmp_path / "fresh")
    assert second.split_rule == fresh.split_rule != first.split_rule
    assert numbers_of(store, second) == numbers_of(empty, fresh)
    assert second.encoding == fresh.encoding


def test_evaluations_on_other_boundaries_are_counted_apart_and_no_seed_is(tmp_path: Path) -> None:
    _, manifest, store = preprocessed(recipe_of(of(tmp_path, sold()), **BY_TIME), tmp_path)
    split = Split(time="sold_on")
    moved = SplitRule(unit="days", boundaries=("2025-03-22", "2025-04-02"))
    first = sealed_split(store, manifest, split, 0)
    assert sealed_split(store, manifest.model_copy(update={"split_rule": moved}), split, 0) != first
    assert sealed_split(store, manifest, split, 1) == first


def test_of_very_many_times_close_ones_are_counted_together_in_any_order() -> None:
    count = 3 * time_split.MAX_TIMES
    times = np.arange(count) * 1e6 + 1.7e15
    shuffled = np.random.default_rng(0).permutation(times)
    found = []
    for rows in (times, shuffled, times[::-1]):
        counts = time_split.TimeCounts()
        for part in np.array_split(rows, 9):
            counts.add(part)
        assert len(counts.keys) <= time_split.MAX_TIMES
        found.append(counts.boundaries(0.1, 0.1))
    assert len(set(found)) == 1
    shares = [float((times >= each).mean()) for each in found[0]]
    assert shares == pytest.approx([0.2, 0.1], abs=1e-5)


def test_times_below_zero_keep_their_order() -> None:
    counts = time_split.TimeCounts()
    counts.add(np.array([-0.5, -3.0, 2.0, -0.0, 0.0, 1.5, -1e30, 7.0, 8.0, 9.0]))
    assert counts.repeat
    assert counts.boundaries(0.2, 0.2) == (2.0, 8.0)


def test_a_split_by_the_one_column_of_dates_is_proposed_and_not_made(tmp_path: Path) -> None:
    path = of(tmp_path, sold())
    sentence = (
        "rows have sold_on from 2025-01-01 to 2025-04-10: a model that will predict later rows is tested "
        "fairly by `split: {time: sold_on}`"
    )
    page = inspect_data(recipe_of(path))
    assert sentence in page.notes and page.unit == "distinct rows"
    assert not inspect_data(recipe_of(path, split={"by": ["town"]})).times
    guess = guess_recipe(str(path), "y")
    assert guess.recipe.split.time == ""
    assert f"\n# {sentence}\n" in recipe_text(guess, tmp_path)
    rows = [{**row, "born": row["sold_on"]} for row in sold()]
    assert not inspect_data(recipe_of(of(tmp_path, rows, "two.csv"))).times


def zoned(moment: datetime, hours: int) -> Row:
    return {
        "left": (moment + timedelta(hours=hours)).strftime("%Y-%m-%d %H:%M"),
        "hour": moment.strftime("%Y-%m-%dT%H:%M:00Z"),
        "here": (moment + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:00") + f"{hours:+03}:00",
    }


def test_local_times_stay_and_are_named_beside_those_with_a_zone_which_become_utc(tmp_path: Path) -> None:
    began = datetime(2025, 1, 1, tzinfo=UTC)
    moments = [began + timedelta(hours=number) for number in range(600)]
    # The clocks of a summer time half way.
    rows = [
        {**zoned(moment, -5 + (number > 300)), "n": number, "y": number % 2}
        for number, moment in enumerate(moments)
    ]
    recipe = recipe_of(of(tmp_path, rows), split={"time": "here"})
    page = inspect_data(recipe)
    assert (
        "left seems to be the local time of hour, which is in UTC: -5 or -4 hours; both stay as they are, "
        "and differences of the two are off by the zone"
    ) in page.notes
    _, manifest, store = preprocessed(recipe, tmp_path)
    assert numbers_of(store, manifest) == [[*range(480)], [*range(480, 540)], [*range(540, 600)]]
    assert manifest.split_rule is not None
    assert manifest.split_rule.boundaries == ("2025-01-21", "2025-01-23T12:00:00Z")
    others = [{**row, "left": f"2025-01-{1 + number % 28:02} 10:00"} for number, row in enumerate(rows)]
    assert not [each for each in inspect_data(recipe_of(of(tmp_path, others))).times if "local" in each]
