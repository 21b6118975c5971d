"""A family of models is a line in a registry, a price by formula, and code in the keys of results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mean_family import MeanSettings
from small_dataset import dataset, encoding_of, table
from train_process import work

from shoestring.backends.folder_store import FolderStore
from shoestring.core.types import Need
from shoestring.data.families import FAMILIES, register
from shoestring.data.loading.open_split import open_split
from shoestring.data.recipe import Recipe
from shoestring.data.recipe_files import find_recipe
from shoestring.data.run_records import read_record
from shoestring.data.storage.blobs import load_manifest
from shoestring.runtime.admission.result_keys import StageInputs, StageWork, pod_closure
from shoestring.stages import evaluate, train
from shoestring.stages import predict as predict_stage
from shoestring.training.families.predict import predict
from shoestring.training.families.recipe_needs import RecipeNeeds
from shoestring.training.model_record import ModelRecord


def recipe_of(**keys: object) -> Recipe:
    return Recipe.model_validate(
        {"name": "a", "source": {"rows": {"path": "rows.csv"}}, "target": {"column": "y"}, "train": keys}
    )


@pytest.fixture
def mean_family() -> Iterator[None]:
    register("mean", "mean_family:MeanFamily")
    yield
    del FAMILIES["mean"]


@pytest.mark.usefixtures("mean_family")
def test_a_family_of_another_package_is_trained_evaluated_and_priced(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    key = dataset(store, tmp_path, {"train": 400, "val": 100, "test": 100})
    recipe = recipe_of(family="mean", max_epochs=2)
    assert recipe.train == MeanSettings(max_epochs=2)
    outcome = train.run(replace(work(tmp_path, key), recipe=recipe))
    model = read_record(store, outcome.key, ModelRecord)
    assert (model.settings, model.samples) == (recipe.train, 800)
    found = predict(store, outcome.key, open_split(store, load_manifest(store, key), "test"))
    assert found.shape == (100, 2) and found[0, 1] == pytest.approx(table(400, 0)["y"].mean(), abs=0.05)
    assert outcome.metrics["val_log_loss"] == pytest.approx(model.val_loss)
    assert RecipeNeeds(recipe).of_stage(train.NEED).cpu_us_per_row == 0.5
    inputs = {"data": key, "model": outcome.key}
    done = evaluate.run(replace(work(tmp_path, key), stage="evaluate", recipe=recipe, inputs=inputs))
    assert done.metrics["log_loss"] == pytest.approx(done.metrics["log_loss_class_prior"], abs=0.02)
    assert "mean_family" in pod_closure(stage_work(recipe, "train")).modules


@pytest.mark.usefixtures("mean_family")
def test_a_family_of_another_package_is_a_member_of_a_blend(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    key = dataset(store, tmp_path, {"train": 400, "val": 100, "test": 100})
    trees = {"family": "boosted", "max_epochs": 12, "leaves": 4}
    recipe = recipe_of(family="blend", members=[{"family": "mean", "max_epochs": 2}, trees])
    outcome = train.run(replace(work(tmp_path, key), recipe=recipe))
    model = read_record(store, outcome.key, ModelRecord)
    assert (model.settings, model.samples) == (recipe.train, 12 * 400)
    assert model.weights_source.startswith("blend of mean ") and model.stop_reason == "all 12 rounds are done"
    rows = open_split(store, load_manifest(store, key), "val")
    target = rows.take(np.arange(len(rows)))["target"]
    found = predict(store, outcome.key, rows)
    assert -np.log(found[np.arange(100), target]).mean() == pytest.approx(model.val_loss)
    inputs = {"data": key, "model": outcome.key}
    done = evaluate.run(replace(work(tmp_path, key), stage="evaluate", recipe=recipe, inputs=inputs))
    assert done.metrics["log_loss"] < done.metrics["log_loss_class_prior"]
    for stage in ("train", "evaluate"):
        closure = pod_closure(stage_work(recipe, stage))
        assert {"mean_family", "shoestring.training.families.boosted.forest"} <= {*closure.modules}


def stage_work(recipe: Recipe, stage: str) -> StageWork:
    return StageWork(recipe, 0, "r", stage, "image", StageInputs())


def test_the_code_of_a_family_counts_where_it_is_used_and_nowhere_else() -> None:
    of = {
        (family, stage): pod_closure(stage_work(recipe_of(family=family), stage))
        for family in ("table_net", "boosted")
        for stage in ("preprocess", "train", "evaluate")
    }
    assert of["table_net", "preprocess"].digest == of["boosted", "preprocess"].digest
    for stage in ("train", "evaluate"):
        nets, trees = of["table_net", stage], of["boosted", stage]
        assert nets.digest != trees.digest
        assert {"torch", "safetensors"} == {*nets.libraries} - {*trees.libraries}
        # Every evaluation has those of the baseline, which is boosted.
        more = {"lightgbm"} if stage == "train" else set[str]()
        assert more == {*trees.libraries} - {*nets.libraries}
        assert "shoestring.training.families.table_net.learner" not in trees.modules
        assert ("shoestring.training.families.boosted.forest" in nets.modules) == (stage == "evaluate")


@pytest.mark.parametrize("family", ["table_net", "boosted"])
def test_a_wider_table_costs_more_to_train_on(family: str) -> None:
    recipe = recipe_of(family=family)
    narrow = encoding_of(table(100, 0))
    wide = narrow.model_copy(update={"features": narrow.features * 30})
    found = [RecipeNeeds(recipe, 1000, encoding=each).of_stage(train.NEED) for each in (narrow, wide)]
    assert found[1].cpu_us_per_row > 2 * found[0].cpu_us_per_row > 0
    # Before the data set is encoded, its width is estimated from the bytes of a row.
    guesses = [RecipeNeeds(recipe, 1000, row_bytes).of_stage(train.NEED) for row_bytes in (40, 4000)]
    assert guesses[1].cpu_us_per_row > 2 * guesses[0].cpu_us_per_row > 0


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ({"family": "table_net"}, {"family": "table_net", "hidden": [512, 512]}),
        ({"family": "boosted"}, {"family": "boosted", "leaves": 255}),
    ],
)
def test_settings_that_take_longer_cost_more(less: dict[str, object], more: dict[str, object]) -> None:
    costs = [
        RecipeNeeds(recipe_of(**each), 1000, 400).of_stage(train.NEED).cpu_us_per_row for each in (less, more)
    ]
    assert costs[1] > 1.5 * costs[0]


def test_the_speeds_of_families_are_learned_apart() -> None:
    names = {
        RecipeNeeds(recipe_of(family=each)).of_stage(train.NEED).work for each in ("table_net", "boosted")
    }
    assert names == {"a table_net", "a boosted"}
    rounds = RecipeNeeds(recipe_of(family="boosted")).of_stage(train.NEED)
    assert (rounds.passes, rounds.min_passes, rounds.reads) == (1000, 1, "scan")


def test_a_model_is_read_with_the_settings_of_its_family(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    key = dataset(store, tmp_path, {"train": 600, "val": 100, "test": 100})
    recipe = recipe_of(family="boosted", max_epochs=12, leaves=4)
    outcome = train.run(replace(work(tmp_path, key), recipe=recipe))
    model = read_record(store, outcome.key, ModelRecord)
    assert (model.settings, model.epochs) == (recipe.train, 12)
    assert model.stop_reason == "all 12 rounds are done"
    rows = open_split(store, load_manifest(store, key), "val")
    found = predict(store, outcome.key, rows)
    target = rows.take(np.arange(len(rows)))["target"]
    assert -np.log(found[np.arange(100), target]).mean() == pytest.approx(model.val_loss)


def test_an_evaluation_pays_for_its_baseline_where_the_store_does_not_have_it() -> None:
    def need(has_baseline: bool = False, **keys: object) -> Need:
        needs = RecipeNeeds(recipe_of(**keys), 10_000, 80, has_baseline=has_baseline)
        return needs.of_stage(evaluate.NEED)

    paid, with_one = need(family="table_net"), need(True, family="table_net")
    assert (with_one.setup_s, with_one.cpu_us_per_row) == (
        evaluate.NEED.setup_s,
        evaluate.NEED.cpu_us_per_row,
    )
    assert paid.setup_s > with_one.setup_s and paid.cpu_us_per_row > 5 * with_one.cpu_us_per_row
    assert need(family="boosted") == with_one.model_copy(update={"work": "a boosted"}), "it is the model"
    assert need(family="boosted", leaves=8).cpu_us_per_row == paid.cpu_us_per_row


def image_needs(side: int, stage: Need, **keys: object) -> Need:
    """Return a stage's need for images of a size that are not encoded yet."""
    source = {"rows": {"path": "photos", "image": {"size": [side, side]}}}
    recipe = Recipe.model_validate(
        {"name": "a", "source": source, "target": {"column": "label"}, "train": keys}
    )
    return RecipeNeeds(recipe, 10_000, 3 * side * side).of_stage(stage)


def test_more_pixels_and_more_convolutions_cost_more_time_and_memory() -> None:
    small, large = (image_needs(side, train.NEED, family="image_net") for side in (28, 64))
    assert large.cpu_us_per_row > 4 * small.cpu_us_per_row
    assert large.memory_fixed_gb > small.memory_fixed_gb > train.NEED.memory_fixed_gb
    deep = image_needs(28, train.NEED, family="image_net", convolutions=3)
    fine = image_needs(28, train.NEED, family="image_net", stride=1)
    assert deep.cpu_us_per_row > 2 * small.cpu_us_per_row and fine.cpu_us_per_row > 3 * small.cpu_us_per_row


def test_an_evaluation_of_images_predicts_the_test_split_alone() -> None:
    whole, part = (image_needs(64, stage.NEED, family="image_net") for stage in (predict_stage, evaluate))
    assert 0.04 * whole.cpu_us_per_row < part.cpu_us_per_row < 0.1 * whole.cpu_us_per_row


def test_auto_plans_images_as_the_family_that_costs_more() -> None:
    planned, named = (image_needs(28, train.NEED, family=family) for family in ("auto", "image_net"))
    assert planned == named


def test_the_included_recipe_of_images_leaves_the_choice_to_the_route_step() -> None:
    recipe = find_recipe("fashion")
    assert [each.family for each in recipe.families] == ["image_net", "table_net"]
    assert (recipe.image and recipe.image.shape, recipe.metric) == ((1, 28, 28), "accuracy")
