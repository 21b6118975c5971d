"""Caps of the budget owner on a run, a stage and a month: all refuse before anything starts."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from runtime_world import CHAIN, INGEST, MONEY, SetClock, begin, concurrent_refusals, run_request, small_world

from shoestring.config.budgets import Budgets
from shoestring.config.world import World
from shoestring.core.errors import BudgetExceeded, Refused
from shoestring.data.recipe import Recipe
from shoestring.data.recipe_files import read_recipe
from shoestring.runtime.admission.admit import admission_decision, admit
from shoestring.runtime.settlement.settle import settle_run
from shoestring.spending.ledger.ledger import Ledger, account_names

CAP = Decimal("0.000200")


@pytest.fixture
def world(laptop: Path, tmp_path: Path) -> World:
    return small_world(laptop, tmp_path, SetClock())


@pytest.fixture
def recipe(flights_slice: Path) -> Recipe:
    return read_recipe(flights_slice)


def with_budgets(world: World, **caps: object) -> World:
    return replace(world, budgets=Budgets.model_validate(caps))


def month_of(world: World) -> str:
    return f"{world.clock.now():%Y-%m}"


def test_a_budget_above_the_cap_of_one_run_is_refused_and_one_at_the_cap_is_admitted(
    world: World, recipe: Recipe
) -> None:
    strict = with_budgets(world, run_usd=MONEY - Decimal("0.000001"))
    with pytest.raises(Refused, match=r"\$0\.010000 is above the \$0\.009999 .* raise run_usd"):
        admit(strict, run_request(recipe))
    with pytest.raises(Refused, match="raise run_usd"):
        admission_decision(strict, run_request(recipe), Decimal(0), {})
    assert account_names(world.store) == [] and list(world.store.list("runs/r/decisions/")) == []
    assert admit(with_budgets(world, run_usd=MONEY), run_request(recipe)).start.budget_usd == MONEY


@pytest.mark.parametrize(("owner_cap", "recipe_cap"), [(CAP, None), (CAP, CAP * 2), (CAP * 2, CAP)])
def test_the_smaller_of_two_stage_budgets_applies(
    world: World, recipe: Recipe, owner_cap: Decimal, recipe_cap: Decimal | None
) -> None:
    strict = with_budgets(world, stages={"ingest": owner_cap, "nobodys": CAP})
    capped = recipe.model_copy(update={"stage_budgets_usd": {"ingest": recipe_cap} if recipe_cap else {}})
    began = begin(strict, run_request(capped, needs=INGEST))
    assert began.attempt.decision.question.stage_budgets["ingest"] == CAP
    with pytest.raises(BudgetExceeded):
        began.ledger.extend("r", "ingest-1", CAP)


def test_a_stage_budget_below_every_offer_is_refused_before_anything_starts(
    world: World, recipe: Recipe
) -> None:
    with pytest.raises(Refused, match=r"the stage's own budget is \$0\.000001"):
        admit(with_budgets(world, stages={"train": "0.000001"}), run_request(recipe, needs=CHAIN))
    assert account_names(world.store) == []


def test_the_cap_of_a_month_follows_the_current_budgets(world: World, recipe: Recipe) -> None:
    ledger = Ledger(world.store, world.clock)
    for number, cap_usd in enumerate((None, "0.05", "0.03", None, "0.06")):
        admit(
            with_budgets(world, month_usd=cap_usd), run_request(recipe, run_id=f"r{number}", budget_usd=MONEY)
        )
        settle_run(world, f"r{number}")
        assert (
            ledger.state(month_of(world)).cap_usd
            == (None, *map(Decimal, ("0.05", "0.03", "0.03", "0.06")))[number]
        )


def test_a_run_beyond_its_months_cap_is_refused_with_the_missing_amount(world: World, recipe: Recipe) -> None:
    strict = with_budgets(world, month_usd=MONEY + CAP)
    admit(strict, run_request(recipe, run_id="first"))
    with pytest.raises(
        BudgetExceeded,
        match=r"reserve second of \d{4}-\d\d: \$0\.010000 requested, \$0\.000200 left of \$0\.010200",
    ):
        admit(strict, run_request(recipe, run_id="second"))


def test_a_month_that_spent_more_than_its_new_cap_starts_no_run(world: World, recipe: Recipe) -> None:
    admit(world, run_request(recipe, run_id="first"))
    with pytest.raises(
        Refused, match=r"has spent and holds \$0\.010000, so its cap cannot be \$0\.005000.* raise month_usd"
    ):
        admit(with_budgets(world, month_usd="0.005"), run_request(recipe, run_id="second"))
    assert "second" not in account_names(world.store)


def test_racing_runs_start_until_the_months_cap_is_reached(world: World, recipe: Recipe) -> None:
    strict = with_budgets(world, month_usd=MONEY * 2)
    lost = concurrent_refusals(4, lambda number: admit(strict, run_request(recipe, run_id=f"r{number}")))
    state = Ledger(world.store, world.clock).state(month_of(world))
    assert (state.held_usd, state.left_usd, len(state.reservations)) == (MONEY * 2, 0, 2)
    assert len(lost) == 2 and all("$0.010000 requested, $0.000000 left of $0.020000" in each for each in lost)
