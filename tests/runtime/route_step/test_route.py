"""The route step: races with other runs, cached results that are damaged, and records of other versions."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from runtime_world import INGEST, MONEY, TRAIN, SetClock, on, run_request, small_world

from shoestring.backends.folder_store import FolderStore
from shoestring.config.budgets import Budgets
from shoestring.config.world import World
from shoestring.core.errors import BudgetExceeded, Refused
from shoestring.core.pod_ref import PodRef
from shoestring.core.receipt import Receipt
from shoestring.core.record import record_bytes
from shoestring.core.types import Format, Market, StageOutcome
from shoestring.data.recipe import Recipe
from shoestring.data.recipe_files import read_recipe
from shoestring.data.run_records import read_record
from shoestring.data.storage import cache
from shoestring.data.storage.blobs import load_manifest
from shoestring.routing.analysis.replay import replay
from shoestring.routing.decision import Decision
from shoestring.runtime.admission.admit import admit
from shoestring.runtime.admission.first_request import RunRequest
from shoestring.runtime.admission.result_keys import StageInputs, StageWork, saving_key
from shoestring.runtime.records.overhead import OverheadTime, overhead_times
from shoestring.runtime.records.receipt_history import write_receipt
from shoestring.runtime.route_step.route import MAX_RACES, decide_and_reserve, route
from shoestring.runtime.supervisor.run_stage import return_cached
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.ledger.settlement import book_cost
from shoestring.spending.meter import Meter
from shoestring.stages import ingest, preprocess, train
from shoestring.stages.work import Work
from shoestring.training.families.recipe_needs import RecipeNeeds


class RivalStore(FolderStore):
    """A store in which another writer acts just before this account's ledger is written, `times` times."""

    def __init__(self, root: Path, account: str, rival: Callable[[], object], times: int = 1) -> None:
        super().__init__(root)
        self._prefix, self._rival, self._left = f"ledger/{account}/0", rival, times

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = "standard"
    ) -> bool:
        if key.startswith(self._prefix) and self._left:
            self._left -= 1
            self._rival()
        return super().put(key, data, if_absent=if_absent, storage_class=storage_class)


@pytest.fixture
def world(laptop: Path, tmp_path: Path) -> World:
    return small_world(laptop, tmp_path, SetClock())


def elastic_request(flights_slice: Path) -> RunRequest:
    """Return a request with enough passes over the data that training uses all money left."""
    recipe = read_recipe(flights_slice)
    many = recipe.model_copy(update={"train": recipe.train.model_copy(update={"max_epochs": 60})})
    return run_request(many, needs=TRAIN, budget_usd=Decimal("0.0006"))


def test_an_epoch_over_a_share_of_the_rows_is_that_share_of_a_pass(flights_slice: Path) -> None:
    recipe = elastic_request(flights_slice).recipe
    tenth = recipe.model_copy(update={"train": recipe.train.model_copy(update={"rows_share": 0.1})})
    hundredth = tenth.model_copy(
        update={"train": tenth.train.model_copy(update={"rows_share": 0.01, "max_epochs": 1})}
    )
    passes = [
        (need.passes, need.min_passes)
        for need in (RecipeNeeds(each).of_stage(train.NEED) for each in (recipe, tenth, hundredth))
    ]
    assert passes == [(60.0, 0.1), (6.0, 0.1), (0.01, 0.01)]
    assert RecipeNeeds(tenth).of_stage(preprocess.NEED).passes == preprocess.NEED.passes


def reserve_from_rival(world: World, amount_usd: Decimal) -> Callable[[], None]:
    """Another writer, which reserves this much of the run's money each time."""
    ledger, numbers = Ledger(world.store, world.clock), itertools.count(1)

    def take() -> None:
        number = next(numbers)
        ledger.reserve("r", f"rival-{number}", "rival", number, amount_usd)

    return take


def test_a_lost_race_is_decided_again_with_current_numbers(
    world: World, flights_slice: Path, tmp_path: Path
) -> None:
    request = elastic_request(flights_slice)
    run = admit(world, request)
    rivals_usd = Decimal("0.0001")
    before = Ledger(world.store, world.clock).state("r")
    crowded = on(world, RivalStore(tmp_path / "store", "r", reserve_from_rival(world, rivals_usd)))
    decision, key = decide_and_reserve(crowded, run, request, StageInputs())
    assert decision.choice is not None
    assert decision.question.held_usd == before.held_usd + rivals_usd
    assert before.left_usd is not None
    assert decision.choice.p95_usd == before.left_usd - rivals_usd
    state = Ledger(world.store, world.clock).state("r")
    assert state.reservations["train-1"].amount_usd == decision.choice.p95_usd
    assert state.left_usd == 0
    assert replay(world.store.fetch(key).read_bytes()).verdict == "same"


def test_neither_a_decision_nor_another_start_has_what_a_stage_cost_beyond_its_own_cap(
    world: World, flights_slice: Path
) -> None:
    cap_usd, cost_usd = Decimal("0.001"), Decimal("0.004")
    world = replace(world, budgets=Budgets(stages={"ingest": cap_usd}))
    run, ledger = admit(world, run_request(flights_slice)), Ledger(world.store, world.clock)
    ledger.reserve("r", "ingest-1", "ingest", 1, cap_usd)
    ledger.settle("r", "ingest-1", cap_usd)
    assert book_cost(ledger, "r", "ingest-1", cost_usd, "a slow exit") == cost_usd - cap_usd
    decision, _ = decide_and_reserve(world, run, run_request(flights_slice, needs=TRAIN), StageInputs())
    assert decision.question.spent_usd == cost_usd
    held_usd = ledger.state("r").held_usd
    again = admit(world, run_request(flights_slice, needs=TRAIN, budget_usd=2 * MONEY))
    assert ledger.state(again.start.account).cap_usd == 2 * MONEY - cost_usd - held_usd


def test_a_race_that_is_always_lost_ends_and_reserves_nothing(
    world: World, flights_slice: Path, tmp_path: Path
) -> None:
    request = elastic_request(flights_slice)
    run = admit(world, request)
    crowded = on(
        world, RivalStore(tmp_path / "store", "r", reserve_from_rival(world, Decimal("0.00002")), MAX_RACES)
    )
    with pytest.raises(BudgetExceeded):
        decide_and_reserve(crowded, run, request, StageInputs())
    assert "train-1" not in Ledger(world.store, world.clock).state("r").reservations
    assert list(world.store.list("runs/r/decisions/")) == []
    decision, _ = decide_and_reserve(crowded, run, request, StageInputs())
    assert decision.question.attempt == 1


def test_a_race_whose_winner_left_too_little_is_refused_with_the_numbers(
    world: World, flights_slice: Path, tmp_path: Path
) -> None:
    request = run_request(flights_slice, needs=INGEST)
    run = admit(world, request)
    free_usd = Ledger(world.store, world.clock).state("r").left_usd
    assert free_usd is not None
    crowded = on(
        world, RivalStore(tmp_path / "store", "r", reserve_from_rival(world, free_usd - Decimal("0.000001")))
    )
    with pytest.raises(Refused, match=r"\$0\.000001"):
        decide_and_reserve(crowded, run, request, StageInputs())
    assert read_record(world.store, "runs/r/decisions/ingest-1.json", Decision).choice is None


def ingested(world: World, recipe: Recipe, folder: Path) -> StageOutcome:
    """Run ingest and cache the result, as the stage's pod does."""
    work = Work(
        run_id="before",
        stage="ingest",
        attempt=1,
        seed=7,
        inputs={},
        recipe=recipe,
        format=Format.PACKED,
        cores=1,
        store=world.store,
        meter=Meter(Decimal("0.04"), 0.0, Decimal(1), None),
        clock=world.clock,
        scratch=folder,
        report_progress=lambda _: None,
        should_stop=lambda: False,
    )
    outcome = ingest.run(work)
    before = StageWork(recipe, 7, "before", "ingest", "", StageInputs())
    key, made_from = saving_key(world, before, only_its_run=False)
    cache.save_outcome(world.store, key, outcome, made_from)
    return outcome


def test_a_cached_result_costs_its_pools_price(world: World, flights_slice: Path, tmp_path: Path) -> None:
    request = run_request(flights_slice, needs=INGEST)
    outcome = ingested(world, request.recipe, tmp_path)
    run = admit(world, request)
    decision, _ = decide_and_reserve(world, run, request, StageInputs())
    choice = decision.choice and decision.choice.model_copy(update={"usd_per_hour": Decimal("0.7")})
    on_gpus = decision.model_copy(update={"choice": choice})
    assert return_cached(world, run, on_gpus, "") == outcome
    (pod,) = overhead_times(world, run, run.start)
    assert pod.usd_per_hour == Decimal("0.7") > run.start.overhead_usd_per_hour


def test_a_cached_result_reserves_nothing_and_a_damaged_one_is_not_used(
    world: World, flights_slice: Path, tmp_path: Path
) -> None:
    request = run_request(flights_slice, needs=INGEST)
    outcome = ingested(world, request.recipe, tmp_path)
    run = admit(world, request)
    decision, _ = decide_and_reserve(world, run, request, StageInputs())
    assert decision.choice is not None
    assert decision.choice.cached
    assert (decision.choice.p95_usd, decision.question.cached_format) == (0, Format.PACKED)
    assert Ledger(world.store, world.clock).state("r").reservations.keys() == {"overhead-1"}

    part = load_manifest(world.store, outcome.key).splits["flights"][0]
    blob = world.store.fetch(part.key)
    blob.write_bytes(blob.read_bytes()[:-1] + b"!")
    decision, _ = decide_and_reserve(world, run, request, StageInputs())
    assert decision.choice is not None
    assert not decision.choice.cached
    assert decision.question.cached_outcome is None
    assert (
        Ledger(world.store, world.clock).state("r").reservations["ingest-2"].amount_usd
        == decision.choice.p95_usd
    )


def receipt(run_id: str, number: int, finished_at: datetime, seconds: float) -> Receipt:
    return Receipt(
        run_id=run_id,
        stage="ingest",
        attempt=number,
        pod=PodRef.parse("host.1.1"),
        decision_key="",
        status="done",
        pool="cpu-1",
        market=Market.ON_DEMAND,
        format=None,
        cache_hit=False,
        budget_usd=Decimal(1),
        est_usd=Decimal(0),
        p95_usd=Decimal(0),
        est_s=seconds,
        prior_s=2.0,
        spent_usd=Decimal(0),
        started_at=finished_at - timedelta(seconds=seconds),
        finished_at=finished_at,
        seconds=seconds,
        ledger_head="",
    )


def test_estimates_inside_a_run_do_not_change_when_another_runs_receipts_arrive(
    world: World, flights_slice: Path
) -> None:
    request = run_request(flights_slice, needs=INGEST)
    earlier = receipt("earlier", 1, world.clock.now() - timedelta(hours=1), 3.0)
    world.store.put("runs/earlier/receipts/ingest-1.json", record_bytes(earlier))
    run = admit(world, request)
    first, _ = decide_and_reserve(world, run, request, StageInputs())
    assert {(one.stage, one.runs) for one in first.question.learned} == {("ingest", 1)}

    world.clock.sleep(30)
    for number in range(2, 6):
        write_receipt(world.store, receipt("later", number, world.clock.now(), 60.0))
    second, _ = decide_and_reserve(world, run, request, StageInputs())
    assert second.question.learned == first.question.learned
    assert second.candidates == first.candidates

    world.clock.sleep(1)
    other = run_request(flights_slice, run_id="other", needs=INGEST)
    third, _ = decide_and_reserve(world, admit(world, other), other, StageInputs())
    assert {one.runs for one in third.question.learned} == {5}


def test_records_of_another_version_stop_no_router(world: World, flights_slice: Path) -> None:
    good = record_bytes(receipt("earlier", 1, world.clock.now() - timedelta(hours=1), 3.0))
    world.store.put("learned/receipts/ingest/0-01.json", good)
    world.store.put(
        "learned/receipts/ingest/0-02.json", good.replace(b'"attempt": 1', b'"attempt": 2, "of_tomorrow": 1')
    )
    world.store.put("learned/stock-outs/od-spot.json", b"{}")
    request = run_request(flights_slice, needs=INGEST)
    decision, _ = decide_and_reserve(world, admit(world, request), request, StageInputs())
    assert {(one.stage, one.runs) for one in decision.question.learned} == {("ingest", 1)}
    about_receipt, about_stock_out = decision.question.notes[-2:]
    assert "learned/receipts/ingest/0-02.json" in about_receipt and "of_tomorrow" in about_receipt
    assert "learned/stock-outs/od-spot.json" in about_stock_out


def test_a_router_writes_its_decision_its_page_and_its_time(
    world: World, flights_slice: Path, tmp_path: Path
) -> None:
    request = run_request(flights_slice, needs=INGEST)
    outputs = route(world, request, StageInputs(), str(tmp_path / "decision.json"), str(tmp_path / "page.md"))
    assert (tmp_path / "decision.json").read_bytes() == world.store.fetch(
        outputs["decision_key"]
    ).read_bytes()
    assert "ingest" in (tmp_path / "page.md").read_text()
    keys = list(world.store.list("runs/r/overhead/1/route-ingest."))
    assert len(keys) == 1
    assert read_record(world.store, keys[0], OverheadTime).finished_at == world.clock.now()
