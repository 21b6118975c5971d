"""Admission: the whole chain fits, or no account is opened."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import psutil
import pytest
from commands import Finished
from runtime_world import CHAIN, INGEST, SetClock, begin, run_request, small_world

from shoestring.backends.local import open_local_world
from shoestring.backends.processes import process_ref
from shoestring.config.engines import Engine
from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import BudgetExceeded, BudgetTooSmall, DeadlineTooShort, Refused, UsageError
from shoestring.core.pod_ref import LAUNCHER_VARIABLE
from shoestring.core.record import record_bytes
from shoestring.core.types import Need
from shoestring.data.recipe import Recipe
from shoestring.data.recipe_files import read_recipe
from shoestring.data.run_records import open_run, read_record
from shoestring.routing.decision import Decision
from shoestring.runtime.admission.admit import admit, find_or_admit
from shoestring.runtime.admission.first_request import ENGINE_START_S
from shoestring.runtime.admission.stage_request import StageInputs
from shoestring.runtime.records.engine_times import MIN_PODS, EngineSample
from shoestring.runtime.records.overhead import STEP_SERVER_S, assumed_pod_s, overhead_usd_per_hour
from shoestring.runtime.route_step.route import decide_and_reserve, request_differences
from shoestring.runtime.settlement.settle import settle_run
from shoestring.spending.ledger.ledger import Ledger, account_names
from shoestring.spending.meter import cost_usd

MICRO = Decimal("0.000001")


@pytest.fixture
def world(laptop: Path, tmp_path: Path) -> World:
    return small_world(laptop, tmp_path, SetClock())


@pytest.fixture
def recipe(flights_slice: Path) -> Recipe:
    return read_recipe(flights_slice)


def test_a_refusal_leaves_no_account_and_no_start_but_its_decision(world: World, recipe: Recipe) -> None:
    with pytest.raises(BudgetTooSmall) as refused:
        admit(world, run_request(recipe, budget_usd=MICRO))
    assert account_names(world.store) == []
    assert open_run(world.store, "r").starts == ()
    decision = read_record(world.store, "runs/r/decisions/ingest-1.json", Decision)
    assert decision.choice is None
    assert refused.value.smallest_usd == decision.smallest_budget_usd
    assert all(line.split(":")[0] for line in refused.value.reasons.splitlines())
    assert decision.refusals[0].sentence in refused.value.reasons


@pytest.mark.parametrize("engine", ["local", "argo"])
def test_the_smallest_budget_of_a_refusal_is_admitted_and_a_micro_dollar_less_is_not(
    world: World, recipe: Recipe, engine: Engine
) -> None:
    request = replace(run_request(recipe, budget_usd=MICRO), engine=engine)
    with pytest.raises(BudgetTooSmall) as refused:
        admit(world, request)
    smallest_usd = refused.value.smallest_usd
    with pytest.raises(BudgetTooSmall) as again:
        admit(world, request.with_terms(budget_usd=smallest_usd - MICRO))
    assert again.value.smallest_usd == smallest_usd
    run = admit(world, request.with_terms(budget_usd=smallest_usd))
    ledger = Ledger(world.store, world.clock)
    assert ledger.state("r").cap_usd == smallest_usd
    decision, _ = decide_and_reserve(world, run, run_request(recipe, budget_usd=smallest_usd), StageInputs())
    assert decision.choice is not None
    left_usd = ledger.state("r").left_usd
    assert left_usd is not None
    assert left_usd >= decision.choice.reserved_later_usd


def test_a_deadline_that_cannot_be_kept_is_refused_and_no_budget_is_named(
    world: World, recipe: Recipe
) -> None:
    with pytest.raises(Refused, match="is too short: no budget is enough in this time") as refused:
        admit(world, run_request(recipe).with_terms(deadline_s=1.0))
    assert not isinstance(refused.value, BudgetTooSmall)
    assert account_names(world.store) == []


def test_the_deadline_of_a_refusal_is_admitted_and_kept_by_the_router_and_one_percent_less_is_not(
    world: World, recipe: Recipe
) -> None:
    """The first router decides seconds after admission."""
    with pytest.raises(DeadlineTooShort) as refused:
        admit(world, run_request(recipe).with_terms(deadline_s=1.0))
    named_s = refused.value.smallest_s
    with pytest.raises(DeadlineTooShort):
        admit(world, run_request(recipe).with_terms(deadline_s=0.99 * named_s))
    request = run_request(recipe).with_terms(deadline_s=named_s)
    run = admit(world, request)
    world.clock.sleep(ENGINE_START_S - 0.5)
    decision, _ = decide_and_reserve(world, run, request, StageInputs())
    assert decision.choice is not None


@pytest.mark.parametrize(
    ("engine", "second_pods", "server_s"),
    [("local", 0, STEP_SERVER_S), ("argo", 1, 0.0), ("kubeflow", 1, 0.0)],
)
def test_the_cost_of_deciding_is_reserved_first(
    world: World, recipe: Recipe, engine: Engine, second_pods: int, server_s: float
) -> None:
    """An engine that creates a lost pod again may create one that gets no attempt; the local one starts a
    server of its steps.
    """
    run = admit(world, replace(run_request(recipe), engine=engine))
    state = Ledger(world.store, world.clock).state(run.start.account)
    pods = len(CHAIN) + 1 + second_pods
    assert {hold: held.amount_usd for hold, held in state.reservations.items()} == {
        "overhead-1": cost_usd(overhead_usd_per_hour(world), pods * assumed_pod_s(world) + server_s)
    }


def test_a_router_joins_a_run_that_is_already_admitted(world: World, recipe: Recipe) -> None:
    first = admit(world, run_request(recipe))
    assert find_or_admit(world, run_request(recipe)) == first
    assert find_or_admit(world, run_request(recipe, run_id="other")).start.account == "other"
    assert [len(open_run(world.store, run_id).starts) for run_id in ("r", "other")] == [1, 1]


@pytest.mark.parametrize("run_id", ["2026-11", "r.2", "", "-r", "a/b", "r" * 101])
def test_a_run_id_that_names_another_account_is_refused_before_anything_is_written(
    world: World, recipe: Recipe, run_id: str
) -> None:
    before = list(world.store.list(""))
    with pytest.raises(UsageError, match="is not a valid run id"):
        find_or_admit(world, run_request(recipe, run_id))
    assert list(world.store.list("")) == before


def test_a_request_that_differs_from_the_started_run_is_noted(world: World, recipe: Recipe) -> None:
    run = admit(world, run_request(recipe))
    assert request_differences(world.store, run, run_request(recipe)) == ()
    other = recipe.model_copy(update={"budget_usd": recipe.budget_usd * 2})
    request = run_request(other, budget_usd=Decimal("0.5")).with_terms(deadline_s=60.0, seed=8)
    (sentence,) = request_differences(world.store, find_or_admit(world, request), request)
    for part in (
        "a budget of $0.010000, not $0.5",
        "a deadline of None s, not 60.0",
        "the seed 7, not 8",
        "its recipe",
    ):
        assert part in sentence
    decision, _ = decide_and_reserve(world, run, request, StageInputs())
    assert sentence in decision.question.notes


def test_a_second_start_gets_the_money_that_the_first_left(world: World, recipe: Recipe) -> None:
    first = begin(world, run_request(recipe, needs=INGEST))
    spent_usd = Decimal("0.000010")
    first.ledger.settle("r", "ingest-1", spent_usd)
    settle_run(world, "r")
    request = run_request(recipe, needs=INGEST, budget_usd=Decimal("0.02"))
    second = admit(world, request)
    assert first.ledger.state(second.start.account).cap_usd == request.budget_usd - spent_usd
    decision, _ = decide_and_reserve(world, second, request, StageInputs())
    assert (decision.question.budget_usd, decision.question.spent_usd) == (request.budget_usd, spent_usd)


def test_a_declared_stage_budget_caps_the_stage_over_several_starts(world: World, recipe: Recipe) -> None:
    cap_usd = Decimal("0.000200")
    capped = recipe.model_copy(update={"stage_budgets_usd": {"ingest": cap_usd}})
    first = begin(world, run_request(capped, needs=INGEST))
    p95_usd = first.attempt.choice.p95_usd
    with pytest.raises(BudgetExceeded):
        first.ledger.extend("r", "ingest-1", cap_usd - p95_usd + MICRO)
    first.ledger.extend("r", "ingest-1", cap_usd - p95_usd)
    first.ledger.settle("r", "ingest-1", cap_usd - p95_usd)
    settle_run(world, "r")

    second = begin(world, run_request(capped, needs=INGEST))
    assert second.attempt.decision.question.stage_budgets == {"ingest": p95_usd}
    assert second.ledger.state("r.2").stages["ingest"].cap_usd == p95_usd
    with pytest.raises(BudgetExceeded):
        second.ledger.extend("r.2", "ingest-2", MICRO)
    second.ledger.settle("r.2", "ingest-2", p95_usd)
    settle_run(world, "r")

    with pytest.raises(Refused):
        admit(world, run_request(capped, needs=INGEST))
    assert account_names(world.store)[-2:] == ["r", "r.2"]


def test_admission_does_not_pay_for_cached_results(finished: Finished, tmp_path: Path) -> None:
    """A budget too small for a store without cached results is enough with them, at equal receipts, where
    the pods that return them are known to be quick.
    """
    shutil.copytree(finished.store, tmp_path / "warm")
    for folder in ("runs", "learned"):
        shutil.copytree(finished.store / folder, tmp_path / "cold" / folder)
    warm = open_local_world(finished.world, store=tmp_path / "warm")
    cold = open_local_world(finished.world, store=tmp_path / "cold")
    pods_s = (1.0,) * MIN_PODS
    quick = EngineSample(engine="local", measured_at=warm.clock.now(), steps_s=(), places_s=(), pods_s=pods_s)
    for world in (cold, warm):
        world.store.put(store_layout.engine_samples("local", "quick.json"), record_bytes(quick))
    recipe = read_recipe(finished.recipe)
    smallest_usd = []
    for world in (cold, warm):
        with pytest.raises(BudgetTooSmall) as refused:
            admit(world, replace(run_request(recipe, budget_usd=MICRO), run_id="small").with_terms(seed=8))
        smallest_usd.append(refused.value.smallest_usd)
    assert smallest_usd[1] < smallest_usd[0]
    # Another seed is another training.
    decision = read_record(warm.store, "runs/small/decisions/train-1.json", Decision)
    assert "nothing is paid for ingest and preprocess: the results are cached" in decision.question.notes
    with pytest.raises(BudgetTooSmall) as refused:
        admit(warm, replace(run_request(recipe, budget_usd=MICRO), run_id="same").with_terms(seed=7))
    assert refused.value.smallest_usd < smallest_usd[1]
    decision = read_record(warm.store, "runs/same/decisions/evaluate-1.json", Decision)
    assert decision.question.cached_outcome is not None
    note = "nothing is paid for ingest, preprocess and train: the results are cached"
    assert note in decision.question.notes
    enough = replace(run_request(recipe, budget_usd=smallest_usd[1]), run_id="enough").with_terms(seed=8)
    first, _ = decide_and_reserve(warm, admit(warm, enough), enough, StageInputs())
    assert first.choice is not None and first.choice.cached
    assert [each.reserved_usd == 0 for each in first.plan] == [True, False, False]
    # Admission does not look up results of an author's own stage, because only its router knows its code.
    request = run_request(recipe, run_id="own", needs=(*INGEST, Need(stage="dedupe")))
    own = admit(warm, request.with_terms(seed=7))
    assert own.starts


LOOKS = """
import sys
import traceback
from pathlib import Path
looks = []

def note(event, about):
    if event == "open" and str(about[0]).endswith("flights.csv"):
        looks.append("page_of_run" in [frame.name for frame in traceback.extract_stack()])

sys.addaudithook(note)
from runtime_world import run_request, small_world
from shoestring.data.inspect.page import page_of_run
from shoestring.runtime.admission.admit import admit
laptop, folder, recipe = map(Path, sys.argv[1:])
world, request, said = small_world(laptop, folder), run_request(recipe), []
page_of_run(request.recipe)
one_look = looks.count(True)
admit(world, request, said.append)
print(one_look, looks.count(True) - one_look, *said, sep="\\n")
"""


def test_an_admission_looks_at_the_data_once_and_says_what_will_be_predicted(
    laptop: Path, tmp_path: Path, flights_slice: Path
) -> None:
    """An audit hook stays for the rest of a process, so this is a process of its own."""
    ran = subprocess.run(
        [sys.executable, "-c", LOOKS, str(laptop), str(tmp_path), str(flights_slice)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    one_look, admission, sentence, *readings = ran.stdout.splitlines()
    assert one_look == admission != "0"
    assert sentence == "target arr_delay: binary, whether it is above 15 (`target.above`)"
    assert readings[0].startswith("columns: year, month, day, ")


def test_a_start_that_another_process_made_meanwhile_is_not_followed_by_a_second_one(
    world: World, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = run_request(recipe, budget_usd=Decimal("0.05"))
    with subprocess.Popen(["sleep", "60"]) as other:
        monkeypatch.setenv(LAUNCHER_VARIABLE, str(process_ref(psutil.Process(other.pid))))
        admit(world, request)
        monkeypatch.setenv(LAUNCHER_VARIABLE, str(world.pod))
        with pytest.raises(Refused, match="another process has just started r: follow it with"):
            admit(world, request)
        assert len(open_run(world.store, "r").starts) == 1
        other.kill()
    settle_run(world, "r")
    assert len(admit(world, request).starts) == 2
