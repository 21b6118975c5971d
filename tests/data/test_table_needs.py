"""The needs of a recipe of tables grow with their columns, their values and their bytes."""

from __future__ import annotations

from pathlib import Path

import pyarrow.csv
import pyarrow.parquet

from shoestring.core.types import Need
from shoestring.data.needs.table_needs import VALUE_BYTES, TableSizes, sizes_of_raw
from shoestring.data.recipe import Recipe
from shoestring.data.sources.files import estimate_size
from shoestring.stages import evaluate, ingest, preprocess
from shoestring.training.families.recipe_needs import RecipeNeeds

ROWS = 200


def csv_file(path: Path, columns: int, digits: int = 1) -> Path:
    names = [f"c{at}" for at in range(columns - 1)]
    lines = [",".join([*names, "y"])]
    lines += [",".join(["1" * digits] * (columns - 1) + [str(row % 2)]) for row in range(ROWS)]
    path.write_text("\n".join(lines) + "\n")
    return path


def recipe_of(path: Path, **fields: object) -> Recipe:
    return Recipe.model_validate(
        {"name": "a", "source": {"t": {"path": path}}, "target": {"column": "y"}, **fields}
    )


def needs(recipe: Recipe) -> tuple[Need, Need]:
    """Return the needs of ingest and preprocess, as the router of the first stage computes them."""
    size = estimate_size(recipe)
    found = RecipeNeeds(recipe, size.rows_estimate, size.row_bytes, tables=size.tables)
    return found.of_stage(ingest.NEED), found.of_stage(preprocess.NEED)


def reference_s(need: Need) -> float:
    return need.setup_s + 1e-6 * need.cpu_us_per_row * ROWS


def test_a_table_of_more_columns_takes_longer_to_read_and_to_encode(tmp_path: Path) -> None:
    narrow = needs(recipe_of(csv_file(tmp_path / "narrow.csv", 4)))
    wide = needs(recipe_of(csv_file(tmp_path / "wide.csv", 2400)))
    for few, many, built_in in zip(narrow, wide, (ingest.NEED, preprocess.NEED), strict=True):
        assert built_in.setup_s <= reference_s(few) < built_in.setup_s + 0.02
        assert many.writes_bytes_per_row == 600 * few.writes_bytes_per_row == 2400 * VALUE_BYTES
    assert 4 < reference_s(wide[0]) < 6
    assert 2 < reference_s(wide[1]) < 2.5


def test_longer_values_take_longer_to_read_but_not_to_encode(tmp_path: Path) -> None:
    short = needs(recipe_of(csv_file(tmp_path / "short.csv", 100)))
    long = needs(recipe_of(csv_file(tmp_path / "long.csv", 100, digits=15)))
    assert long[0].cpu_us_per_row > short[0].cpu_us_per_row + 5
    assert long[1] == short[1]


def test_the_types_of_a_typed_file_need_not_be_inferred(tmp_path: Path) -> None:
    text = csv_file(tmp_path / "t.csv", 600)
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(text), tmp_path / "t.parquet")
    from_text, typed = (needs(recipe_of(path)) for path in (text, tmp_path / "t.parquet"))
    assert typed[0].setup_s == ingest.NEED.setup_s < from_text[0].setup_s - 0.5
    assert typed[1] == from_text[1]


def test_the_features_that_a_recipe_names_are_what_preprocess_writes(tmp_path: Path) -> None:
    path = csv_file(tmp_path / "t.csv", 600)
    read, encoded = needs(recipe_of(path, numeric=["c0", "c1"]))
    assert (read.writes_bytes_per_row, encoded.writes_bytes_per_row) == (600 * VALUE_BYTES, 3 * VALUE_BYTES)
    assert encoded.setup_s == needs(recipe_of(path))[1].setup_s


def test_the_columns_that_are_joined_count_and_the_rest_of_their_table_does_not(tmp_path: Path) -> None:
    source = {
        "t": {"path": csv_file(tmp_path / "t.csv", 10)},
        "wide": {"path": csv_file(tmp_path / "wide.csv", 1000)},
    }
    join = {"table": "wide", "by": ["c0"], "columns": [f"c{at}" for at in range(100, 140)]}
    joined = needs(recipe_of(tmp_path, source=source, main="t", joins=[join]))
    assert joined[1] == needs(recipe_of(csv_file(tmp_path / "whole.csv", 50)))[1]
    assert joined[0].setup_s > needs(recipe_of(tmp_path / "wide.csv"))[0].setup_s


def test_the_manifest_of_a_raw_data_set_gives_the_columns_that_the_files_gave(tmp_path: Path) -> None:
    recipe = recipe_of(csv_file(tmp_path / "t.csv", 100))
    tables = sizes_of_raw([*(f"t.c{at}" for at in range(98)), "t.a.b", "t.y"])
    assert RecipeNeeds(recipe, ROWS, tables=tables).of_stage(preprocess.NEED) == needs(recipe)[1]


def test_a_need_is_as_it_was_where_no_size_is_known_and_of_another_stage(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path / "none.csv")
    for need in (ingest.NEED, preprocess.NEED):
        assert RecipeNeeds(recipe, 1000, 80).of_stage(need).model_copy(update={"work": ""}) == need
    known = RecipeNeeds(recipe, 1000, 80, tables=TableSizes({"t": 2400}))
    assert known.of_stage(evaluate.NEED) == RecipeNeeds(recipe, 1000, 80).of_stage(evaluate.NEED)
