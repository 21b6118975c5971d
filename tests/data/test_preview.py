"""What will be predicted is said before anything is paid, and what cannot be predicted is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_files import recipe_of

from shoestring.core.errors import DataError, RecipeError
from shoestring.data.recipe import find_recipe
from shoestring.data.transforms.preview import WHOLE_BYTES, preview_target


def csv(folder: Path, *rows: str, header: str = "id;x;y") -> Path:
    path = folder / "rows.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def targets(folder: Path, values: list[Any]) -> Path:
    return csv(
        folder, *(f"{index};{index % 7};{value}" for index, value in enumerate(values * (200 // len(values))))
    )


@pytest.mark.parametrize(
    ("values", "target", "sentence"),
    [
        (["yes", "no"], {}, "target y: binary, 2 classes: no, yes"),
        ([0, 1], {}, "target y: binary, 2 classes: 0, 1; to change it, set `target.task: regression`"),
        (
            list(range(10)),
            {},
            "target y: multiclass, 10 classes: 0, 1, 2, 3, 4, ...; "
            "to change it, set `target.task: regression`",
        ),
        # A quantity that comes in steps.
        (
            [5 * step for step in range(27)],
            {},
            "target y: regression, a number is predicted; to change it, set `target.task: multiclass`",
        ),
        (
            [0.5, 1.5, 2.5],
            {"task": "regression"},
            "target y: regression, a number is predicted (`target.task`)",
        ),
        ([1, 5, 9], {"above": 4}, "target y: binary, whether it is above 4 (`target.above`)"),
        (["a", "b", "c"], {}, "target y: multiclass, 3 classes: a, b, c"),
        (["3,5", "2,25"], {"task": "binary"}, "target y: binary, 2 classes: 2,25, 3,5 (`target.task`)"),
    ],
)
@pytest.mark.parametrize("is_whole", [True, False])
def test_the_guess_names_the_key_that_changes_it(
    tmp_path: Path,
    values: list[Any],
    target: dict[str, Any],
    sentence: str,
    is_whole: bool,
) -> None:
    recipe = recipe_of(targets(tmp_path, values), target={"column": "y"} | target)
    found = preview_target(recipe, WHOLE_BYTES if is_whole else 10).replace(" in the first 200 rows", "")
    assert found.replace(f" in the first {200 // len(values) * len(values)} rows", "") == sentence


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize(
    ("values", "error", "reason"),
    [
        ([1], DataError, "the target y has 1 distinct value: there is nothing to predict"),
        ([""], DataError, "the target y has no values"),
        (["3,5", "2,25", "1.000,5"], RecipeError, "numbers with a decimal comma, such as '3,5'"),
    ],
)
def test_what_cannot_be_predicted_is_refused_with_the_reason(
    tmp_path: Path,
    values: list[Any],
    error: type[Exception],
    reason: str,
    is_whole: bool,
) -> None:
    with pytest.raises(error, match=reason):
        preview_target(recipe_of(targets(tmp_path, values)), WHOLE_BYTES if is_whole else 10)


def test_a_table_of_the_target_alone_is_refused(tmp_path: Path) -> None:
    path = csv(tmp_path, *"ababab", header="y")
    with pytest.raises(DataError, match="no column to predict it from"):
        preview_target(recipe_of(path))


def test_too_few_rows_for_three_splits_are_refused(tmp_path: Path) -> None:
    path = csv(tmp_path, "1;1;a", "2;2;b", "3;3;a", "4;4;b")
    with pytest.raises(DataError, match="of 4 rows with a target, none falls into the split"):
        preview_target(recipe_of(path))


def test_a_late_second_value_of_a_large_parquet_file_is_found(tmp_path: Path) -> None:
    rows = 200_000
    table = pa.table({"x": list(range(rows)), "y": [None] * (rows // 2) + [0] * (rows // 2 - 1) + [1]})
    path = tmp_path / "rows.parquet"
    pq.write_table(table, path)
    assert preview_target(recipe_of(path), 10).startswith(
        "target y: binary, 2 classes in the first 200,000 rows"
    )


def test_flights_are_named() -> None:
    assert preview_target(find_recipe("flights")) == (
        "target arr_delay: binary, whether it is above 15 (`target.above`)"
    )


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_a_table_without_rows_is_refused(tmp_path: Path, name: str) -> None:
    if name.endswith(".csv"):
        csv(tmp_path)
    else:
        pq.write_table(
            pa.table({"x": pa.array([], pa.int64()), "y": pa.array([], pa.int64())}), tmp_path / name
        )
    with pytest.raises(DataError, match="table rows has no rows: there is nothing to learn from"):
        preview_target(recipe_of(tmp_path / name, target={"column": "y"}))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_target_that_the_encoded_data_cannot_hold_is_refused(tmp_path: Path, is_whole: bool) -> None:
    recipe = recipe_of(targets(tmp_path, [0.5, "1e300", 2.5, "-1e308"]), target={"column": "y"})
    with pytest.raises(DataError, match=r"column y holds numbers up to 1e\+308, and at most 1e\+30"):
        preview_target(recipe, WHOLE_BYTES if is_whole else 10)


@pytest.mark.parametrize("whole_bytes", [WHOLE_BYTES, 10])
def test_features_with_decimal_commas_are_named(tmp_path: Path, whole_bytes: int) -> None:
    rows = (f"{number};0,{number:03};{number % 2}" for number in range(200))
    found = preview_target(recipe_of(csv(tmp_path, *rows)), whole_bytes)
    assert "; x: numbers with a decimal comma are read as text, so write them with a decimal point" in found
