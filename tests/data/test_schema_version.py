"""The first version of a data set fixes the kinds of its columns, and later data that differs is named."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_files import ingested, quarantined_rows, recipe_of, table_of

from shoestring.core.errors import DataError, RecipeError
from shoestring.data.increments.schema_version import last_schema
from shoestring.data.inspect.page import inspect_data, page_of_run
from shoestring.data.inspect.page_records import DataPage
from shoestring.data.recipe import Recipe

at = datetime.fromisoformat


def write(folder: Path, name: str, values: Sequence[object]) -> Recipe:
    """Write a column `x` and a target into a file, and return the recipe of the folder."""
    (folder / "data").mkdir(exist_ok=True)
    rows = (f"{value};{index % 2};{index}\n" for index, value in enumerate(values))
    (folder / "data" / name).write_text("x;y;id\n" + "".join(rows))
    return recipe_of(folder / "data")


def values_of(recipe: Recipe, folder: Path) -> list[Any]:
    _, manifest, store = ingested(recipe, folder)
    values: list[Any] = table_of(store, manifest, "rows")["x"].to_pylist()
    return values


def page_after(recipe: Recipe, folder: Path) -> DataPage:
    _, _, store = ingested(recipe, folder)
    return inspect_data(recipe, known=last_schema(store, recipe.name))


@pytest.mark.parametrize(
    ("first", "later", "read"),
    [
        (["3,14", "2,5"] * 20, ["1,234"] * 40, [1.234]),
        (["1,234.5", "2,100.5"] * 20, ["1,234"] * 40, [1234.0]),
        (["12 %", "7 %"] * 20, ["12", "7"] * 20, None),
        (["25/12/2025"] * 40, ["03/04/2026"] * 40, [at("2026-04-03")]),
        (["12/25/2025 9:05"] * 40, ["03/04/2026 10:00"] * 40, [at("2026-03-04 10:00")]),
        (["a", "b"] * 20, ["1", "2"] * 20, ["1", "2"]),
        (["7", "8"] * 20, ["2.5", "3"] * 20, None),
    ],
)
def test_the_first_version_fixes_how_a_column_is_read(
    tmp_path: Path, first: list[str], later: list[str], read: list[object] | None
) -> None:
    recipe = write(tmp_path, "day.csv", first)
    values_of(recipe, tmp_path)
    write(tmp_path, "day.csv", later)
    if read is None:
        with pytest.raises(
            DataError, match=r"column x: 40 of 40 values are not|20 of 40 values are not a whole number"
        ):
            values_of(recipe, tmp_path)
    else:
        assert values_of(recipe, tmp_path)[: len(read)] == read


def test_a_column_without_a_value_is_fixed_by_the_first_version_with_one(tmp_path: Path) -> None:
    recipe = write(tmp_path, "day.csv", [""] * 40)
    values_of(recipe, tmp_path)
    write(tmp_path, "day.csv", ["3,14"] * 40)
    assert values_of(recipe, tmp_path)[0] == 3.14


@pytest.mark.parametrize(
    ("written", "kind", "read"),
    [
        ("1,234", "thousands commas", 1234.0),
        ("1,234", "decimal comma", 1.234),
        ("$1,234", "decimal comma", 1.234),
        ("12 %", "number", 12.0),
        ("5", "number", 5.0),
        ("5", "text", "5"),
        ("1", "true or false", True),
        ("03/04/2026", "day first", at("2026-04-03")),
        ("3.4.2026", "month first", at("2026-03-04")),
    ],
)
def test_the_recipe_states_a_kind(tmp_path: Path, written: str, kind: str, read: object) -> None:
    recipe = write(tmp_path, "day.csv", [written] * 40)
    assert values_of(recipe.model_copy(update={"kinds": {"x": kind}}), tmp_path)[0] == read
    assert values_of(recipe, tmp_path)[0] == read, "the next version is read as the last one"


@pytest.mark.parametrize(
    ("written", "read_as", "remark"),
    [
        (
            "1,234",
            "number, written with thousands commas",
            "'1,234' is read as 1234; if it is 1.234, state `kinds: {x: decimal comma}`",
        ),
        (
            "03/04/2026",
            "text",
            "read as text, since dates such as '03/04/2026' have two readings; "
            "state `kinds: {x: day first}` or `kinds: {x: month first}`",
        ),
    ],
)
@pytest.mark.parametrize("rows", [40, 200_000], ids=["whole", "sample"])
def test_what_has_two_readings_is_named_with_the_key_that_decides(
    tmp_path: Path, written: str, read_as: str, remark: str, rows: int
) -> None:
    page = inspect_data(recipe := write(tmp_path, "day.csv", [written] * rows))
    found = next(each for each in page.columns if each.name == "x")
    assert (found.type, found.remarks) == (read_as, (remark,))
    assert f"column x: {remark}" in page.notes
    [key] = re.findall(r"`kinds: {x: ([a-z ]+)}`", remark)[:1]
    stated = inspect_data(recipe.model_copy(update={"kinds": {"x": key}}))
    assert next(each for each in stated.columns if each.name == "x").remarks == ()


def test_a_misspelt_column_of_a_kind_is_refused(tmp_path: Path) -> None:
    recipe = write(tmp_path, "day.csv", ["1"] * 40).model_copy(update={"kinds": {"z": "text"}})
    with pytest.raises(RecipeError, match="kinds: z is not a column of a table"):
        inspect_data(recipe)


@pytest.mark.parametrize("rows", [40, 200_000], ids=["whole", "sample"])
def test_values_that_do_not_fit_are_named_and_read_as_missing(tmp_path: Path, rows: int) -> None:
    recipe = write(tmp_path, "a.csv", ["3,14"] * rows)
    _, _, store = ingested(recipe, tmp_path)
    write(tmp_path, "b.csv", ["1,234"] * 70 + ["abc"])
    page = inspect_data(recipe, known=last_schema(store, "mine"))
    [found] = page.changes
    assert (found.column, found.change) == ("x", "misfits")
    assert "values are not a number with a decimal comma, as in the first version" in found.finding
    assert "the first is 'abc' in b.csv, row 72; they are read as missing" in found.finding
    assert "`kinds: {x: text}`" in found.finding and not page.refusal
    _, manifest, store = ingested(recipe, tmp_path)
    [row] = quarantined_rows(store, manifest)
    assert (row["file"], row["row"], row["value"]) == ("b.csv", 72, "abc")
    assert manifest.columns["rows.x"] == "double"


@pytest.mark.parametrize("rows", [40, 200_000], ids=["whole", "sample"])
def test_too_many_values_that_do_not_fit_are_refused_before_anything_is_paid(
    tmp_path: Path, rows: int
) -> None:
    recipe = write(tmp_path, "a.csv", ["3,14"] * rows)
    _, _, store = ingested(recipe, tmp_path)
    write(tmp_path, "a.csv", ["abc", "3,1"] * (rows // 2))
    known = last_schema(store, "mine")
    with pytest.raises(DataError, match=r"column x: .* 'abc' in a.csv, row 2; .* at most 2% may be read so"):
        page_of_run(recipe, known=known)
    assert "another `name`" in inspect_data(recipe, known=known).refusal
    stated = recipe.model_copy(update={"kinds": {"x": "text"}})
    assert not inspect_data(stated, known=known).refusal


def test_added_removed_and_retyped_columns_are_named(tmp_path: Path) -> None:
    lines = [{"kept": index, "gone": 1, "n": index, "y": index % 2} for index in range(60)]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    recipe = recipe_of(path)
    assert page_after(recipe, tmp_path).changes == ()
    new = [{"kept": index, "n": index, "y": index % 2, "new": index % 5} for index in range(60)]
    path.write_text("\n".join(map(json.dumps, new)))
    _, _, store = ingested(recipe_of(tmp_path / "rows.jsonl", name="other"), tmp_path)
    page = inspect_data(recipe, known=last_schema(store, "mine"))
    assert {(each.column, each.change) for each in page.changes} == {
        ("gone", "removed"),
        ("new", "added"),
    }
    sentences = "\n".join(page.notes)
    assert "column new: added since the last version of the data; it is used as numeric" in sentences
    assert "column gone: removed since the last version of the data; models are trained without" in sentences
    assert page_after(recipe, tmp_path).changes == (), "what a run has read is the last version"


def test_types_of_parquet_are_those_of_the_file_and_a_change_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"x": [1, 2, 3, 4] * 10, "y": [0, 1] * 20}), path)
    _, _, store = ingested(recipe_of(path), tmp_path)
    pq.write_table(pa.table({"x": ["a", "b", "c", "d"] * 10, "y": [0, 1] * 20}), path)
    [change] = inspect_data(recipe_of(path), known=last_schema(store, "mine")).changes
    assert change.finding.startswith("retyped since the last version of the data, from whole number to text")
    _, manifest, _ = ingested(recipe_of(path), tmp_path)
    assert manifest.columns["rows.x"] == "string"


@pytest.mark.parametrize(
    ("written", "type_"),
    [
        ("12", "int64"),
        ("1.5", "double"),
        ("12 %", "double"),
        ("007", "string"),
        ("12/31/2025", "timestamp[us]"),
    ],
)
def test_numbers_that_are_text_in_json_are_read_as_in_csv(tmp_path: Path, written: str, type_: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps({"x": written, "y": index % 2}) for index in range(40)))
    _, manifest, _ = ingested(recipe_of(path), tmp_path)
    assert manifest.columns["rows.x"] == type_
