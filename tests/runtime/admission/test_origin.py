"""An author's own stage: the router needs only its declaration in the pipeline; the stage's pod runs its
module; its result is cached.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from runtime_world import small_world

from shoestring.config.world import World
from shoestring.core.errors import StageFailed
from shoestring.core.receipt import Receipt
from shoestring.core.types import Need, StageOutcome
from shoestring.data.recipe import Recipe
from shoestring.data.run_records import read_record
from shoestring.data.storage.import_closure import import_closure
from shoestring.routing.decision import Decision
from shoestring.runtime.admission.admit import find_or_admit
from shoestring.runtime.admission.first_request import recipe_request
from shoestring.runtime.admission.stage_request import StageInputs
from shoestring.runtime.route_step.route import decide_and_reserve, route
from shoestring.runtime.supervisor.run_stage import run_stage
from shoestring.stages.work import Origin

NEED = Need(stage="measure", setup_s=1.0)
# An attempt in this process is as old as the process, and its receipt affects the next attempt.
MONEY = Decimal(10)
STAGE = """
from shoestring.data.storage.blobs import put_blob
from shoestring.core.types import StageOutcome

def run(work):
    said = f"{work.settings['word']} {sorted(work.inputs)}"
    return StageOutcome(key=f"blobs/{put_blob(work.store, said.encode())}", rows=7)
"""


@pytest.fixture
def world(laptop: Path, tmp_path: Path) -> World:
    return small_world(laptop, tmp_path)


@pytest.fixture
def author(laptop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The author's package, on the path of the stage's process as in the stage's image."""
    folder = tmp_path / "author" / "authors_own"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "stage.py").write_text(STAGE)
    monkeypatch.syspath_prepend(folder.parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder.parent), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("SHOESTRING_WORLD", str(laptop))
    monkeypatch.setenv("SHOESTRING_STORE", str(tmp_path / "store"))
    yield folder


def origin(word: str = "hello", code: str = "", shared: bool = True) -> Origin:
    closure = import_closure("authors_own.stage")
    return Origin(
        module="authors_own.stage",
        code=code or closure.digest,
        libraries=closure.libraries,
        settings={"word": word},
        shared=shared,
    )


def routed(world: World, recipe: Recipe, run_id: str, of: Origin) -> tuple[Decision, str]:
    request = recipe_request(run_id, recipe, (NEED,), MONEY, None, 7, origin=of)
    return decide_and_reserve(world, find_or_admit(world, request), request, StageInputs())


def run_to_end(world: World, recipe: Recipe, run_id: str, of: Origin) -> StageOutcome:
    _, key = routed(world, recipe, run_id, of)
    return run_stage(world, "", run_id, key, {"data": "k"}, of)


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    (tmp_path / "rows.csv").write_text("x,y\n1,1\n2,0\n3,1\n4,0\n")
    return Recipe.model_validate(
        {"name": "few", "source": {"rows": {"path": tmp_path / "rows.csv"}}, "target": {"column": "y"}}
    )


def test_a_router_decides_for_a_stage_without_having_its_code(
    world: World, recipe: Recipe, tmp_path: Path
) -> None:
    elsewhere = Origin(module="nobodys.stage", code="c0de")
    request = recipe_request("r", recipe, (NEED,), MONEY, None, 7, origin=elsewhere)
    values = route(world, request, StageInputs(), str(tmp_path / "decision"), str(tmp_path / "page"))
    assert values["decision_key"] == "runs/r/decisions/measure-1.json"


def test_the_stages_pod_runs_its_module_with_the_settings_of_its_pipeline(
    world: World, recipe: Recipe, author: Path
) -> None:
    outcome = run_to_end(world, recipe, "r", origin("hello"))
    assert world.store.fetch(outcome.key).read_bytes() == b"hello ['data']"
    assert read_record(world.store, "runs/r/receipts/measure-1.json", Receipt).status == "done"


def test_the_result_of_an_own_stage_is_cached_until_code_or_settings_change(
    world: World, recipe: Recipe, author: Path
) -> None:
    run_to_end(world, recipe, "first", origin())
    richer = recipe.model_copy(update={"deadline_s": 99.0})

    def is_cached(run_id: str, of: Origin, asked: Recipe = recipe) -> bool:
        choice = routed(world, asked, run_id, of)[0].choice
        assert choice is not None
        return choice.cached

    assert is_cached("same", origin())
    assert is_cached("richer", origin(), richer)
    assert not is_cached("other-settings", origin("bye"))
    assert not is_cached("other-recipe", origin(), recipe.model_copy(update={"seed": 1}))
    assert not is_cached("its-own-run", origin(shared=False))
    (author / "unused.py").write_text("x = 1\n")
    assert is_cached("a-file-that-nothing-imports", origin())
    (author / "stage.py").write_text(f"{STAGE}\n\n")
    assert not is_cached("other-code", origin())


def test_a_result_is_cached_under_the_pods_code_and_not_under_the_routers(
    world: World, recipe: Recipe, author: Path
) -> None:
    outcome = run_to_end(world, recipe, "old-compile", origin(code="compiled from older sources"))
    assert outcome.rows == 7
    again, _ = routed(world, recipe, "fresh-compile", origin())
    assert again.choice is not None
    assert again.choice.cached


def test_a_module_that_the_image_lacks_fails_the_stage_and_is_named(
    world: World, recipe: Recipe, author: Path
) -> None:
    missing = Origin(module="not_in_the_image.stage", code="c0de", settings={})
    with pytest.raises(StageFailed, match="No module named 'not_in_the_image'"):
        run_to_end(world, recipe, "r", missing)
