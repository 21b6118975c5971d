"""What will be predicted is said before anything is paid, and what cannot be predicted is refused."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_files import recipe_of

from shoestring.core.errors import DataError, RecipeError
from shoestring.data.inspect.page import inspect_data, page_of_run
from shoestring.data.inspect.preview import preview_target
from shoestring.data.inspect.sample import read_samples
from shoestring.data.inspect.tables.table_sample import WHOLE_BYTES, SampleSize
from shoestring.data.recipe import Recipe
from shoestring.data.recipe_files import find_recipe
from shoestring.data.split_settings import SPLITS
from shoestring.data.transforms.split import assign_table


def preview(recipe: Recipe, whole_bytes: int = WHOLE_BYTES) -> str:
    return preview_target(recipe, read_samples(recipe, size=SampleSize(whole_bytes)))


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
        (["1", "2"] * 10 + ["both"], {}, "target y: multiclass, 3 classes: 1, 2, both"),
        (
            ["1", "0", "NA"],
            {},
            "target y: binary, 2 classes: 0, 1; to change it, set `target.task: regression`",
        ),
        (
            ["3,295", "12,000.5", "870"],
            {"above": 900},
            "target y: binary, whether it is above 900 (`target.above`)",
        ),
        (["12.3%", "7 %", "40%"], {"above": 10}, "target y: binary, whether it is above 10 (`target.above`)"),
        *(
            (
                written,
                {},
                "target y: regression, a number is predicted; to change it, set `target.task: multiclass`",
            )
            for written in (
                ["3,295", "12,000", "870"],
                ["1.234,56 €", "870,10 €", "-3 €"],
                ["12.3%", "7 %", "-", "40%"],
                ["1 234,5", "870", "NA", "2"],
            )
        ),
        (["3,5", "2,25"], {"task": "binary"}, "target y: binary, 2 classes: 2.25, 3.5 (`target.task`)"),
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
    found = preview(recipe, WHOLE_BYTES if is_whole else 10).replace(" in 200 rows read", "")
    assert found.replace(f" in the first {200 // len(values) * len(values)} rows", "") == sentence


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize(
    ("values", "error", "reason"),
    [
        ([1], DataError, "the target y has 1 distinct value: there is nothing to predict"),
        ([""], DataError, "the target y has no values"),
        (
            ["12.3%", "7 %", "40%"] * 4 + ["3"],
            RecipeError,
            "the target y is read as text, since 15 of 195 values, such as '3', are not a number with %; "
            "correct them to use it as such, or set `target.task: multiclass`",
        ),
        (
            ["03/04/2026", "05/06/2026"],
            RecipeError,
            "dates such as '03/04/2026' have two readings; state `kinds: {y: day first}` or",
        ),
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
        preview(recipe_of(targets(tmp_path, values)), WHOLE_BYTES if is_whole else 10)


def test_a_table_of_the_target_alone_is_refused(tmp_path: Path) -> None:
    path = csv(tmp_path, *"ababab", header="y")
    with pytest.raises(DataError, match="no column to predict it from"):
        preview(recipe_of(path))


def test_too_few_rows_for_three_splits_are_refused(tmp_path: Path) -> None:
    path = csv(tmp_path, "1;1;a", "2;2;b", "3;3;a", "4;4;b")
    with pytest.raises(DataError, match="of 4 rows with a target, none falls into the split"):
        preview(recipe_of(path))


@pytest.mark.parametrize("rows", [12, 20])
def test_the_seed_that_is_advised_against_an_empty_split_gives_each_split_both_classes(
    tmp_path: Path, rows: int
) -> None:
    path = csv(tmp_path, *(f"{row};{row % 5};{'ab'[row % 2]}" for row in range(rows)))
    refusals = []
    for seed in range(100):
        try:
            preview(recipe_of(path, seed=seed))
        except DataError as error:
            refusals.append(str(error))
    (advised,) = {int(re.findall(r"write `seed: (\d+)` in the recipe", each)[0]) for each in refusals}
    recipe = recipe_of(path, seed=advised)
    preview(recipe)
    table = read_samples(recipe)["rows"].rows
    _, assigned = assign_table(table, recipe, table.column_names)
    for split in range(len(SPLITS)):
        assert set(table["y"].filter(pa.array(assigned.split_indices == split)).to_pylist()) == {"a", "b"}


def test_a_late_second_value_of_a_large_parquet_file_is_found(tmp_path: Path) -> None:
    rows = 200_000
    table = pa.table({"x": list(range(rows)), "y": [None] * (rows // 2) + [0] * (rows // 2 - 1) + [1]})
    path = tmp_path / "rows.parquet"
    pq.write_table(table, path)
    assert preview(recipe_of(path), 10).startswith("target y: binary, 2 classes in 200,000 rows read")


def test_flights_are_named() -> None:
    assert preview(find_recipe("flights")) == (
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
        preview(recipe_of(tmp_path / name, target={"column": "y"}))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_target_that_the_encoded_data_cannot_hold_is_refused(tmp_path: Path, is_whole: bool) -> None:
    recipe = recipe_of(targets(tmp_path, [0.5, "1e300", 2.5, "-1e308"]), target={"column": "y"})
    with pytest.raises(DataError, match=r"column y holds numbers up to 1e\+308, and at most 1e\+30"):
        preview(recipe, WHOLE_BYTES if is_whole else 10)


@pytest.mark.parametrize(
    "written", ['"1,{0:03}"', "{0} %", "${0}.20", '"$1,{0:03}"', '"0,{0:03}"', "1 {0:03}"]
)
def test_features_that_are_written_numbers_are_numbers(tmp_path: Path, written: str) -> None:
    rows = (f"{number},{written.format(number)},{number % 2}" for number in range(200))
    page = inspect_data(recipe_of(csv(tmp_path, *rows, header="id,x,y")))
    found = next(each for each in page.columns if each.name == "x")
    assert (found.use, found.values) == ("numeric", 200)
    assert found.type.startswith("number, written with ")


@pytest.mark.parametrize("rows", [200, 200_000], ids=["whole", "sample"])
def test_a_text_under_numeric_is_named_with_its_row_before_anything_is_paid(
    tmp_path: Path, rows: int
) -> None:
    values = ["$1.50", "?", "$2", "abc", "$3", "$4", "$5", "$6"] * (rows // 8)
    path = csv(tmp_path, *(f"{number};{value};{number % 2}" for number, value in enumerate(values)))
    recipe = recipe_of(path, numeric=["x"])
    refusal = r"the numeric feature x contains text, such as 'abc' in rows.csv, row 5: correct the values"
    with pytest.raises(RecipeError, match=refusal):
        page_of_run(recipe)
    assert re.search(refusal, inspect_data(recipe).refusal)
    path.write_text(path.read_text().replace("abc", "-"))
    [x] = [each for each in page_of_run(recipe).columns if each.name == "x"]
    assert (x.type, x.use, {*x.missing_as}) == ("number, written with $", "numeric", {"?", "-"})


@pytest.mark.parametrize("whole_bytes", [WHOLE_BYTES, 10])
def test_decimal_commas_between_semicolons_are_numbers(tmp_path: Path, whole_bytes: int) -> None:
    rows = (f"{number};{number % 2};0,{number:03}" for number in range(200))
    found = preview(recipe_of(csv(tmp_path, *rows)), whole_bytes)
    assert found == "target y: regression, a number is predicted; to change it, set `target.task: multiclass`"


@pytest.mark.parametrize("target", [{}, {"above": 1}], ids=["classes", "above"])
def test_a_look_at_the_target_does_not_import_pandas(tmp_path: Path, target: dict[str, Any]) -> None:
    """Pandas takes 0.3 s to import, which every run would wait for."""
    words = [f"{index};{'abc'[index % 3]};{index % 4}" for index in range(200)]
    recipe = recipe_of(csv(tmp_path, *words), target={"column": "y"} | target)
    code = (
        "import sys\n"
        "from shoestring.data.recipe import Recipe\n"
        "from shoestring.data.inspect.preview import preview_target\n"
        "from shoestring.data.inspect.sample import read_samples\n"
        "recipe = Recipe.model_validate_json(sys.argv[1])\n"
        "preview_target(recipe, read_samples(recipe))\n"
        "sys.exit('pandas' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, recipe.model_dump_json()], check=True)
