"""The section `train` of a recipe: the family that it names owns its keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shoestring.core.errors import RecipeError
from shoestring.core.record import record_bytes
from shoestring.data.families import AUTO_FAMILIES, FAMILIES, register, settings_of
from shoestring.data.recipe import Recipe
from shoestring.data.recipe_files import read_recipe
from shoestring.training.families.boosted.settings import BoostedSettings
from shoestring.training.families.table_net.settings import TableNetSettings
from shoestring.training.families.text_net.settings import TextNetSettings

TABLE = {"name": "a", "source": {"rows": {"path": "rows.csv"}}, "target": {"column": "y"}}
TEXTS = {"name": "a", "source": {"rows": {"path": "books", "text": {}}}}


def recipe_with(keys: dict[str, Any], train: dict[str, Any] | None) -> Recipe:
    return Recipe.model_validate(keys if train is None else {**keys, "train": train})


IMAGES = {**TABLE, "source": {"rows": {"path": "photos", "image": {"size": [8, 8], "channels": 1}}}}


@pytest.mark.parametrize("train", [None, {"family": "auto"}])
def test_a_recipe_without_a_section_leaves_the_family_to_the_route_step(train: dict[str, Any] | None) -> None:
    names = [[each.family for each in recipe_with(keys, train).families] for keys in (TABLE, IMAGES, TEXTS)]
    assert names == [[*AUTO_FAMILIES["tables"]], ["image_net", "table_net"], ["transformer", "text_net"]]
    recipe = recipe_with(TABLE, train)
    assert recipe.with_family("boosted").train == BoostedSettings()
    assert Recipe.model_validate_json(record_bytes(recipe)) == recipe


def test_auto_hands_its_share_of_the_rows_to_the_families() -> None:
    recipe = recipe_with(TABLE, {"family": "auto", "rows_share": 0.1})
    assert {each.rows_share for each in recipe.families} == {0.1}


@pytest.mark.parametrize("train", [{}, {"family": "table_net"}])
def test_a_section_without_a_family_is_that_of_the_net_for_tables(train: dict[str, Any]) -> None:
    assert recipe_with(TABLE, train).train == TableNetSettings()
    assert recipe_with(TABLE, train).families == (TableNetSettings(),)


def test_keys_without_a_family_are_those_of_the_net_for_tables() -> None:
    found = recipe_with(TABLE, {"hidden": [8], "bins": 4, "rows_share": 0.5}).train
    assert found == TableNetSettings(hidden=(8,), bins=4, rows_share=0.5)


@pytest.mark.parametrize("keys", [TABLE, TEXTS])
def test_a_recipe_keeps_all_keys_of_its_family_when_it_is_written_and_read(keys: dict[str, Any]) -> None:
    recipe = recipe_with(keys, {"hidden": [8], "max_epochs": 3})
    written = json.loads(record_bytes(recipe))
    assert written["train"] == recipe.train.model_dump(mode="json")
    assert {"family", "hidden", "batch_rows"} <= {*written["train"]}
    assert Recipe.model_validate(written) == recipe


def test_a_recipe_on_texts_of_version_4_had_keys_of_tables_that_nothing_read() -> None:
    stored = {"hidden": [8, 8], "batch_rows": 8, "bins": 16, "category_dropout": 0.2, "max_embedding_dim": 32}
    assert recipe_with(TEXTS, stored).train == TextNetSettings(hidden=(8, 8))
    with pytest.raises(
        ValueError, match="bins is a key of table_net and boosted, and this family is text_net"
    ):
        recipe_with(TEXTS, {**stored, "family": "text_net"})


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (
            "{family: forest}",
            "train: .*there is no family 'forest': choose one of auto, table_net, boosted, ",
        ),
        ("{family: [table_net]}", "there is no family"),
        ("{family: text_net}", "text_net learns from texts, and the samples of this recipe are tables"),
        (
            "{family: boosted, hidden: [8]}",
            "hidden is a key of table_net and image_net and text_net, and .* boosted",
        ),
        (
            "{family: auto, leaves: 8}",
            "leaves is a key of boosted, and this family is auto: its keys are ",
        ),
        ("{leaves: 8}", "leaves is a key of boosted, and this family is table_net: its keys are "),
        ("{family: table_net, hiden: [8]}", r"train\.hiden: "),
        ("{hidden: [0]}", r"train\.hidden\.0: .*greater than or equal to 1"),
        ("{max_epochs: 0}", r"train\.max_epochs: "),
        ("3", "train: .*the keys of a family are expected"),
    ],
)
def test_a_wrong_section_is_refused_with_its_key(tmp_path: Path, train: str, message: str) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(f"name: a\nsource: {{rows: {{path: rows.csv}}}}\ntarget: {{column: y}}\ntrain: {train}\n")
    with pytest.raises(RecipeError, match=message):
        read_recipe(file)


def test_trees_are_refused_for_images() -> None:
    with pytest.raises(ValueError, match=r"boosted learns from tables, and the samples of .* are images"):
        recipe_with(IMAGES, {"family": "boosted"})
    assert recipe_with(IMAGES, {"family": "table_net"}).image is not None


def test_a_family_is_registered_once() -> None:
    with pytest.raises(ValueError, match="there is a family boosted already"):
        register("boosted", "mine:Family")


def test_the_schema_of_a_recipe_has_the_keys_of_each_family() -> None:
    described = Recipe.model_json_schema()["properties"]["train"]
    assert [each["properties"]["family"]["const"] for each in described["anyOf"]] == ["auto", *FAMILIES]
    for each in described["anyOf"]:
        family = each["properties"]["family"]["const"]
        assert {*each["properties"]} == {*type(settings_of({"family": family})).model_fields}
