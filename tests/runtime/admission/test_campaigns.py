"""Campaigns: their runs share one cap over several months, and count towards each month's cap as well."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from pydantic import ValidationError
from runtime_world import INGEST, MONEY, SetClock, begin, concurrent_refusals, run_request, small_world

from shoestring.config.budgets import Budgets
from shoestring.config.policy import Policy, StartPolicy
from shoestring.config.world import World
from shoestring.core.errors import BudgetExceeded, NotYet, Refused, UnknownName, UsageError
from shoestring.data.recipe import Recipe
from shoestring.data.recipe_files import read_recipe
from shoestring.data.run_records import Run
from shoestring.runtime.admission.admit import admit, find_or_admit
from shoestring.runtime.admission.first_request import after_waiting
from shoestring.runtime.admission.start_gate import start_when_allowed
from shoestring.runtime.launch.run_request import recipe_in_campaign
from shoestring.runtime.settlement.settle import settle_abandoned, settle_run
from shoestring.spending.audit.verify import verify
from shoestring.spending.ledger.ledger import Ledger, account_names

MICRO = Decimal("0.000001")


@pytest.fixture
def world(laptop: Path, tmp_path: Path) -> World:
    return small_world(laptop, tmp_path, SetClock())


@pytest.fixture
def recipe(flights_slice: Path) -> Recipe:
    return recipe_in_campaign("spring", str(flights_slice))


def with_campaign_cap(world: World, cap_usd: Decimal, **also: object) -> World:
    return replace(
        world, budgets=Budgets.model_validate({"campaigns": {"spring": {"cap_usd": cap_usd}}} | also)
    )


def campaign(world: World) -> Decimal | None:
    return Ledger(world.store, world.clock).state("spring.campaign").left_usd


def test_runs_of_a_campaign_share_its_cap_and_one_beyond_it_is_refused(world: World, recipe: Recipe) -> None:
    paid = with_campaign_cap(world, MONEY * 2 + MICRO)
    for run_id in ("first", "second"):
        admit(paid, run_request(recipe, run_id=run_id))
    with pytest.raises(
        BudgetExceeded,
        match=r"reserve third of spring\.campaign: \$0\.010000 requested, \$0\.000001 left of \$0\.020001",
    ):
        admit(paid, run_request(recipe, run_id="third"))
    month = Ledger(world.store, world.clock).state(f"{world.clock.now():%Y-%m}")
    assert (month.held_usd, campaign(paid)) == (MONEY * 2, MICRO)
    assert verify(world.store, {}).unfinished == ()


def test_a_run_waits_until_other_runs_release_the_money_that_it_needs(world: World, recipe: Recipe) -> None:
    """A run waits only if the policy allows it, only for reserved money, and not beyond its deadline."""
    patient = replace(world, policy=Policy(start=StartPolicy(max_delay_s=3600, poll_s=60)))
    paid, sentences = with_campaign_cap(patient, MONEY), list[str]()
    began = begin(paid, run_request(recipe, run_id="first", needs=INGEST))
    with pytest.raises(
        NotYet,
        match=r"\$0\.010000 requested, \$0\.000000 left of \$0\.010000 in spring\.campaign; "
        r"running runs hold .* \(--wait\)$",
    ):
        admit(paid, run_request(recipe, run_id="second"))
    assert not list(world.store.list("runs/second/starts/"))
    for late in (
        run_request(recipe, run_id="late").with_terms(deadline_s=1.0),
        run_request(recipe, run_id="large", budget_usd=MONEY * 2),
    ):
        with pytest.raises(Refused) as refused:
            admit(paid, late)
        assert not isinstance(refused.value, NotYet)

    def again(waited_s: float) -> Run:
        if waited_s >= 120:
            began.ledger.settle(began.account, "ingest-1", Decimal(0))
            settle_run(paid, "first")
        return admit(
            paid, after_waiting(run_request(recipe, run_id="second", budget_usd=MONEY / 2), waited_s)
        )

    assert start_when_allowed(paid, "second", again, 3600, sentences.append).start.number == 1
    assert len(sentences) == 2
    assert verify(world.store, {}).unfinished == ()


def test_released_money_returns_to_the_campaign_and_a_refused_run_then_starts(
    world: World, recipe: Recipe
) -> None:
    paid = with_campaign_cap(world, MONEY)
    began = begin(paid, run_request(recipe, run_id="first", needs=INGEST))
    with pytest.raises(BudgetExceeded):
        admit(paid, run_request(recipe, run_id="second", budget_usd=MONEY / 2))
    began.ledger.settle("first", "ingest-1", Decimal("0.000010"))
    settle_run(paid, "first")
    assert campaign(paid) == MONEY - began.ledger.state("first").spent_usd
    # An engine that retries the run sends the same request.
    assert (
        find_or_admit(paid, run_request(recipe, run_id="second", budget_usd=MONEY / 2)).start.account
        == "second.2"
    )
    assert verify(world.store, {}).unfinished == ()


def test_a_raised_cap_applies_to_the_next_run_and_a_cap_below_the_spending_starts_none(
    world: World, recipe: Recipe
) -> None:
    admit(with_campaign_cap(world, MONEY), run_request(recipe, run_id="first"))
    admit(with_campaign_cap(world, MONEY * 2), run_request(recipe, run_id="second"))
    with pytest.raises(
        Refused,
        match=r"no run of spring .* holds \$0\.020000, so its cap cannot be \$0\.010000.* "
        r"raise the campaign's cap_usd",
    ):
        admit(with_campaign_cap(world, MONEY), run_request(recipe, run_id="third"))
    assert "third" not in account_names(world.store)


def test_a_campaign_starts_runs_only_on_its_days(world: World, recipe: Recipe) -> None:
    today = world.clock.now().date()
    day = timedelta(days=1)
    for first, last, reason in (
        (today + day, None, f"the campaign spring begins on {today + day}, and today is {today}"),
        (None, today - day, f"the campaign spring ended on {today - day}, and today is {today}"),
    ):
        budgets = {"campaigns": {"spring": {"cap_usd": MONEY, "first_day": first, "last_day": last}}}
        with pytest.raises(Refused, match=reason):
            admit(replace(world, budgets=Budgets.model_validate(budgets)), run_request(recipe))
    assert account_names(world.store) == []
    budgets = {"campaigns": {"spring": {"cap_usd": MONEY, "first_day": today, "last_day": today}}}
    assert (
        admit(replace(world, budgets=Budgets.model_validate(budgets)), run_request(recipe)).start.number == 1
    )


def test_an_unknown_campaign_is_refused_with_the_known_ones(world: World, recipe: Recipe) -> None:
    with pytest.raises(UnknownName, match="there is no campaign called 'spring'; known: autumn"):
        admit(
            replace(world, budgets=Budgets.model_validate({"campaigns": {"autumn": {"cap_usd": 1}}})),
            run_request(recipe),
        )
    assert account_names(world.store) == []


def test_an_ambiguous_campaign_name_is_refused_when_it_is_read(flights_slice: Path) -> None:
    assert read_recipe(flights_slice).campaign == ""
    for name in ("a/b", "a.b", "-a", "x" * 64):
        with pytest.raises(UsageError, match="campaign: "):
            recipe_in_campaign(name, str(flights_slice))
        with pytest.raises(ValidationError):
            Budgets.model_validate({"campaigns": {name: {"cap_usd": 1}}})
    for budget in (
        {"cap_usd": 0},
        {},
        {"cap_usd": 1, "first_day": "2026-02-01", "last_day": "2026-01-31"},
        {"cap_usd": 1, "ends": "2026"},
    ):
        with pytest.raises(ValidationError):
            Budgets.model_validate({"campaigns": {"spring": budget}})


def test_racing_runs_start_until_the_campaigns_cap_is_reached(world: World, recipe: Recipe) -> None:
    paid = with_campaign_cap(world, MONEY * 2, month_usd=MONEY * 10)
    lost = concurrent_refusals(4, lambda number: admit(paid, run_request(recipe, run_id=f"r{number}")))
    month = Ledger(world.store, world.clock).state(f"{world.clock.now():%Y-%m}")
    assert (campaign(paid), month.held_usd, len(lost)) == (0, MONEY * 2, 2)
    assert all("of spring.campaign: $0.010000 requested, $0.000000 left" in each for each in lost)
    assert verify(world.store, {}).unfinished == ()


def test_a_new_run_repairs_campaign_accounts_too(world: World, recipe: Recipe) -> None:
    paid = with_campaign_cap(world, MONEY)
    begin(paid, run_request(recipe, run_id="first", needs=INGEST))
    ledger = Ledger(world.store, world.clock)
    ledger.settle("first", "ingest-1", Decimal(0))
    ledger.settle("first", "overhead-1", Decimal(0))
    # The writer dies while closing the run, before it writes to the parent accounts.
    ledger.close("first")
    month = f"{world.clock.now():%Y-%m}"
    for account in (month, "spring.campaign"):
        folder = Path(world.store.fetch(f"ledger/{account}/00000001.json")).parent
        last = max(path for path in folder.iterdir() if path.stem.isdecimal())
        last.unlink()
        (folder / "head.json").unlink()
    assert len(verify(world.store, {}).unfinished) == 2
    sentences = settle_abandoned(paid)
    assert {sentence.split(":")[0] for sentence in sentences} == {
        f"first in {month}",
        "first in spring.campaign",
    }
    assert verify(world.store, {}).unfinished == ()
