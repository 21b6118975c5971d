"""Approvals: a run above the ceiling waits for one, and a running run gets more money from one."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
import yaml
from commands import Finished, shoestring
from runtime_world import INGEST, MONEY, SetClock, begin, run_request, small_world

from shoestring.config.budgets import Budgets
from shoestring.config.world import World
from shoestring.core.errors import ApprovalNeeded, BudgetExceeded, Refused, UsageError
from shoestring.data.recipe import Recipe
from shoestring.data.recipe_files import read_recipe
from shoestring.reporting.run_reader import read_run_story
from shoestring.runtime.admission.admit import admit, find_or_admit
from shoestring.runtime.admission.approvals import (
    check_not_ended,
    current_budget,
    give_approval,
    open_request,
    pending_approval,
    previous_request,
)
from shoestring.runtime.admission.stage_request import StageInputs
from shoestring.runtime.records.run_setup import run_id_of_label
from shoestring.runtime.route_step.route import decide_and_reserve
from shoestring.runtime.settlement.settle import settle_run
from shoestring.spending.approvals import Approval, read_approvals
from shoestring.spending.audit.verify import load_anchors, verify
from shoestring.spending.ledger.ledger import Ledger, account_names

CEILING = MONEY - Decimal("0.000001")


@pytest.fixture
def world(laptop: Path, tmp_path: Path) -> World:
    world = small_world(laptop, tmp_path, SetClock())
    return replace(world, budgets=Budgets(approve_above_usd=CEILING))


@pytest.fixture
def recipe(flights_slice: Path) -> Recipe:
    return read_recipe(flights_slice)


def make_approval(world: World, amount_usd: Decimal = MONEY, days: float = 1, run_id: str = "r") -> Approval:
    now = world.clock.now()
    return Approval(
        run_id=run_id,
        approved_by="ann",
        approved_at=now,
        amount_usd=amount_usd,
        expires_at=now + timedelta(days=days),
        pod=world.pod,
    )


def test_a_run_above_the_ceiling_does_not_start_and_names_the_command(world: World, recipe: Recipe) -> None:
    run_with_deadline = run_request(recipe).with_terms(deadline_s=900.0)
    with pytest.raises(
        ApprovalNeeded,
        match=r"r needs an approval.* \$0\.010000 is above .*\n  shoestring approve r --by NAME",
    ) as refused:
        admit(world, run_with_deadline)
    assert (refused.value.budget_usd, refused.value.ceiling_usd) == (MONEY, CEILING)
    assert account_names(world.store) == []
    request = pending_approval(world, "r")
    assert request is not None and request.budget_usd == MONEY
    run = admit(replace(world, budgets=Budgets()), run_request(recipe, run_id="other"))
    assert previous_request(
        world, replace(run, starts=(), record=run.record.model_copy(update={"run_id": "r"}))
    ) == (MONEY, 900.0)


def test_a_run_that_waits_for_approval_is_known_by_its_engines_id(world: World, recipe: Recipe) -> None:
    with pytest.raises(ApprovalNeeded):
        admit(world, replace(run_request(recipe), job_id="0d3f-job"))
    assert run_id_of_label(world.store, "0d3f-job") == "r"


def test_a_run_at_the_ceiling_needs_no_approval(world: World, recipe: Recipe) -> None:
    assert admit(world, run_request(recipe, budget_usd=CEILING)).start.budget_usd == CEILING
    assert pending_approval(world, "r") is None


def test_an_approved_run_starts_and_its_account_names_the_approval(world: World, recipe: Recipe) -> None:
    give_approval(world, make_approval(world), None, MONEY)
    run = find_or_admit(world, run_request(recipe))
    (sha256,) = read_approvals(world.store, "r")
    first = Ledger(world.store, world.clock).open("r", MONEY).entry
    assert (first.approval, run.start.account) == (sha256, "r")
    verify(world.store, load_anchors(world.store))


@pytest.mark.parametrize(
    ("amount_usd", "days", "reason"),
    [
        (MONEY - Decimal("0.000002"), 1, r"\(ann approved \$0\.009998, which is less\)"),
        (MONEY, 0.001, r"\(the approval of ann expires at .*\)"),
    ],
)
def test_a_smaller_or_expired_approval_does_not_count(
    world: World, recipe: Recipe, amount_usd: Decimal, days: float, reason: str
) -> None:
    give_approval(world, make_approval(world, amount_usd, days), None, MONEY)
    with pytest.raises(ApprovalNeeded, match=reason):
        admit(world, run_request(recipe))
    assert account_names(world.store) == []


def test_an_approval_counts_for_its_own_run_only(world: World, recipe: Recipe) -> None:
    give_approval(world, make_approval(world, run_id="other"), None, MONEY)
    with pytest.raises(ApprovalNeeded):
        admit(world, run_request(recipe))


def test_an_expired_approval_and_one_above_the_run_limit_are_not_stored(world: World) -> None:
    with pytest.raises(UsageError, match="is useless"):
        give_approval(world, make_approval(world, days=-1), None, MONEY)
    with pytest.raises(Refused, match="raise run_usd"):
        give_approval(replace(world, budgets=Budgets(run_usd=CEILING)), make_approval(world), None, MONEY)
    assert read_approvals(world.store, "r") == {}


def test_an_approval_gives_a_running_run_more_money_for_its_next_stages(world: World, recipe: Recipe) -> None:
    began = begin(world, run_request(recipe, needs=INGEST, budget_usd=CEILING))
    total_usd, account = current_budget(world, began.run)
    raised = give_approval(world, make_approval(world, MONEY * 2), account, total_usd)
    assert raised is not None and raised.entry.cap_microusd == 20_000
    assert began.ledger.state(f"{world.clock.now():%Y-%m}").reservations["r"].amount_usd == MONEY * 2
    assert current_budget(world, began.run)[0] == MONEY * 2 == read_run_story(world.store, "r").budget_usd
    began.ledger.settle("r", "ingest-1", Decimal(0))
    decision, _ = decide_and_reserve(world, began.run, run_request(recipe, needs=INGEST), StageInputs())
    assert (decision.question.budget_usd, decision.question.spent_usd) == (MONEY * 2, 0)
    settle_run(world, "r")
    verify(world.store, load_anchors(world.store))


def test_an_approval_beyond_the_month_is_refused_with_numbers_and_the_run_continues(
    world: World, recipe: Recipe
) -> None:
    tight = replace(world, budgets=Budgets(month_usd=MONEY, approve_above_usd=MONEY))
    began = begin(tight, run_request(recipe, needs=INGEST, budget_usd=CEILING))
    with pytest.raises(
        BudgetExceeded,
        match=r"extend r of \d{4}-\d\d: \$0\.010001 requested, \$0\.000001 left of \$0\.010000",
    ):
        give_approval(tight, make_approval(world, MONEY * 2), current_budget(tight, began.run)[1], CEILING)
    assert began.ledger.state("r").cap_usd == CEILING


def test_a_run_is_approved_and_resumed_from_the_command_line(
    finished: Finished, laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    finished.warm_store(tmp_path / "store")
    world = yaml.safe_load(laptop.read_text()) | {
        "budgets": {"approve_above_usd": "0.000001"},
        "store": str(tmp_path / "store"),
    }
    (tmp_path / "world.yaml").write_text(yaml.safe_dump(world))
    given, out = ("--world", str(tmp_path / "world.yaml")), ("--out", str(tmp_path / "out"))
    refused = shoestring("run", str(flights_slice), "--budget", "0.02", "--deadline", "900", *out, *given)
    assert refused.code == 1
    (run_id,) = (path.name for path in (tmp_path / "store/runs").iterdir())
    assert f"shoestring approve {run_id} --by NAME" in refused.err
    (waits,) = json.loads(shoestring("approvals", "--json", *given).out)
    assert (waits["run_id"], waits["approvals"]) == (run_id, [])
    assert waits["pending_request"]["budget_usd"] == "0.020000"
    terms = ("--by", "ann", "--reason", "the board agreed", "--until", "2999-01-01")
    approved = shoestring("approve", run_id, *terms, *given)
    assert approved.code == 0
    first_line = approved.out.splitlines()[0]
    assert first_line == f"ann approved $0.020000 for {run_id}, until 2999-01-01 23:59 UTC"
    (waits,) = json.loads(shoestring("approvals", "--json", *given).out)
    (approval,) = waits["approvals"]
    assert waits["pending_request"] is None
    assert (approval["approved_by"], approval["expired"]) == ("ann", False)
    resumed = shoestring("run", "--resume", run_id, *out, "--json", *given)
    assert resumed.code == 0, resumed.err
    assert Decimal(json.loads(resumed.out)["budget_usd"]) == Decimal("0.02")
    assert shoestring("ledger", "verify", "--store", str(tmp_path / "store")).code == 0
    assert shoestring("ledger", "verify", "--store", str(tmp_path / "out/ledger")).code == 0
    ended = shoestring("approve", run_id, "--by", "ann", "--usd", "0.5", *given)
    assert ended.code == 1 and f"{run_id} has ended, and an approval adds nothing to it" in ended.err
    assert len(json.loads(shoestring("approvals", "--json", *given).out)[0]["approvals"]) == 1


def test_an_ended_run_that_asks_for_more_is_listed_and_approved(world: World, recipe: Recipe) -> None:
    began = begin(world, run_request(recipe, needs=INGEST, budget_usd=CEILING))
    began.ledger.settle("r", "ingest-1", Decimal(0))
    settle_run(world, "r")
    run, account = began.run, began.ledger.state("r")
    with pytest.raises(Refused, match="has ended, and an approval adds nothing"):
        check_not_ended(run, account, open_request(world, "r"))
    with pytest.raises(ApprovalNeeded):
        admit(world, run_request(recipe, needs=INGEST, budget_usd=MONEY * 2))
    request = pending_approval(world, "r")
    assert request is not None and request.budget_usd == MONEY * 2
    check_not_ended(run, account, request)
