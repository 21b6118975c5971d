"""A recipe that names no family, from its admission to its evaluation."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from commands import Ran, shoestring
from runtime_world import MONEY, run_request, small_world

from shoestring.backends.folder_store import FolderStore
from shoestring.data.families import AUTO_FAMILIES
from shoestring.data.recipe import Recipe
from shoestring.data.run_records import read_record
from shoestring.routing.analysis.replay import replay
from shoestring.routing.decision import Decision
from shoestring.runtime.admission.first_request import stage_request_at_start
from shoestring.runtime.admission.question.build import build_question
from shoestring.training.families.recipe_needs import RecipeNeeds
from shoestring.training.model_record import ModelRecord


def small_recipe(folder: Path, train: str = "") -> Path:
    """Write a recipe on 400 rows whose target is a sum; `train`: its section."""
    rows = [f"{n % 19},{n % 7},{(n % 19) * 2 + (n % 7) - n % 3}" for n in range(400)]
    (folder / "rows.csv").write_text("\n".join(["a,b,y", *rows]) + "\n")
    file = folder / f"recipe{len(train)}.yaml"
    file.write_text(
        "name: small\nsource: {rows: {path: rows.csv}}\nnumeric: [a, b]\n"
        f"target: {{column: y, task: regression}}\nbudget_usd: 0.002\n{train}"
    )
    return file


def run(folder: Path, recipe: Path, laptop: Path, name: str, *options: str) -> Ran:
    ran = shoestring(
        "run", recipe, "--world", laptop, "--store", folder / "store", "--out", folder / name, *options
    )
    assert ran.code == 0, ran.err
    return ran


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory, laptop: Path) -> tuple[Path, Ran]:
    """The folder of a run, in which its output is in `out`, and how the command ended."""
    folder = tmp_path_factory.mktemp("first")
    return folder, run(folder, small_recipe(folder), laptop, "out")


def decision_of(folder: Path, stage: str, attempt: int = 1) -> bytes:
    return (folder / "decisions" / f"{stage}-{attempt}.json").read_bytes()


def test_a_run_without_a_family_trains_the_one_that_its_route_step_chose(
    first_run: tuple[Path, Ran], laptop: Path
) -> None:
    folder, first = first_run
    of_train = rf"train: (placed|running) on cpu-1 on-demand as {AUTO_FAMILIES['tables'][0]}, \$"
    assert re.search(of_train, first.err), "the progress shows the states it sees when it looks, not each one"
    recorded = decision_of(folder / "out", "train")
    decision = Decision.model_validate_json(recorded)
    assert [each.name for each in decision.question.families] == [*AUTO_FAMILIES["tables"]]
    family = decision.question.family
    assert family is not None and family.name == AUTO_FAMILIES["tables"][0], "the money is enough for any"
    assert replay(recorded).verdict == "same"
    store = FolderStore(folder / "store")
    run_id = decision.question.run_id
    assert read_record(store, f"runs/{run_id}/model.json", ModelRecord).settings.family == family.name
    of_evaluate = Decision.model_validate_json(decision_of(folder / "out", "evaluate"))
    assert of_evaluate.question.needs[0].work == f"small {family.name}"
    assert "family" in shoestring("explain", folder / "out" / "decisions" / "train-1.json").out
    again = run(folder, small_recipe(folder), laptop, "again", "--json")
    named = run(
        folder, small_recipe(folder, f"train: {{family: {family.name}}}\n"), laptop, "named", "--json"
    )
    for out in ("again", "named"):
        found = Decision.model_validate_json(decision_of(folder / out, "train"))
        assert found.choice is not None and found.choice.cached
    assert again.json["quality"] == named.json["quality"]


def test_before_the_data_is_known_the_most_expensive_family_is_reserved_for(
    tmp_path: Path, laptop: Path
) -> None:
    world = small_world(laptop, tmp_path)
    request = run_request(small_recipe(tmp_path))
    question = build_question(world, stage_request_at_start(world, request, Decimal(0), {}))
    assert question.families == () and question.family is None
    planned = next(each for each in question.needs if each.stage == "train")
    needs = [
        RecipeNeeds(request.recipe.with_family(name), question.rows, question.row_bytes).of_stage(
            next(each for each in request.needs if each.stage == "train")
        )
        for name in AUTO_FAMILIES["tables"]
    ]
    shortest_s = [
        each.setup_s + 1e-6 * each.cpu_us_per_row * question.rows * each.min_passes for each in needs
    ]
    assert planned == needs[shortest_s.index(max(shortest_s))]


def test_a_training_that_goes_on_from_a_checkpoint_keeps_its_family(
    first_run: tuple[Path, Ran], laptop: Path
) -> None:
    folder, _ = first_run
    asked = Decision.model_validate_json(decision_of(folder / "out", "train")).question
    world = small_world(laptop, folder)
    request = run_request(small_recipe(folder), budget_usd=MONEY)
    at_start = stage_request_at_start(world, request, Decimal(0), {})
    later = AUTO_FAMILIES["tables"][-1]
    held = replace(
        at_start,
        needs=request.needs[2:],
        inputs=replace(at_start.inputs, upstream=asked.digests["upstream"], side_input=""),
        family=later,
    )
    assert [each.name for each in build_question(world, held).families] == [later]


@pytest.mark.parametrize("family", ["forest", "[a]"])
def test_no_family_of_that_name(tmp_path: Path, laptop: Path, family: str) -> None:
    recipe = small_recipe(tmp_path, f"train: {{family: {family}}}\n")
    ran = shoestring("run", recipe, "--world", laptop, "--store", tmp_path / "store")
    assert ran.code != 0 and "choose one of auto, " in ran.err


def test_the_recipe_of_a_run_stays_as_it_was_written(tmp_path: Path) -> None:
    recipe = Recipe.model_validate(
        {"name": "a", "source": {"rows": {"path": "rows.csv"}}, "target": {"column": "y"}}
    )
    assert json.loads(recipe.model_dump_json())["train"] == {"family": "auto"}
