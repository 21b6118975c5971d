"""The data page shows how each column is read and used, and names the columns that look wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from data_files import preprocessed, recipe_of

from shoestring.core.errors import DataError, RecipeError
from shoestring.data.inspect.page import inspect_data, inspect_samples, page_of_run
from shoestring.data.inspect.sample import read_samples
from shoestring.data.inspect.tables.table_sample import (
    MAX_SAMPLE_FILES,
    MAX_SAMPLE_ROWS,
    THOROUGH,
    SampleSize,
)
from shoestring.data.recipe import Recipe
from shoestring.data.sources.remote.no_remote import NO_REMOTE_SOURCES

ROWS = 400

Columns = dict[str, list[object]]


def clean_columns(rows: int = ROWS) -> Columns:
    """Return features of every type, and a target `y` that depends on one of them a little."""
    random = Random(1)
    number = [round(random.gauss(0, 1), 3) for _ in range(rows)]
    return {
        "number": [*number],
        "age": [random.randrange(18, 90) for _ in range(rows)],
        "town": [random.choice("abcde") for _ in range(rows)],
        "member": [random.choice(["true", "false"]) for _ in range(rows)],
        "y": ["yes" if random.random() < 0.3 + 0.2 * (each > 0) else "no" for each in number],
    }


def recipe_for(folder: Path, columns: Columns, **changes: object) -> Recipe:
    path = folder / "rows.csv"
    pyarrow.csv.write_csv(pa.table({name: pa.array(map(text, each)) for name, each in columns.items()}), path)
    return recipe_of(path, **changes)


def text(value: object) -> str | None:
    return None if value is None else str(value)


def test_each_column_has_its_type_and_its_use(tmp_path: Path) -> None:
    columns = clean_columns()
    columns |= {
        "note": [f"comment number {index} of this row" for index in range(ROWS)],
        "seen_on": [f"2026-{1 + index % 12:02}-03" for index in range(ROWS)],
        "team": [str(index // 4) for index in range(ROWS)],
        "late": [index % 2 for index in range(ROWS)],
    }
    columns["age"][:40] = [None] * 40
    recipe = recipe_for(tmp_path, columns, leaks=["late"], split={"by": ["team"]})
    page = inspect_data(recipe)
    assert {each.name: (each.type, each.use) for each in page.columns} == {
        "number": ("number", "numeric"),
        "age": ("whole number", "numeric"),
        "town": ("text", "categorical"),
        "member": ("true or false", "categorical"),
        "y": ("text", "target"),
        "note": ("text", "text"),
        "seen_on": ("date and time", "date"),
        "team": ("whole number", "group"),
        "late": ("whole number", "leak"),
    }
    by_name = {each.name: each for each in page.columns}
    assert by_name["age"].missing == 40
    assert by_name["note"].reason == "free text: its words are hashed into 32 numbers"
    assert page.warnings == ()
    assert not page.refusal


def test_the_splits_of_a_small_table_are_those_of_the_run(tmp_path: Path) -> None:
    columns = clean_columns()
    columns["y"][:7] = [None] * 7
    recipe = recipe_for(tmp_path, columns)
    page = inspect_data(recipe)
    _, manifest, _ = preprocessed(recipe, tmp_path / "run")
    assert page.splits == {
        split: sum(part.rows for part in parts) for split, parts in manifest.splits.items()
    }
    assert (page.rows, page.is_whole, page.without_target) == (ROWS, True, 7)
    assert manifest.split_rule is not None and page.unit == manifest.split_rule.unit == "rows"
    many = {name: [*values, *values] * 2 for name, values in columns.items()}
    many["n"] = list(range(len(many["y"])))
    assert inspect_data(recipe_for(tmp_path, many)).unit == "distinct rows"
    assert inspect_data(recipe_for(tmp_path, many, split={"by": ["n"]})).unit == "groups"


def test_the_target_is_shown_as_classes_or_quantiles(tmp_path: Path) -> None:
    columns = clean_columns()
    target = inspect_data(recipe_for(tmp_path, columns)).target
    assert target is not None
    shares = {name: columns["y"].count(name) / ROWS for name in ("no", "yes")}
    assert {each.name: each.share for each in target.classes} == pytest.approx(shares)
    columns["y"] = [index / 4 for index in range(ROWS)]
    target = inspect_data(recipe_for(tmp_path, columns)).target
    assert target is not None
    assert target.quantiles["median"] == pytest.approx((ROWS - 1) / 8)
    assert target.quantiles["maximum"] == (ROWS - 1) / 4


Fault = Callable[[Columns, Random], list[object]]
FAULTS: dict[str, tuple[str, Fault, str]] = {
    "label": (
        "target recoded",
        lambda found, _: [each == "yes" for each in found["y"]],
        "alone it removes 100.0%",
    ),
    "score": (
        "target recoded",
        lambda found, random: [round((each == "yes") + random.gauss(0, 0.1), 4) for each in found["y"]],
        "errors of always predicting the most frequent class of y",
    ),
    "row": (
        "id",
        lambda found, _: [*range(ROWS)],
        "400 different values in 400 rows read, which count the rows",
    ),
    "token": ("id", lambda _, random: [f"{random.getrandbits(64):016x}" for _ in range(ROWS)], "text"),
    "country": ("constant", lambda *_: ["US"] * ROWS, "'US' in all 400 rows read"),
    "empty": ("constant", lambda *_: [None] * ROWS, "without a value in all 400 rows read"),
    "refund": (
        "leak in time",
        lambda found, random: [random.randrange(90) if each == "yes" else None for each in found["y"]],
        "y is yes in 100.0% of the",
    ),
}


@pytest.mark.parametrize("name", list(FAULTS))
@pytest.mark.parametrize("is_named", [False, True])
def test_a_faulty_column_is_named_with_its_numbers_and_its_key(
    name: str, is_named: bool, tmp_path: Path
) -> None:
    fault, values, finding = FAULTS[name]
    columns = clean_columns()
    columns = {name: values(columns, Random(2)), **columns}
    named = {"categorical": [name], "numeric": ["number"]} if is_named else {}
    recipe = recipe_for(tmp_path, columns, **named)
    page = inspect_data(recipe)
    assert [(each.column, each.fault) for each in page.warnings] == [(name, fault)]
    warning = page.warnings[0]
    assert finding in warning.finding
    if fault != "constant":
        change = "remove it from `categorical`, `numeric` or `dates`" if is_named else "add it to `leaks`"
        assert change in warning.advice
    if is_named:
        assert next(each.use for each in page.columns if each.name == name) == "categorical"
    page = page_of_run(recipe)
    assert page.notes == (page.prediction, *page.readings, f"warning: {warning.sentence}")


def test_a_leak_that_the_recipe_names_is_no_warning(tmp_path: Path) -> None:
    columns = clean_columns()
    columns["label"] = [each == "yes" for each in columns["y"]]
    assert inspect_data(recipe_for(tmp_path, columns, leaks=["label"])).warnings == ()


def test_a_column_that_is_known_only_with_the_target_is_named(tmp_path: Path) -> None:
    columns = clean_columns()
    columns["y"][::8] = [None] * (ROWS // 8)
    columns["grade"] = [None if each is None else index % 7 for index, each in enumerate(columns["y"])]
    [warning] = inspect_data(recipe_for(tmp_path, columns)).warnings
    assert (warning.column, warning.fault) == ("grade", "leak in time")
    assert warning.finding == "missing in 50 of the 50 rows read without y, and filled in with it"


def test_rows_that_are_empty_altogether_are_no_leak(tmp_path: Path) -> None:
    columns = clean_columns()
    for values in columns.values():
        values[::8] = [None] * (ROWS // 8)
    assert inspect_data(recipe_for(tmp_path, columns)).warnings == ()


def day(number: int) -> str:
    return f"2026-{1 + number // 28:02}-{1 + number % 28:02}"


def test_a_date_after_the_others_is_named_where_it_depends_on_the_outcome(tmp_path: Path) -> None:
    random, columns = Random(3), clean_columns()
    begun = [random.randrange(100) for _ in range(ROWS)]
    columns["begun_on"] = [day(each) for each in begun]
    columns["second_on"] = [
        day(each + 1 + random.randrange(9) + 40 * (y == "yes"))
        for each, y in zip(begun, columns["y"], strict=True)
    ]
    [warning] = inspect_data(recipe_for(tmp_path, columns)).warnings
    assert (warning.column, warning.fault) == ("second_on", "leak in time")
    assert "later than begun_on in 100.0% of 400 rows read" in warning.finding
    assert "the time between depends on y" in warning.finding
    # Without such a dependence it may be the moment of the prediction.
    columns["second_on"] = [day(each + 1 + random.randrange(9)) for each in begun]
    assert inspect_data(recipe_for(tmp_path, columns)).warnings == ()


def test_a_number_put_into_classes_is_the_target_recoded(tmp_path: Path) -> None:
    random, columns = Random(4), clean_columns()
    columns["y"] = [round(random.gauss(50, 20), 2) for _ in range(ROWS)]
    columns["level"] = ["low" if float(str(each)) < 45 else "high" for each in columns["y"]]
    columns["feet"] = [round(float(str(each)) * 3.28, 1) for each in columns["y"]]
    found = {each.column: each for each in inspect_data(recipe_for(tmp_path, columns)).warnings}
    assert {name: each.fault for name, each in found.items()} == dict.fromkeys(
        ("level", "feet"), "target recoded"
    )
    assert found["level"].finding == "its 2 values are ranges of y, in 400 rows read"


def test_what_a_run_would_be_refused_for_is_on_the_page(tmp_path: Path) -> None:
    columns = clean_columns() | {"y": ["one"] * ROWS}
    page = inspect_data(recipe_for(tmp_path, columns))
    assert page.refusal == "the target y has 1 distinct value: there is nothing to predict"
    assert len(page.columns) == 5


def test_a_feature_of_the_wrong_type_is_refused_before_ingest(tmp_path: Path) -> None:
    recipe = recipe_for(tmp_path, clean_columns(), numeric=["town"])
    assert inspect_data(recipe).refusal.startswith("the numeric feature town contains text")
    with pytest.raises(RecipeError, match="the numeric feature town contains text"):
        page_of_run(recipe)


def test_values_that_do_not_fit_are_counted(tmp_path: Path) -> None:
    columns = clean_columns()
    columns["age"][3] = "several"
    page = inspect_data(recipe_for(tmp_path, columns))
    assert (page.rows, page.rows_read, page.misfits, page.unread) == (ROWS, ROWS, 0, 1)
    [remark] = page.remarks
    assert "age: 1 of 400 values are not a whole number; the first is 'several' in rows.csv, row 5" in remark


def test_a_large_table_is_read_in_part(tmp_path: Path) -> None:
    line = f"{'x' * 90},7,no\n"
    rows = 3 * THOROUGH.part_bytes // len(line)
    other = line.replace("7,no", "8,yes")
    (tmp_path / "rows.csv").write_text("wide,number,y\n" + (line + other) * (rows // 2))
    recipe = recipe_of(tmp_path / "rows.csv")
    whole = inspect_data(recipe)
    assert (whole.is_whole, whole.rows_read, whole.sample) == (True, rows // 2 * 2, "")
    page = inspect_data(recipe, size=replace(THOROUGH, whole_bytes=0))
    assert not page.is_whole
    assert page.sample == "the first, middle and last 4.0 MB of 36 MB"
    assert page.rows_read == MAX_SAMPLE_ROWS
    assert page.rows == pytest.approx(rows, rel=0.02)
    assert sum(page.splits.values()) == pytest.approx(rows, rel=0.02)


def test_the_files_of_a_folder_are_read_from_the_first_to_the_last(tmp_path: Path) -> None:
    files = 3 * MAX_SAMPLE_FILES
    (folder := tmp_path / "days").mkdir()
    for number in range(files):
        table = pa.table({"x": [number] * 10, "z": list(range(10)), "y": list(map(str, range(2))) * 5})
        pq.write_table(table, folder / f"{number:02}.parquet")
    recipe = recipe_of(folder)
    page = inspect_samples(recipe, read_samples(recipe, size=SampleSize(whole_bytes=0)), NO_REMOTE_SOURCES)
    assert (page.is_whole, page.rows, page.rows_read) == (False, 10 * files, 10 * MAX_SAMPLE_FILES)
    assert next(each.values for each in page.columns if each.name == "x") == MAX_SAMPLE_FILES


def test_columns_of_a_join_are_checked_and_repeated_keys_refused(tmp_path: Path) -> None:
    columns = clean_columns()
    columns["key"] = [*range(ROWS)]
    recipe_for(tmp_path, columns)
    other = tmp_path / "other.csv"
    lines = [f"{key},{y == 'yes'}" for key, y in enumerate(columns["y"])]
    other.write_text("\n".join(["key,outcome", *lines]) + "\n")
    recipe = Recipe.model_validate(
        {
            "name": "joined",
            "source": {"rows": {"path": tmp_path / "rows.csv"}, "other": {"path": other}},
            "main": "rows",
            "joins": [{"table": "other", "by": ["key"], "columns": ["outcome"]}],
            "target": {"column": "y"},
            "leaks": ["key"],
        }
    )
    page = inspect_data(recipe)
    assert [(each.column, each.fault) for each in page.warnings] == [("outcome", "target recoded")]
    assert next(each.table for each in page.columns if each.name == "outcome") == "other"
    other.write_text("\n".join(["key,outcome", *lines, lines[0]]) + "\n")
    with pytest.raises(DataError, match="table other has 1 repeated key"):
        inspect_data(recipe)
