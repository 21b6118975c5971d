"""Concurrent stages: each router plans what no other router has planned; the reservations fit together."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from runtime_world import SetClock, run_request, small_world

from shoestring.config.world import World
from shoestring.core.errors import BudgetTooSmall
from shoestring.core.types import Need
from shoestring.data.recipe import Recipe
from shoestring.data.run_records import Run, open_run
from shoestring.routing.dag import stages_from
from shoestring.routing.decision import Decision
from shoestring.runtime.admission.admit import RunRequest, admit
from shoestring.runtime.admission.stage_request import StageInputs
from shoestring.runtime.route_step.concurrent_stages import stages_to_plan
from shoestring.runtime.route_step.route import decide_and_reserve
from shoestring.spending.ledger.ledger import Ledger

ENOUGH = Decimal("0.05")
FIT = (
    Need(stage="begin", setup_s=1.0),
    Need(stage="fit-a", setup_s=30.0, after=("begin",)),
    Need(stage="fit-b", setup_s=40.0, after=("begin",)),
    Need(stage="compare", setup_s=2.0, after=("fit-a", "fit-b")),
)


@pytest.fixture
def world(laptop: Path, tmp_path: Path) -> World:
    return small_world(laptop, tmp_path, SetClock())


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    (tmp_path / "rows.csv").write_text("x,y\n1,1\n2,0\n3,1\n4,0\n")
    return Recipe.model_validate(
        {"name": "few", "source": {"rows": {"path": tmp_path / "rows.csv"}}, "target": {"column": "y"}}
    )


def request_for(recipe: Recipe, stage: str, budget_usd: Decimal = ENOUGH) -> RunRequest:
    found = run_request(recipe, needs=stages_from(FIT, stage), budget_usd=budget_usd)
    return RunRequest(found.run_id, found.recipe, found.needs, budget_usd, None, 7, metered=False)


def routed(world: World, run: Run, recipe: Recipe, stage: str, budget_usd: Decimal = ENOUGH) -> Decision:
    return decide_and_reserve(world, run, request_for(recipe, stage, budget_usd), StageInputs())[0]


def least_usd(world: World, recipe: Recipe) -> Decimal:
    """Return the smallest budget that admits all four stages."""
    with pytest.raises(BudgetTooSmall) as refused:
        admit(world, request_for(recipe, "begin", Decimal("0.000001")))
    return refused.value.smallest_usd


def test_a_router_plans_a_concurrent_stage_until_that_is_decided_and_then_awaits_its_end(
    world: World, recipe: Recipe
) -> None:
    run = admit(world, request_for(recipe, "begin"))
    first, second = (routed(world, run, recipe, stage) for stage in ("fit-b", "fit-a"))
    assert [planned.stage for planned in first.plan] == ["fit-a", "compare"]
    assert [planned.stage for planned in second.plan] == ["compare"]
    assert first.choice is not None
    (given,) = second.question.upstream
    assert (given.stage, given.after) == ("fit-b", ("begin",))
    assert given.ready_s == pytest.approx(first.choice.p95_s)


def test_reservations_of_concurrent_stages_fit_the_smallest_budget(world: World, recipe: Recipe) -> None:
    budget_usd = least_usd(world, recipe)
    run = admit(world, request_for(recipe, "begin", budget_usd))
    ledger = Ledger(world.store, world.clock, "router")
    for stage in ("fit-a", "fit-b"):
        routed(world, run, recipe, stage, budget_usd)
    state = ledger.state(run.start.account)
    assert {held.stage for held in state.reservations.values()} == {"overhead", "fit-a", "fit-b"}
    assert state.held_usd <= budget_usd
    compare = routed(world, run, recipe, "compare", budget_usd)
    assert compare.choice is not None


def test_a_failed_stage_is_planned_again_by_its_concurrent_stages(world: World, recipe: Recipe) -> None:
    run = admit(world, request_for(recipe, "begin"))
    decision = routed(world, run, recipe, "fit-b")
    ledger = Ledger(world.store, world.clock, "router")
    ledger.settle(run.start.account, str(decision.question.attempt_id), Decimal("0.000001"))
    needs, given = stages_to_plan(
        world, open_run(world.store, "r"), stages_from(FIT, "fit-a"), ledger.state(run.start.account)
    )
    assert ([need.stage for need in needs], given) == (["fit-a", "fit-b", "compare"], ())


def test_in_a_chain_every_later_stage_is_planned(world: World, recipe: Recipe) -> None:
    chain = tuple(need.model_copy(update={"after": None}) for need in FIT)
    run = admit(world, request_for(recipe, "begin"))
    state = Ledger(world.store, world.clock, "router").state(run.start.account)
    assert stages_to_plan(world, run, chain, state) == (chain, ())
