"""The route step of an item on Argo, which is given its loop's list as JSON."""

import json
from pathlib import Path

import pytest
from commands import Ran, shoestring

from shoestring.core.pod_ref import NODE_VARIABLE
from shoestring.core.record import SCHEMA_VERSION
from shoestring.core.types import Need
from shoestring.data.recipe_files import read_recipe
from shoestring.routing.loop_items import Loop
from shoestring.runtime.admission.stage_request import RemainingStages

WORK = Need(stage="work", after=(), setup_s=2.0, items=9)
NEEDS = RemainingStages(
    schema_version=SCHEMA_VERSION, needs=(WORK,), metered=False, engine="argo", loops=(Loop(at_once=2),)
)


def route(laptop: Path, recipe: Path, folder: Path, items: str) -> Ran:
    line = ("route", "--needs", NEEDS.model_dump_json(), "--recipe", read_recipe(recipe).model_dump_json())
    where = ("--run-id", "r", "--out", folder / "out", "--world", laptop)
    variables = {"SHOESTRING_STORE": str(folder / "store"), NODE_VARIABLE: "wf.loop.items(2:2).work(0).route"}
    return shoestring(*line, *where, "--items", items, env=variables)


def test_it_plans_as_many_items_as_the_list_has_and_reserves_one(
    laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    ran = route(laptop, flights_slice, tmp_path, '["a", "b", "c", {"d": 1}]')
    assert ran.code == 0, ran.err
    question = json.loads((tmp_path / "out/decision.json").read_text())["question"]
    needs = [(each["stage"], each.get("items", 1)) for each in question["needs"]]
    assert needs == [("work.2", 1), ("work", 3)], needs


@pytest.mark.parametrize(
    ("items", "sentence"),
    [
        ("a, b", "a loop needs a list as JSON, such as [1, 2], and --items is a, b"),
        ('{"a": 1}', 'and --items is {"a": 1}'),
        ('["a"]', "work works on item 2 of a loop of 1 items"),
    ],
)
def test_a_list_that_it_cannot_use_is_refused_for_good(
    items: str, sentence: str, laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    ran = route(laptop, flights_slice, tmp_path, items)
    assert ran.code in (1, 2) and sentence in ran.err, ran
    assert "Traceback" not in ran.err and (tmp_path / "out/refused").read_text() == "yes"
