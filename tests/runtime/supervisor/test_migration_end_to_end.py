"""End to end, in real processes: a training migrates, and its ledger and its samples are complete."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest
from commands import Ran, shoestring
from runtime_world import TRAIN, check_sample_ranges, small_world
from small_dataset import dataset

from shoestring.backends.folder_store import FolderStore
from shoestring.core import store_layout
from shoestring.core.receipt import Receipt
from shoestring.core.record import SCHEMA_VERSION
from shoestring.data.recipe import Recipe, Source, Target
from shoestring.data.run_records import read_record
from shoestring.reporting.publish import export
from shoestring.routing.decision import Decision
from shoestring.routing.policy.migration import MigrationCheck
from shoestring.runtime.admission.stage_request import RemainingStages
from shoestring.spending.heartbeat import last_heartbeat
from shoestring.training.families.table_net.settings import TableNetSettings
from shoestring.training.model_record import ModelRecord

ROWS = {"train": 20_000, "val": 2000, "test": 100}
SETTINGS = TableNetSettings(max_epochs=200, hidden=(16,), bins=4, patience=100_000, learning_rate=0.005)
BUDGET_USD = Decimal("0.03")


def write_world(path: Path, one: str, two: str) -> Path:
    """Write a world of two pools with equal cores, on a floating market."""
    pools = "\n".join(
        f"  - {{name: {name}, cores: 1, memory_gb: 4, markets: {{spot: {{}}}}}}" for name in ("one", "two")
    )
    row = "{{pool: {}, market: spot, usd_per_hour: '{}', as_of: 2026-11-01, source: a test}}"
    prices = "\n".join(f"  - {row.format(*each)}" for each in (("one", one), ("two", two)))
    policy_line = "policy: {migration: {check_every_s: 1, min_dwell_s: 1, saving_over_disruption: 1}}"
    temporary = path.with_suffix(".new")
    temporary.write_text(
        f"name: two\nstore: {path.parent / 'store'}\n{policy_line}\npools:\n{pools}\nprices:\n{prices}\n"
    )
    return temporary.replace(path)


@dataclass
class Engine:
    """An engine, with a process for each call: route, run, retry a stage that migrates, settle."""

    store: FolderStore
    world_file: Path
    folder: Path
    recipe: Recipe
    data: str

    def _pod(self, *arguments: object) -> Ran:
        return shoestring(*arguments, "--run-id", "r", "--world", self.world_file)

    def attempt(self) -> Ran:
        needs, recipe = (
            RemainingStages(schema_version=SCHEMA_VERSION, needs=TRAIN, engine="local").model_dump_json(),
            self.recipe.model_dump_json(),
        )
        request = (
            "--recipe",
            recipe,
            "--budget",
            BUDGET_USD,
            "--upstream",
            self.data,
            "--out",
            self.folder / "routed",
        )
        routed = self._pod("route", "--needs", needs, *request)
        assert routed.code == 0, routed.err
        key = (self.folder / "routed" / "decision_key").read_text()
        return self._pod("stage", "train", "--decision-key", key, "--input", f"data={self.data}")

    def settle(self) -> Ran:
        return self._pod("settle", "--page", self.folder / "report.html")

    def disturb(self, over: threading.Event) -> None:
        """Multiply the price by five, once the learning rate is on its plateau."""
        while not over.wait(0.1):
            heartbeat = last_heartbeat(self.store, "r", "train-1")
            if heartbeat and heartbeat.phase == "stable":
                write_world(self.world_file, "2.00", "0.45")
                return


@pytest.fixture(scope="module")
def migrated_run(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """A training that began on `one`, the cheaper of two pools, until its price rose."""
    folder = tmp_path_factory.mktemp("migrated")
    world_file = write_world(folder / "world.yaml", "0.40", "0.45")
    store = small_world(world_file, folder).store
    assert isinstance(store, FolderStore)
    data = dataset(store, folder, ROWS)
    (folder / "rows.csv").write_text("code,number,y\n" + "1,0.5,1\n" * 100)
    recipe = Recipe(
        name="mine",
        source={"rows": Source(path=folder / "rows.csv")},
        target=Target(column="y"),
        train=SETTINGS,
    )
    engine, over = Engine(store, world_file, folder, recipe, data), threading.Event()
    thread = threading.Thread(target=engine.disturb, args=(over,))
    thread.start()
    try:
        first = engine.attempt()
    finally:
        over.set()
        thread.join()
    assert first.code == 1 and "migrates: two spot" in first.err, first.err
    second = engine.attempt()
    assert second.code == 0, second.err
    assert engine.settle().code == 0
    export(store, "r", folder / "out")
    return engine


def receipt(migrated_run: Engine, hold: str) -> Receipt:
    return read_record(migrated_run.store, f"runs/r/receipts/{hold}.json", Receipt)


@pytest.mark.slow
def test_a_migrating_training_stops_at_a_checkpoint_and_continues_on_the_other_pool(
    migrated_run: Engine,
) -> None:
    first, second = receipt(migrated_run, "train-1"), receipt(migrated_run, "train-2")
    assert (first.pool, first.status, first.cause) == ("one", "stopped", "migrated")
    assert (second.pool, second.status) == ("two", "done"), second.reason
    decision = read_record(migrated_run.store, store_layout.decision("r", "train-2"), Decision)
    assert any("attempt 1 stopped: migrates: two spot" in note for note in decision.question.notes)


@pytest.mark.slow
def test_each_attempt_teaches_with_its_own_samples(migrated_run: Engine) -> None:
    first, second = receipt(migrated_run, "train-1"), receipt(migrated_run, "train-2")
    one, two = (
        read_record(migrated_run.store, store_layout.decision("r", hold), Decision).choice
        for hold in ("train-1", "train-2")
    )
    before = last_heartbeat(migrated_run.store, "r", "train-1")
    assert first.is_learnable and second.is_learnable
    assert before is not None and one is not None and two is not None and second.outcome is not None
    assert first.prior_s == one.prior_s_of(before.samples)
    # The second attempt resumed from the checkpoint, which is no older than the last that the first reported.
    assert two.prior_s_of(1) < second.prior_s <= two.prior_s_of(second.outcome.samples - before.samples)


@pytest.mark.slow
def test_every_sample_is_trained_once_per_epoch_across_the_migration(migrated_run: Engine) -> None:
    model = read_record(migrated_run.store, "runs/r/model.json", ModelRecord)
    check_sample_ranges([each.model_dump() for each in model.sample_ranges])
    before = last_heartbeat(migrated_run.store, "r", "train-1")
    assert before is not None and 0 < before.samples < model.samples
    assert model.val_loss is not None and model.val_loss < 0.6, "no better than saying nothing"


@pytest.mark.slow
def test_one_ledger_holds_both_attempts_within_the_cap_and_verifies(migrated_run: Engine) -> None:
    first, second = receipt(migrated_run, "train-1"), receipt(migrated_run, "train-2")
    accounts = shoestring(
        "ledger",
        "show",
        "--store",
        migrated_run.folder / "store",
        "--world",
        migrated_run.world_file,
        "--json",
    ).json
    (account,) = (each for each in accounts if each["parent"])
    assert Decimal(account["held_usd"]) == 0 and account["closed"]
    spent_usd = Decimal(account["spent_usd"])
    assert first.spent_usd + second.spent_usd <= spent_usd <= BUDGET_USD
    for folder in (migrated_run.folder / "store", migrated_run.folder / "out" / "ledger"):
        assert shoestring("ledger", "verify", "--store", folder).code == 0


@pytest.mark.slow
def test_the_reason_for_the_migration_and_the_comparison_are_reported(migrated_run: Engine) -> None:
    last_check = read_record(migrated_run.store, store_layout.migration_check("r", "train-1"), MigrationCheck)
    assert last_check.decision.migrates and last_check.target is not None and last_check.target.pool == "two"
    result = shoestring("explain", migrated_run.folder / "out" / "decisions" / "train-1.json").out
    assert (
        "Last migration check" in result and "migrates: two spot at $0." in result and "runs here" in result
    )
    assert (
        "## Last migration check"
        in shoestring("explain", migrated_run.folder / "out" / "decisions" / "train-1.json", "--markdown").out
    )
    page = (migrated_run.folder / "report.html").read_text()
    assert "Migration checks" in page and "migrates: two spot at $0." in page
    assert shoestring("replay", migrated_run.folder / "out" / "decisions" / "train-2.json").code == 0
