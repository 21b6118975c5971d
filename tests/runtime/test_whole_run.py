"""One run of the compiled pipeline on real data: its summary, ledger, outputs, replay and cache."""

import json
import re
import shutil
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pytest
from commands import Finished, shoestring

from shoestring.config.engines import ASSUMED_STEP_S

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


def test_summary_and_report_count_the_evaluations_on_the_test_days(finished: Finished) -> None:
    sentence = finished.ran.json["sealed_test"]
    assert re.fullmatch(r"the 1st evaluation on these \d+ days", sentence)
    assert sentence in (finished.out / "report.html").read_text(encoding="utf-8")


def test_stages_and_overhead_add_up_to_the_spending_of_the_run(finished: Finished) -> None:
    summary = finished.ran.json
    stages_usd = sum(Decimal(stage["spent_usd"]) for stage in summary["stages"])
    assert stages_usd + Decimal(summary["overhead_usd"]) == Decimal(summary["spent_usd"])


def test_the_time_of_the_engine_is_what_lies_between_the_stages(finished: Finished) -> None:
    summary, receipts = finished.ran.json, (finished.out / "receipts").glob("*.json")
    stages = sorted((json.loads(path.read_text()) for path in receipts), key=lambda each: each["started_at"])
    steps_s = (
        (datetime.fromisoformat(after["started_at"]) - datetime.fromisoformat(before["finished_at"]))
        for before, after in pairwise(stages)
    )
    assert summary["engine_s"] == pytest.approx(sum(step.total_seconds() for step in steps_s), abs=0.002)
    assert summary["engine_planned_s"] == 3 * ASSUMED_STEP_S["local"]
    again = finished.again("run", "--resume", summary["run_id"], "--out", finished.out)
    assert "between the stages, 9.00 s planned" in again.out
    assert "between the stages, 9.00 s planned" in (finished.out / "report.html").read_text()


def test_the_output_folder_holds_the_model_the_report_and_the_records(finished: Finished) -> None:
    names = {path.relative_to(finished.out).parts[0] for path in finished.out.rglob("*") if path.is_file()}
    assert names >= {"decisions", "receipts", "ledger", "report.html", "model"}
    assert len(list((finished.out / "receipts").glob("*.json"))) == 4


def test_the_model_is_used_from_the_files_of_the_run_and_from_the_store(
    finished: Finished, tmp_path: Path
) -> None:
    lineage = json.loads((finished.out / "model" / "lineage.json").read_text())
    assert [*lineage["model"]["files"]] and len(lineage["decisions"]) == len(lineage["receipts"]) == 4
    rows = finished.recipe.parent / "flights.csv"
    for name, model in (("files", finished.out), ("store", finished.ran.json["run_id"])):
        ran = finished.again("predict", model, rows, "--out", tmp_path / f"{name}.csv", "--json")
        assert ran.code == 0, ran.err
        assert ran.json["rows"] == len(rows.read_text().splitlines()) - 1
    assert (tmp_path / "files.csv").read_bytes() == (tmp_path / "store.csv").read_bytes()
    refused = finished.again("predict", "no-run", rows, "--out", tmp_path / "none.csv", "--json")
    assert (refused.code, refused.json["status"]) == (2, "usage") and "no-run" in refused.json["error"]


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


def engine_samples(store: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (store / "learned" / "engines").rglob("*.json")}


def test_a_second_run_pays_for_no_stage_and_its_report_is_whole(finished: Finished, tmp_path: Path) -> None:
    """More money and time change nothing: the first training ended because its loss stopped improving."""
    samples = engine_samples(finished.store)
    more = ("--budget", "0.01", "--deadline", "600")
    ran = finished.again("run", finished.recipe, *more, "--out", tmp_path, "--seed", "7", "--json")
    assert ran.code == 0, ran.err
    assert [(stage["name"], stage["cache_hit"]) for stage in ran.json["stages"]] == [
        (name, True) for name in STAGES
    ]
    assert {stage["spent_usd"] for stage in ran.json["stages"]} == {"0.000000"}
    assert Decimal(ran.json["spent_usd"]) == Decimal(ran.json["overhead_usd"]) > 0
    # No engine was started, and none was measured.
    assert not (tmp_path / "log.txt").exists() and ran.json["engine_s"] == 0
    assert engine_samples(finished.store) == samples
    assert ran.json["quality"] == finished.ran.json["quality"]
    for name in ("curve.json", "evaluation.json", "model/SHA256SUMS"):
        assert (tmp_path / name).read_bytes() == (finished.out / name).read_bytes(), name
    report = (tmp_path / "report.html").read_text()
    first = finished.ran.json["run_id"]
    assert f"Run {first} made this evaluation of the same model and data." in report
    assert f"Run {first} trained this model and paid for it." in report


def test_another_seed_trains_again_and_evaluates_with_its_own_baseline(
    finished: Finished, tmp_path: Path
) -> None:
    ran = finished.again("run", finished.recipe, "--out", tmp_path, "--seed", "8", "--json")
    assert ran.code == 0, ran.err
    assert [stage["cache_hit"] for stage in ran.json["stages"]] == [True, True, False, False]
    evaluation = json.loads((tmp_path / "evaluation.json").read_text())
    assert evaluation["baselines"][1]["fit"]["run_id"] == ran.json["run_id"]
    assert evaluation["training_cpu_s"] > 0


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
    # The month's account has other runs, too, so its head moves on.
    found, before = (dict(each.json) for each in (ran, finished.ran))
    own, own_before = (
        [head for head in each.pop("ledger_heads") if head["account"] == run_id] for each in (found, before)
    )
    assert (own, found) == (own_before, before) and len(own) == 1


@pytest.mark.slow
def test_a_damaged_cached_object_is_computed_again(finished: Finished, tmp_path: Path) -> None:
    store = shutil.copytree(finished.store, tmp_path / "store")
    manifest = json.loads(next(iter(sorted((store / "datasets").rglob("*.json")))).read_text())
    part = next(iter(manifest["splits"].values()))[0]
    blob = store / "blobs" / part["sha256"]
    content = blob.read_bytes()
    blob.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    ran = finished.again(
        "run", finished.recipe, "--out", tmp_path / "out", "--seed", "7", "--json", store=store
    )
    assert ran.code == 0, ran.err
    assert not all(stage["cache_hit"] for stage in ran.json["stages"][:2])
