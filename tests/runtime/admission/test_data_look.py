"""The look at a run's data is kept, and is made again when the data or what is asked of it changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from runtime_world import CHAIN, run_request, small_world

from shoestring.core import store_layout
from shoestring.data.inspect.page_records import DataPage
from shoestring.data.recipe import Recipe
from shoestring.runtime.admission.admit import admit
from shoestring.runtime.admission.data_look import look_at_data

PAGES = f"{store_layout.CACHE}pages/"


def test_the_same_data_is_looked_at_once(laptop: Path, tmp_path: Path, flights_slice: Path) -> None:
    world, request = small_world(laptop, tmp_path), run_request(flights_slice)
    admit(world, request)
    [key] = world.store.list(PAGES)
    kept = DataPage.model_validate_json(world.store.fetch(key).read_bytes())
    marked = kept.model_copy(update={"prediction": "as it was kept"})
    world.store.put(key, marked.model_dump_json().encode())
    said: list[str] = []
    admit(world, replace(request, run_id="second"), said.append)
    assert said[0] == "as it was kept"
    # Money changes no page; another target and damaged objects do.
    richer = request.recipe.model_copy(update={"budget_usd": 2 * request.recipe.budget_usd})
    assert look_at_data(world, richer, CHAIN) == marked
    other = request.recipe.target.model_copy(update={"above": 60.0})
    found = look_at_data(world, request.recipe.model_copy(update={"target": other}), CHAIN)
    assert found is not None and "above 60" in found.prediction
    world.store.put(key, b"{")
    assert look_at_data(world, request.recipe, CHAIN) == kept


def test_a_changed_file_is_looked_at_again(laptop: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    lines = [f"{index},{index % 7},{index % 2}" for index in range(300)]
    path.write_text("\n".join(["x,z,y", *lines]) + "\n")
    world = small_world(laptop, tmp_path)
    recipe = Recipe.model_validate(
        {"name": "mine", "source": {"rows": {"path": path}}, "target": {"column": "y"}}
    )
    before = look_at_data(world, recipe, CHAIN)
    path.write_text("\n".join(["x,z,y", *lines[:200]]) + "\n")
    after = look_at_data(world, recipe, CHAIN)
    assert before is not None and after is not None
    assert (before.rows, after.rows) == (300, 200)
