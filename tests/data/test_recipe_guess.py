"""A first recipe is guessed from a file: it is valid, and its leaks, groups and target have reasons."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import yaml

from shoestring.core.errors import DataError, RecipeError
from shoestring.data.inspect.guess import guess_recipe, recipe_name
from shoestring.data.inspect.page import inspect_data
from shoestring.data.inspect.recipe_text import recipe_text
from shoestring.data.recipe import Recipe
from shoestring.data.recipe_files import read_recipe

HEADER = "row,customer_id,age,plan: kind,refund,churned,spend"


def churn_csv(folder: Path, name: str = "Churn of 2026.csv", rows: int = 600) -> Path:
    """Write a table with an id, a group, a leak and two columns that could be the target."""
    random, lines = Random(0), [HEADER]
    for row in range(rows):
        churned = random.random() < 0.4
        refund = random.randrange(90) if churned else ""
        values = (row, row // 5, random.randrange(18, 90), random.choice("abc"), refund)
        lines.append(",".join(map(str, (*values, "yes" if churned else "no", round(random.gauss(30, 9), 2)))))
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return path


def written(path: Path, folder: Path, target: str | None = None) -> tuple[Recipe, str]:
    """Return the recipe that is read from the guess, and its text."""
    text = recipe_text(guess_recipe(str(path), target), folder)
    (folder / "made.yaml").write_text(text)
    return read_recipe(folder / "made.yaml"), text


def test_a_guess_is_valid_and_names_target_leaks_and_groups(tmp_path: Path) -> None:
    recipe, text = written(churn_csv(tmp_path), tmp_path)
    assert recipe.name == "churn-of-2026"
    assert recipe.target.column == "churned"
    assert recipe.leaks == ("row", "refund")
    assert recipe.split.by == ("customer_id",)
    assert "it could also be spend, plan: kind, age" in text
    assert "- refund  # guess: leak in time, churned is yes in 100.0% of the" in text
    assert "# age: whole number, 72 values; numeric (a number)" in text
    page = inspect_data(recipe)
    assert not page.refusal
    assert page.warnings == ()


def test_a_given_target_is_taken(tmp_path: Path) -> None:
    recipe, text = written(churn_csv(tmp_path), tmp_path, "spend")
    assert recipe.target.column == "spend"
    assert "# target spend: regression, a number is predicted" in text
    with pytest.raises(RecipeError, match="the target: speed is not a column of table rows, which has row,"):
        guess_recipe(str(churn_csv(tmp_path)), "speed")


def test_a_relative_path_is_written_from_the_folder_of_the_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "recipes").mkdir()
    churn_csv(tmp_path / "data", "churn.csv")
    monkeypatch.chdir(tmp_path)
    recipe, text = written(Path("data/churn.csv"), tmp_path / "recipes")
    assert yaml.safe_load(text)["source"] == {"rows": {"path": "../data/churn.csv"}}
    assert inspect_data(recipe).rows == 600


def test_names_that_yaml_reads_as_other_values_are_quoted(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    lines = [f"{index % 9},{index % 2},{index % 7}" for index in range(300)]
    path.write_text("\n".join(["'é: [#],no,12", *lines]) + "\n")
    recipe, _ = written(path, tmp_path, "no")
    assert recipe.target.column == "no"
    recipe, _ = written(path, tmp_path, "'é: [#]")
    assert recipe.target.column == "'é: [#]"


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["id,word", *(f"{index},w{index}" for index in range(100))], "no column of .* looks like a target"),
        (["x,y", "1,a", "2,b", "3,a"], "no run of this recipe would start: of 3 rows with a target"),
    ],
)
def test_a_table_that_no_run_could_use_is_refused(lines: list[str], reason: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match=reason):
        guess_recipe(str(path))


def test_a_url_that_may_hold_a_credential_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"https://a\.b/c\.csv: remove the part"):
        guess_recipe("https://a.b/c.csv?key=1")


@pytest.mark.parametrize(
    ("path", "name"),
    [("Data/My Table.csv.gz", "my-table"), ("_x_.parquet", "x"), ("é.csv", "data"), ("s3://b/days/", "days")],
)
def test_the_name_of_a_recipe_is_that_of_its_file(path: str, name: str) -> None:
    assert recipe_name(path) == name
