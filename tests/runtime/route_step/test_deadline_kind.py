"""A soft deadline: a training that is paid for is evaluated, late if need be, where the money fits."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from runtime_world import SetClock, run_request, small_world

from shoestring.config.engines import DeadlineKind
from shoestring.config.world import World
from shoestring.core.errors import DeadlineTooShort, Refused
from shoestring.core.record import record_bytes
from shoestring.core.types import Need
from shoestring.data.recipe import Recipe
from shoestring.routing.analysis.replay import replay
from shoestring.routing.dag import stages_from
from shoestring.routing.decision import Decision
from shoestring.routing.pages.decision_view import late_s
from shoestring.routing.pages.explain import as_text
from shoestring.runtime.admission.admit import admit
from shoestring.runtime.admission.first_request import RunRequest
from shoestring.runtime.admission.stage_request import StageInputs
from shoestring.runtime.route_step.route import decide_and_reserve
from shoestring.spending.ledger.ledger import Ledger

ENOUGH, DEADLINE_S = Decimal("0.05"), 300.0
STAGES = (
    Need(stage="fetch", setup_s=1.0),
    Need(stage="fit", setup_s=5.0, cpu_us_per_row=1000.0, passes=100.0, elastic=True),
    Need(stage="score", setup_s=60.0),
)


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def world(laptop: Path, tmp_path: Path, clock: SetClock) -> World:
    return small_world(laptop, tmp_path, clock)


def recipe_with(folder: Path, kind: DeadlineKind) -> Recipe:
    (folder / "rows.csv").write_text("x,y\n1,1\n2,0\n3,1\n4,0\n")
    source = {"rows": {"path": folder / "rows.csv"}}
    return Recipe.model_validate(
        {"name": "few", "source": source, "target": {"column": "y"}, "deadline_kind": kind}
    )


def request_for(recipe: Recipe, stage: str, budget_usd: Decimal = ENOUGH) -> RunRequest:
    found = run_request(recipe, needs=stages_from(STAGES, stage), budget_usd=budget_usd)
    return replace(found, metered=False).with_terms(deadline_s=DEADLINE_S)


def routed_late(world: World, clock: SetClock, recipe: Recipe, stage: str) -> Decision:
    """Route a stage when 10 s are left."""
    run = admit(world, request_for(recipe, "fetch"))
    clock.at_s = DEADLINE_S - 10.0
    return decide_and_reserve(world, run, request_for(recipe, stage), StageInputs())[0]


def test_a_stage_after_the_training_runs_late_and_its_decision_says_by_how_much(
    world: World, clock: SetClock, tmp_path: Path
) -> None:
    decision = routed_late(world, clock, recipe_with(tmp_path, "soft"), "score")
    assert decision.choice is not None and decision.question.soft_left_s is not None
    assert late_s(decision) == pytest.approx(decision.choice.p95_s - decision.question.soft_left_s)
    assert late_s(decision) > 40
    assert f"{late_s(decision):,.1f} s late at P95" in as_text(decision)
    assert replay(record_bytes(decision)).verdict == "same"
    held = Ledger(world.store, clock).state("r").reservations
    assert held["score-1"].amount_usd == decision.choice.p95_usd


@pytest.mark.parametrize("stage", ["fetch", "fit"])
def test_stages_up_to_the_training_keep_a_soft_deadline(
    world: World, clock: SetClock, tmp_path: Path, stage: str
) -> None:
    with pytest.raises(DeadlineTooShort):
        routed_late(world, clock, recipe_with(tmp_path, "soft"), stage)


def test_a_hard_deadline_refuses_the_stage_after_the_training(
    world: World, clock: SetClock, tmp_path: Path
) -> None:
    with pytest.raises(DeadlineTooShort):
        routed_late(world, clock, recipe_with(tmp_path, "hard"), "score")
    assert Ledger(world.store, clock).state("r").reservations.keys() == {"overhead-1"}


def test_money_stays_hard(world: World, clock: SetClock, tmp_path: Path) -> None:
    recipe = recipe_with(tmp_path, "soft")
    run = admit(world, request_for(recipe, "fetch"))
    ledger = Ledger(world.store, clock)
    ledger.reserve("r", "fit-1", "fit", 1, ledger.state("r").left_usd, Decimal(0), "")
    clock.at_s = DEADLINE_S - 10.0
    with pytest.raises(Refused, match="budget"):
        decide_and_reserve(world, run, request_for(recipe, "score"), StageInputs())


def test_a_stage_that_still_fits_is_not_late(world: World, clock: SetClock, tmp_path: Path) -> None:
    recipe = recipe_with(tmp_path, "soft")
    run = admit(world, request_for(recipe, "fetch"))
    clock.at_s = 100.0
    decision, _ = decide_and_reserve(world, run, request_for(recipe, "score"), StageInputs())
    assert decision.question.soft_left_s is None and decision.question.deadline_left_s is not None
    assert late_s(decision) == 0
