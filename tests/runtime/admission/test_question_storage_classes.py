"""Storage classes in a question: those that the store has, and those that concurrent stages will write to."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import shoestring
from runtime_world import SetClock, run_request, small_world, with_probed_speeds

from shoestring.backends.local import open_local_world
from shoestring.config.tariffs import Tariffs
from shoestring.config.world import PriceBook, Prices, World
from shoestring.core.types import Need
from shoestring.data.recipe import Recipe
from shoestring.routing.dag import stages_from
from shoestring.routing.pages.explain import as_text
from shoestring.runtime.admission.admit import admit
from shoestring.runtime.admission.stage_request import StageInputs
from shoestring.runtime.route_step.route import decide_and_reserve

STORAGE_CLASSES = {"NEARLINE": {"usd_per_gb_month": "0.1", "retrieval_usd_per_gb": "0.01", "min_days": 30}}
TARIFFS: dict[str, Any] = {
    "storage_usd_per_gb_month": "1",
    "storage_held_hours": 8760,
    "storage_classes": STORAGE_CLASSES,
}
CONCURRENT = (
    Need(stage="left", writes_bytes_per_row=400, after=()),
    Need(stage="right", writes_bytes_per_row=400, after=()),
    Need(stage="join", after=("left", "right"), reads="scan"),
)


def written(laptop: Path, path: Path, **changes: Any) -> Path:
    path.write_text(yaml.safe_dump(yaml.safe_load(laptop.read_text()) | {"tariffs": TARIFFS} | changes))
    return path


def test_a_folder_has_one_storage_class_and_the_decision_notes_it_once(
    laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    world = small_world(written(laptop, tmp_path / "world.yaml"), tmp_path, SetClock())
    request = run_request(flights_slice, budget_usd=Decimal(1))
    decision, _ = decide_and_reserve(world, admit(world, request), request, StageInputs())
    assert decision.candidates.storage_classes == ()
    (note,) = (note for note in decision.question.notes if "storage_classes" in note)
    assert note.startswith(
        "the store is a folder, which has one storage class: the storage_classes NEARLINE are not offered"
    )
    assert as_text(decision).count(note) == 1
    plain = small_world(laptop, tmp_path, SetClock())
    assert plain.notes == ()


def test_a_world_for_planning_offers_every_storage_class(
    laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    path = written(laptop, tmp_path / "world.yaml", purpose="plan")
    with_probed_speeds(tmp_path / "store", open_local_world(path, store=tmp_path / "store"))
    ran = shoestring("plan", flights_slice, "--world", path, "--store", tmp_path / "store", "--budget", "1")
    assert ran.code == 0 and "on NEARLINE" in ran.out and "one storage class" not in ran.out
    planned = shoestring(
        "plan", flights_slice, "--world", path, "--store", tmp_path / "store", "--budget", "1", "--json"
    ).json
    assert [line.get("storage_class") for line in planned["stages"]] == ["NEARLINE", "NEARLINE", None, None]
    listed = shoestring("prices", "show", "--world", path).out.splitlines()
    assert ["NEARLINE", "$0.100000", "$0.010000", "30", "days"] in [line.split() for line in listed]
    assert (
        planned["choice"]["storage_class"] == "NEARLINE"
        and planned["choice"]["format"] + " on NEARLINE" in planned["pareto_front"][0]["offers"][0]
    )


@pytest.mark.parametrize(("policy", "days"), [({}, 1), ({"retention": {"keep_days": 30}}, 30)])
def test_storage_is_charged_for_the_window_of_the_policy(
    laptop: Path, flights_slice: Path, tmp_path: Path, policy: dict[str, Any], days: int
) -> None:
    tariffs = {"storage_usd_per_gb_month": "100"}
    path = written(laptop, tmp_path / "world.yaml", tariffs=tariffs, policy=policy)
    world, request = (
        small_world(path, tmp_path, SetClock()),
        run_request(flights_slice, budget_usd=Decimal(9)),
    )
    decision, _ = decide_and_reserve(world, admit(world, request), request, StageInputs())
    assert decision.choice is not None and decision.question.tariffs.storage_held_hours == 24 * days
    usd_per_day = decision.choice.storage_usd / days
    assert Decimal("0.001") < usd_per_day < Decimal("0.02")


class PricesWithClasses:
    """The prices of a store with storage classes."""

    def __init__(self, prices: Prices) -> None:
        self._prices, self.current_usd_per_hour = prices, prices.current_usd_per_hour
        self.charged_usd_per_hour = prices.charged_usd_per_hour

    def book(self) -> PriceBook:
        return replace(self._prices.book(), tariffs=Tariffs.model_validate(TARIFFS))


@pytest.fixture
def world(laptop: Path, tmp_path: Path) -> World:
    found = small_world(laptop, tmp_path, SetClock())
    return replace(found, prices=PricesWithClasses(found.prices))


def test_the_data_of_a_concurrent_stage_has_the_storage_class_of_its_decision(
    world: World, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("x,y\n" + "1,1\n2,0\n" * 50_000)
    recipe = Recipe.model_validate(
        {"name": "few", "source": {"rows": {"path": tmp_path / "rows.csv"}}, "target": {"column": "y"}}
    )

    def request_of(stage: str) -> Any:
        return replace(
            run_request(recipe, needs=stages_from(CONCURRENT, stage), budget_usd=Decimal(5)), metered=False
        )

    run = admit(world, request_of("left"))
    left, _ = decide_and_reserve(world, run, request_of("left"), StageInputs())
    right, _ = decide_and_reserve(world, run, request_of("right"), StageInputs())
    assert left.choice and left.choice.storage_class == "NEARLINE"
    assert [(each.stage, each.format, each.storage_class) for each in right.question.upstream] == [
        ("left", left.choice.format, "NEARLINE")
    ]
