"""One run of the compiled pipeline on real data: its summary, ledger, outputs, replay and cache."""

import json
import shutil
from decimal import Decimal
from pathlib import Path

import pytest
from commands import Finished, shoestring

STAGES = ["ingest", "preprocess", "train", "evaluate"]
CONTRACT = {
    "name",
    "pool",
    "market",
    "format",
    "budget_usd",
    "est_usd",
    "p95_usd",
    "spent_usd",
    "seconds",
    "cache_hit",
}


def test_the_summary_keeps_its_contract(finished: Finished) -> None:
    summary = finished.ran.json
    assert summary["status"] == "done"
    assert [stage["name"] for stage in summary["stages"]] == STAGES
    assert all(set(stage) >= CONTRACT for stage in summary["stages"])
    assert isinstance(summary["spent_usd"], str)
    assert 0 < Decimal(summary["spent_usd"]) <= Decimal(summary["budget_usd"])
    assert 0 < summary["quality"]["log_loss"] < 1


def test_stages_and_overhead_add_up_to_the_spending_of_the_run(finished: Finished) -> None:
    summary = finished.ran.json
    stages_usd = sum(Decimal(stage["spent_usd"]) for stage in summary["stages"])
    assert stages_usd + Decimal(summary["overhead_usd"]) == Decimal(summary["spent_usd"])


def test_the_output_folder_holds_the_model_the_report_and_the_records(finished: Finished) -> None:
    names = {path.relative_to(finished.out).parts[0] for path in finished.out.rglob("*") if path.is_file()}
    assert names >= {"decisions", "receipts", "ledger", "report.html", "model"}
    assert len(list((finished.out / "receipts").glob("*.json"))) == 4


def test_every_decision_replays_byte_for_byte(finished: Finished) -> None:
    decisions = sorted((finished.out / "decisions").glob("*.json"))
    assert len(decisions) == 4
    for path in decisions:
        assert shoestring("replay", path).code == 0


def test_the_ledger_verifies_and_nothing_is_held(finished: Finished) -> None:
    for folder in (finished.store, finished.store / "ledger", finished.out / "ledger"):
        assert shoestring("ledger", "verify", "--store", folder).code == 0
    accounts = finished.again("ledger", "show", "--json").json
    assert {account["held_usd"] for account in accounts} == {"0.000000"}
    assert all(account["closed"] for account in accounts if account["parent"])


def test_a_second_run_reuses_ingest_and_preprocess_at_no_cost(finished: Finished, tmp_path: Path) -> None:
    ran = finished.again("run", finished.recipe, "--out", tmp_path, "--seed", "7", "--json")
    assert ran.code == 0, ran.err
    stages = {stage["name"]: stage for stage in ran.json["stages"]}
    assert [stages[name]["cache_hit"] for name in STAGES] == [True, True, False, False]
    assert stages["ingest"]["spent_usd"] == stages["preprocess"]["spent_usd"] == "0.000000"


@pytest.mark.slow
def test_the_same_seed_world_data_and_probe_make_the_same_choices(finished: Finished, tmp_path: Path) -> None:
    shutil.copytree(finished.store / "learned" / "probes", tmp_path / "store" / "learned" / "probes")
    ran = finished.again(
        "run", finished.recipe, "--out", tmp_path / "out", "--seed", "7", "--json", store=tmp_path / "store"
    )
    assert ran.code == 0, ran.err
    chosen = [
        [[stage[name] for name in ("name", "pool", "market", "format")] for stage in one.json["stages"]]
        for one in (ran, finished.ran)
    ]
    assert chosen[0] == chosen[1]
    encoded = [
        sorted((store / "datasets").rglob("*.json"))[0].name for store in (tmp_path / "store", finished.store)
    ]
    assert encoded[0] == encoded[1]


def test_a_finished_run_that_is_resumed_has_nothing_left_to_do(finished: Finished, tmp_path: Path) -> None:
    run_id = finished.ran.json["run_id"]
    ran = finished.again("run", "--resume", run_id, "--out", tmp_path, "--json")
    assert ran.code == 0, ran.err
    assert ran.json == finished.ran.json


@pytest.mark.slow
def test_a_damaged_cached_object_is_computed_again(finished: Finished, tmp_path: Path) -> None:
    store = shutil.copytree(finished.store, tmp_path / "store")
    manifest = json.loads(next(iter(sorted((store / "datasets").rglob("*.json")))).read_text())
    part = next(iter(manifest["splits"].values()))[0]
    blob = store / "blobs" / part["sha256"]
    blob.write_bytes(blob.read_bytes()[:-1] + b"\0")
    ran = finished.again(
        "run", finished.recipe, "--out", tmp_path / "out", "--seed", "7", "--json", store=store
    )
    assert ran.code == 0, ran.err
    assert not all(stage["cache_hit"] for stage in ran.json["stages"][:2])
