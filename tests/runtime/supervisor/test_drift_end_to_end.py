"""End to end, in real processes: a machine becomes slower, or a price rises, while a training runs."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import psutil
import pytest
from runtime_world import TRAIN, small_world
from small_dataset import dataset

from shoestring.backends.folder_store import FolderStore
from shoestring.core.receipt import Receipt
from shoestring.data.recipe import Recipe, Source, Target
from shoestring.data.run_records import read_record
from shoestring.runtime.admission.admit import admit
from shoestring.runtime.admission.first_request import recipe_request
from shoestring.runtime.admission.stage_request import StageInputs
from shoestring.runtime.route_step.route import decide_and_reserve
from shoestring.runtime.supervisor.attempt import Attempt
from shoestring.runtime.supervisor.run_stage import settle_and_record
from shoestring.runtime.supervisor.supervisor import supervise
from shoestring.spending.heartbeat import last_heartbeat
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.meter import cost_between_usd
from shoestring.training.families.table_net.settings import TableNetSettings
from shoestring.training.model_record import ModelRecord

ROWS = {"train": 20_000, "val": 2000, "test": 100}
SETTINGS = TableNetSettings(max_epochs=1000, hidden=(16,), bins=4, patience=100_000, learning_rate=0.005)
BUDGET_USD = Decimal("0.008")


def write_world(path: Path, usd_per_hour: str) -> Path:
    row = f"{{pool: cpu-1, market: spot, usd_per_hour: '{usd_per_hour}', as_of: 2026-11-01, source: a test}}"
    pool = "{name: cpu-1, cores: 1, memory_gb: 4, markets: {spot: {}}}"
    temporary = path.with_suffix(".new")
    temporary.write_text(f"name: one\nstore: {path.parent / 'store'}\npools: [{pool}]\nprices: [{row}]\n")
    return temporary.replace(path)


def raise_price(attempt: Attempt, world_file: Path) -> Iterator[None]:
    """Triple the price."""
    write_world(world_file, "2.40")
    yield


def slow_down(attempt: Attempt, world_file: Path) -> Iterator[None]:
    """Stop the process for nine tenths of the time, by signals, as a busy neighbour would."""
    child = next(
        each
        for each in psutil.Process().children()
        if "shoestring.runtime.supervisor.child" in each.cmdline()
    )
    while True:
        child.suspend()
        time.sleep(0.09)
        child.resume()
        time.sleep(0.01)
        yield


def disturbing(
    attempt: Attempt,
    disturb: Callable[[Attempt, Path], Iterator[None]],
    world_file: Path,
    over: threading.Event,
) -> None:
    """Disturb the training from when it has a plan until it ends."""
    while not over.wait(0.1):
        if attempt.progress.forecast is not None and attempt.progress.phase == "stable":
            break
    turns = disturb(attempt, world_file)
    with contextlib.suppress(psutil.NoSuchProcess):
        while not over.is_set() and next(turns, turns) is None:
            pass


def start_training(folder: Path, world_file: Path) -> Attempt:
    """An attempt at training that is admitted, routed and reserved."""
    world = small_world(world_file, folder)
    assert isinstance(world.store, FolderStore)
    data = dataset(world.store, folder, ROWS)
    (folder / "rows.csv").write_text("code,number,y\n" + "1,0.5,1\n" * 100)
    recipe = Recipe(
        name="mine",
        source={"rows": Source(path=folder / "rows.csv")},
        target=Target(column="y"),
        train=SETTINGS,
    )
    request = recipe_request("r", recipe, TRAIN, BUDGET_USD, None, 7)
    run = admit(world, request)
    decision, key = decide_and_reserve(world, run, request, StageInputs(data))
    assert decision.choice is not None
    return Attempt(
        world, run, decision, key, {"data": data}, world.clock.monotonic_s(), decision.choice.p95_usd
    )


@pytest.mark.slow
@pytest.mark.parametrize("disturb", [raise_price, slow_down])
def test_the_run_ends_within_its_budget_with_a_model_and_reports_its_changes(
    tmp_path: Path, disturb: Callable[[Attempt, Path], Iterator[None]]
) -> None:
    world_file = write_world(tmp_path / "world.yaml", "0.80")
    attempt = start_training(tmp_path, world_file)
    world, choice = attempt.world, attempt.choice
    over = threading.Event()
    thread = threading.Thread(target=disturbing, args=(attempt, disturb, world_file, over))
    thread.start()
    try:
        ending = supervise(attempt, str(world_file))
    finally:
        over.set()
        thread.join()
    settle_and_record(attempt, ending)
    assert ending.status == "done", ending.reason
    state = Ledger(world.store, world.clock).state(attempt.run.start.account)
    assert state.cap_usd is not None
    assert state.spent_usd <= state.cap_usd
    receipt = read_record(world.store, "runs/r/receipts/train-1.json", Receipt)
    assert receipt.spent_usd <= choice.budget_usd
    receipt_usd = cost_between_usd(receipt.prices, receipt.started_at, receipt.finished_at)
    assert receipt.spent_usd == pytest.approx(receipt_usd, abs=Decimal("0.0001"))
    assert [price.usd_per_hour for price in receipt.prices] == [
        Decimal("0.80"),
        *([Decimal("2.40")] if disturb is raise_price else []),
    ]
    lengths = [change for change in receipt.changes if change.lever == "length"]
    assert lengths, "the plan was not changed, or nobody told"
    assert "rows/s" in lengths[0].sentence
    assert receipt.forecast is not None
    model = read_record(world.store, "runs/r/model.json", ModelRecord)
    assert model.val_loss is not None
    assert model.val_loss < 0.6, "no better than saying nothing"
    heartbeat = last_heartbeat(world.store, "r", "train-1")
    assert heartbeat is not None
    assert heartbeat.changes == receipt.changes
