"""Concurrent stages: each router plans what no other router has planned; the reservations fit together."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from runtime_world import SetClock, on_cluster, run_request, small_world

from shoestring.config.engines import assumed_times
from shoestring.config.world import World
from shoestring.core.errors import BudgetTooSmall, Refused
from shoestring.core.types import Need
from shoestring.data.recipe import Recipe
from shoestring.data.run_records import Run, open_run
from shoestring.routing.dag import stages_from
from shoestring.routing.decision import Decision
from shoestring.runtime.admission.admit import admit
from shoestring.runtime.admission.first_request import RunRequest, recipe_request
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
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def world(laptop: Path, tmp_path: Path, clock: SetClock) -> World:
    return small_world(laptop, tmp_path, clock)


@pytest.fixture
def one_pool(world: World) -> World:
    """The world with its first pool only, so that a stage takes as long whatever is left."""
    return on_cluster(world, world.cluster.pools()[:1])[0]


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    (tmp_path / "rows.csv").write_text("x,y\n1,1\n2,0\n3,1\n4,0\n")
    return Recipe.model_validate(
        {"name": "few", "source": {"rows": {"path": tmp_path / "rows.csv"}}, "target": {"column": "y"}}
    )


def request_for(
    recipe: Recipe, stage: str, budget_usd: Decimal = ENOUGH, deadline_s: float | None = None
) -> RunRequest:
    found = run_request(recipe, needs=stages_from(FIT, stage), budget_usd=budget_usd)
    return recipe_request(found.run_id, found.recipe, found.needs, budget_usd, deadline_s, 7, metered=False)


def routed(
    world: World,
    run: Run,
    recipe: Recipe,
    stage: str,
    budget_usd: Decimal = ENOUGH,
    deadline_s: float | None = None,
) -> Decision:
    request = request_for(recipe, stage, budget_usd, deadline_s)
    return decide_and_reserve(world, run, request, StageInputs())[0]


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


BRANCHES = [("fit-a", "fit-b"), ("fit-b", "fit-a")]
BRANCH_AND_COMPARE_S = assumed_times("local", 0.0).left_s(2)
"""What the engine takes for one branch and the stage that compares them; the branches run in parallel."""


@pytest.mark.parametrize("passed_s", [0.0, 0.25, 20.0, 60.0, 500.0])
@pytest.mark.parametrize("branches", BRANCHES)
def test_a_router_that_decides_later_has_less_time_and_waits_less_for_the_other_branch(
    world: World, clock: SetClock, recipe: Recipe, branches: tuple[str, str], passed_s: float
) -> None:
    run, ledger = admit(world, request_for(recipe, "begin", deadline_s=900.0)), Ledger(world.store, clock)
    clock.sleep(10.0)
    first = routed(world, run, recipe, branches[0], deadline_s=900.0)
    clock.sleep(passed_s)
    second = routed(world, run, recipe, branches[1], deadline_s=900.0)
    assert first.choice is not None and second.choice is not None
    for decision, at_s in ((first, 10.0), (second, 10.0 + passed_s)):
        assert [need.stage for need in decision.question.needs][-1] == "compare"
        left_s = 900.0 - at_s - BRANCH_AND_COMPARE_S
        assert decision.question.deadline_left_s == pytest.approx(left_s)
    (given,) = second.question.upstream
    assert (given.stage, given.ready_s) == (
        branches[0],
        pytest.approx(max(0.0, first.choice.p95_s - passed_s)),
    )
    (compare,) = second.plan
    ends_s = passed_s + max(given.ready_s, second.choice.p95_s) + compare.reserved_s
    assert 10.0 + ends_s <= 900.0
    state = ledger.state(run.start.account)
    held = {each.stage: each.amount_usd for each in state.reservations.values()}
    assert [held[stage] for stage in branches] == [first.choice.p95_usd, second.choice.p95_usd]
    assert second.question.held_usd == state.held_usd - second.choice.p95_usd
    assert state.held_usd + compare.reserved_usd <= ENOUGH


@pytest.mark.parametrize("branches", BRANCHES)
def test_the_second_branch_is_accepted_until_its_time_runs_out_and_then_refused_without_a_reservation(
    one_pool: World, clock: SetClock, recipe: Recipe, branches: tuple[str, str]
) -> None:
    run, ledger = (
        admit(one_pool, request_for(recipe, "begin", deadline_s=300.0)),
        Ledger(one_pool.store, clock),
    )
    first = routed(one_pool, run, recipe, branches[0], deadline_s=300.0)
    needed_s = {each.stage: each.reserved_s for each in first.plan}
    assert first.choice is not None
    last_s = 300.0 - BRANCH_AND_COMPARE_S - needed_s[branches[1]] - needed_s["compare"]
    # By then the first branch has ended, whatever it took.
    assert last_s > first.choice.p95_s
    clock.at_s = last_s + 0.01
    before = ledger.state(run.start.account)
    with pytest.raises(Refused, match="the smallest deadline that is enough is"):
        routed(one_pool, run, recipe, branches[1], deadline_s=300.0)
    assert ledger.state(run.start.account).held_usd == before.held_usd
    clock.at_s = last_s - 0.01
    second = routed(one_pool, run, recipe, branches[1], deadline_s=300.0)
    assert second.choice is not None and second.choice.p95_s == needed_s[branches[1]]


@pytest.mark.parametrize("branches", BRANCHES)
def test_both_branches_fit_the_smallest_budget_however_much_time_passes_between_them(
    world: World, clock: SetClock, recipe: Recipe, branches: tuple[str, str]
) -> None:
    budget_usd = least_usd(world, recipe)
    run = admit(world, request_for(recipe, "begin", budget_usd))
    ledger = Ledger(world.store, clock)
    for stage in (*branches, "compare"):
        decision = routed(world, run, recipe, stage, budget_usd)
        assert decision.choice is not None
        assert decision.choice.p95_usd + decision.choice.reserved_later_usd <= decision.question.left_usd
        assert ledger.state(run.start.account).held_usd <= budget_usd
        clock.sleep(3600.0)


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
