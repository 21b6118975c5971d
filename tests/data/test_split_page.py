"""What the page, a guessed recipe and the count of evaluations make of splits that the data gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from data_files import of, preprocessed, recipe_of
from split_sources import BY_COLUMN, numbered

from shoestring.data.inspect.guess import guess_recipe
from shoestring.data.inspect.page import inspect_data
from shoestring.data.inspect.recipe_text import recipe_text
from shoestring.data.split_settings import Split
from shoestring.evaluation.openings import sealed_split


def test_a_large_table_says_how_many_rows_each_split_is_expected_to_have(tmp_path: Path) -> None:
    rows = numbered(60_000, ("train", "train", "train", "test"))
    path = of(tmp_path, [row | {"text": f"{row['n']}" * 300} for row in rows])
    page = inspect_data(recipe_of(path, **BY_COLUMN))
    assert not page.is_whole
    assert page.splits["test"] / page.rows == pytest.approx(0.25, abs=0.01)
    assert page.splits["val"] / page.splits["train"] == pytest.approx(1 / 8, abs=0.01)


def test_copies_of_rows_of_train_and_groups_in_two_splits_are_named(tmp_path: Path) -> None:
    rows = numbered(1000, ("train", "train", "val", "test"))
    rows += [{**row, "fold": "test", "y": 1} for row in rows[:8:4]]
    recipe = recipe_of(of(tmp_path, rows), **BY_COLUMN)
    sentence = "2 of 252 rows of test equal, but for the target, rows of train"
    assert any(each.startswith(sentence) for each in inspect_data(recipe).findings)
    by_town = recipe_of(of(tmp_path, rows), split={"column": "fold", "by": ["town"]})
    sentence = "252 of 252 rows of test have a town of rows of train"
    assert any(each.startswith(sentence) for each in inspect_data(by_town).findings)
    # Two columns of few values: most rows are equal, and none is a copy.
    few = recipe_of(of(tmp_path, [{**row, "n": int(str(row["n"])) % 9} for row in rows]), **BY_COLUMN)
    assert not [each for each in inspect_data(few).findings if "rows of train" in each]


def test_a_recipe_that_is_guessed_keeps_the_splits_of_the_data(tmp_path: Path) -> None:
    guess = guess_recipe(str(of(tmp_path, numbered(300, ("train", "valid", "test")))), "y")
    assert guess.recipe.split == Split(column="fold")
    assert "split: {column: fold}  # guess: its values name splits" in recipe_text(guess, tmp_path)
    folder = tmp_path / "data"
    folder.mkdir()
    of(folder, numbered(200), "train.csv")
    of(folder, numbered(300)[200:], "test.csv")
    guess = guess_recipe(str(folder))
    assert guess.recipe.source["rows"].splits and guess.recipe.target.column == "y"
    assert "splits: true}}  # guess: files are named by splits" in recipe_text(guess, tmp_path)


def test_evaluations_on_test_rows_that_the_data_names_are_counted_together_whatever_the_seed(
    tmp_path: Path,
) -> None:
    recipe = recipe_of(of(tmp_path, numbered(1000, ("train", "test"))), **BY_COLUMN)
    _, manifest, store = preprocessed(recipe, tmp_path)
    assert sealed_split(store, manifest, recipe.split, 0) == sealed_split(store, manifest, recipe.split, 1)
    drawn = recipe_of(of(tmp_path, numbered(1000, ("train", "val")), "drawn.csv"), **BY_COLUMN)
    _, manifest, store = preprocessed(drawn, tmp_path / "drawn")
    assert sealed_split(store, manifest, drawn.split, 0) != sealed_split(store, manifest, drawn.split, 1)
