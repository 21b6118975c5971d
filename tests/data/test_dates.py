"""Dates as features."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from data_files import of, preprocessed, recipe_of, samples_of, table_of

from shoestring.core.errors import DataError, RecipeError
from shoestring.data.inspect.page import inspect_data
from shoestring.data.transforms.dates import elapsed_names


def dated_rows() -> list[dict[str, object]]:
    """Rows of each second hour of a year; the target depends on the weekday."""
    began = datetime(2013, 1, 1, tzinfo=UTC)
    moments = [began + timedelta(hours=2 * number) for number in range(4000)]
    return [
        {"id": f"r{number}", "when": moment.strftime("%Y-%m-%d %H:%M"), "y": int(moment.weekday() > 4)}
        for number, moment in enumerate(moments)
    ]


@pytest.mark.parametrize("named", [{}, {"dates": ["when"]}], ids=["inferred", "named"])
def test_a_date_becomes_the_cycles_of_its_calendar_and_its_moment(
    tmp_path: Path, named: dict[str, object]
) -> None:
    _, manifest, store = preprocessed(recipe_of(of(tmp_path, dated_rows()), **named), tmp_path)
    assert manifest.encoding is not None
    found = {each.name: (each.kind, each.cardinality) for each in manifest.encoding.features}
    # 4,000 times two hours are 333 days, which end in November.
    assert found == {
        "when_month": ("categorical", 12),
        "when_weekday": ("categorical", 8),
        "when_hour": ("categorical", 13),
        "when": ("numeric", 0),
    }
    test = samples_of(store, manifest, "test")
    assert ((test["code"][:, 1] > 5) == (test["target"] == 1)).all()


def test_a_date_that_groups_rows_is_no_feature_and_a_missing_one_is_unknown(tmp_path: Path) -> None:
    rows = dated_rows()
    with pytest.raises(DataError, match="are constant in train"):
        preprocessed(recipe_of(of(tmp_path, rows), split={"by": ["when"]}), tmp_path)
    for row in rows[::3]:
        row["when"] = ""
    _, manifest, store = preprocessed(recipe_of(of(tmp_path, rows)), tmp_path)
    train = samples_of(store, manifest, "train")
    assert ((train["code"] == 0).any(axis=1) == (train["number"][:, 1] == 1)).all()
    assert 0.25 < train["number"][:, 1].mean() < 0.4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dates": ["id"]}, "the column id, named under `dates`, is of type string"),
        ({"dates": ["never"]}, "never is not a column of table rows"),
        ({}, "dates become columns called when_hour, which the table has too"),
    ],
)
def test_dates_that_cannot_be_features_are_refused(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    rows = [row | {"when_hour": 1} for row in dated_rows()]
    with pytest.raises(RecipeError, match=message):
        preprocessed(recipe_of(of(tmp_path, rows), **changes), tmp_path)


def test_the_days_between_two_dates_are_features_and_missing_where_a_date_is(tmp_path: Path) -> None:
    began = datetime(2025, 1, 1, tzinfo=UTC)
    rows: list[dict[str, object]] = []
    for number in range(900):
        signed, left = began + timedelta(days=number), began + timedelta(days=number, hours=36 * (number % 7))
        shown = f"{left:%Y-%m-%d %H:%M}" if number % 9 else ""
        rows.append({"left": shown, "signed": f"{signed:%Y-%m-%dT%H:%M}+00:00", "y": number % 7})
    recipe = recipe_of(of(tmp_path, rows))
    _, manifest, store = preprocessed(recipe, tmp_path)
    stored = table_of(store, manifest, "test")
    for days, y in zip(stored["left - signed (days)"].to_pylist(), stored["y"].to_pylist(), strict=True):
        assert math.isnan(days) or days == 1.5 * (y - 1)
    assert manifest.encoding is not None
    names = {each.name for each in manifest.encoding.features}
    assert {"left - signed (days)", "left - signed (days)_missing"} <= names
    use = {each.name: each.reason for each in inspect_data(recipe).columns}
    assert use["left"] == "its month, weekday, hour and moment, and days between dates"
    named = recipe.model_copy(update={"dates": ("left", "signed")})
    _, manifest, _ = preprocessed(named, tmp_path / "named")
    assert manifest.encoding is not None
    assert "left - signed (days)" not in [each.name for each in manifest.encoding.features]


def test_of_many_dates_the_first_six_pairs_are_used_and_a_column_of_that_name_is_left_alone() -> None:
    names = elapsed_names(["a", "b", "c", "d", "e"], {"a - b (days)"})
    assert names == [f"a - {each} (days)" for each in "cde"] + ["b - c (days)", "b - d (days)"]
