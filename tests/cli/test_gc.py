"""`shoestring gc` and `shoestring where`, on a copy of a store with two real runs."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from commands import Finished, shoestring
from stored_lab import Lab
from stored_runs import dangling

from shoestring.data.storage.blobs import open_blob, put_blob


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


@dataclass(frozen=True)
class Collection:
    """A lab whose garbage was deleted, with its keys before that and what the commands printed."""

    lab: Lab
    before: set[str]
    dry: Any
    after_dry: set[str]
    text: str
    deletion: Any


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    """A deletion waits for some seconds."""
    lab = Lab(tmp_path_factory.mktemp("collected"))
    before = lab.store.all_keys()
    dry = lab("gc", "--keep-days", "30", "--json").json
    after_dry, text = lab.store.all_keys(), lab("gc", "--keep-days", "30").out
    deletion = lab("gc", "--keep-days", "30", "--delete", "--json").json
    return Collection(lab, before, dry, after_dry, text, deletion)


def test_nothing_is_deleted_without_delete_and_then_exactly_what_was_listed(collected: Collection) -> None:
    lab, dry = collected.lab, collected.dry
    assert collected.after_dry == collected.before and not dry["deleted"]
    assert (dry["kept_runs"], dry["expired_runs"]) == (1, [lab.store.stopped])
    assert "--delete deletes it" in collected.text and collected.deletion["deleted"]
    assert collected.before - lab.store.all_keys() == set(dry["keys"])
    assert "nothing to delete" in lab("gc", "--keep-days", "30").out


def test_its_bytes_and_dollars_are_those_of_the_objects(lab: Lab) -> None:
    sizes = {key: found.size_bytes for key, found in lab.store.objects("").items()}
    garbage = lab("gc", "--keep-days", "5", "--json").json
    size_bytes = sum(sizes[key] for key in garbage["keys"])
    assert garbage["garbage"]["size_bytes"] == size_bytes > 500_000
    assert Decimal(garbage["garbage"]["usd_per_month"]) == Decimal(size_bytes * 0.5e-9).quantize(
        Decimal("0.000001"), rounding="ROUND_CEILING"
    )
    whole = lab("where", "--json").json["holdings"]
    assert (whole["objects"], whole["size_bytes"]) == (len(sizes), sum(sizes.values()))
    assert {each["kind"]: each["objects"] for each in whole["kinds"]} == {
        "data sets": 8,
        "models": 1,
        "checkpoints": 2,
        "records of runs": 39,
        "cache": 7,
        "ledger": 39,
        "learned": 9,
        "other blobs": 11,
        "other": 5,
    }


def test_the_kept_run_is_as_before_and_the_books_of_both(collected: Collection, tmp_path: Path) -> None:
    lab = collected.lab
    for arguments in (("ledger", "verify"), ("replay",), ("runs",), ("actuals",)):
        lab(*arguments)
    for run_id in (lab.store.done, lab.store.stopped):
        lab("report", run_id, "--out", tmp_path / run_id)
        assert (tmp_path / run_id / "report.html").stat().st_size > 10_000
    model = json.loads(lab.store.fetch(f"runs/{lab.store.done}/model.json").read_text())
    assert open_blob(lab.store, model["weights_sha256"]).is_file()
    assert list(dangling(lab.store)) == []


@pytest.mark.parametrize(
    ("retention", "is_expired"),
    [
        ({}, False),
        ({"keep_days": 30}, True),
        ({"keep_days": 50}, False),
        ({"keep_runs": 1}, False),
        ({"keep_days": 30, "keep_runs": 1}, False),
        ({"keep_days": 30, "grace_hours": 1000}, False),
    ],
)
def test_the_policy_sets_the_windows_and_options_override_them(
    lab: Lab, retention: dict[str, float], is_expired: bool
) -> None:
    lab.write_world(policy={"retention": retention})
    assert (lab("gc", "--json").json["expired_runs"] == [lab.store.stopped]) == is_expired
    options = ["--keep-days", "41", "--grace-hours", "1"]
    assert lab("gc", *options, "--json").json["expired_runs"] == []


def test_where_lists_the_objects_of_a_run(lab: Lab) -> None:
    found = lab("where", lab.store.done, "--json").json
    keys = {each["key"] for each in found["objects"]}
    assert found["store"] == str(lab.store.root) and found["world"] == str(lab.world)
    assert f"runs/{lab.store.done}/run.json" in keys and f"ledger/{lab.store.done}/00000001.json" in keys
    assert not any(lab.store.stopped in key or "long-planes" in key for key in keys)
    assert {each["kind"] for each in found["objects"]} >= {"models", "data sets", "records of runs", "ledger"}
    assert "models" in lab("where", lab.store.done).out
    unknown = shoestring("where", "no-such-run", "--world", lab.world)
    assert unknown.code == 2 and lab.store.done in unknown.err


def test_a_fresh_orphan_is_listed_once_the_grace_is_over(lab: Lab) -> None:
    key = f"blobs/{put_blob(lab.store, b'orphan')}"
    assert lab("gc", "--json").json["keys"] == []
    assert lab("gc", "--grace-hours", "0.000001", "--json").json["keys"] == [key]


@pytest.mark.parametrize("option", ["--keep-runs", "--keep-days", "--grace-hours"])
def test_a_window_of_nothing_is_refused(lab: Lab, option: str) -> None:
    ran = shoestring("gc", option, "0", "--delete", "--world", lab.world)
    assert ran.code == 2 and option in ran.err


@pytest.mark.slow
def test_a_later_run_makes_again_what_was_deleted(
    whole_run: Path, finished: Finished, tmp_path: Path
) -> None:
    # Without the runs of other tests: one that was refused keeps its data set.
    store = shutil.copytree(whole_run / "store", tmp_path / "store")
    time.sleep(1)
    windows = ("--keep-days", "0.000001", "--grace-hours", "0.000001")
    deleted = finished.again("gc", *windows, "--delete", "--json", store=store).json
    assert {each["kind"] for each in deleted["garbage"]["kinds"]} >= {"data sets", "models", "cache"}
    again = finished.again(
        "run", finished.recipe, "--out", tmp_path / "out", "--seed", "7", "--json", store=store
    )
    assert again.json["status"] == "done", again.err
    receipts = (store / "runs" / again.json["run_id"] / "receipts").glob("*.json")
    assert [json.loads(path.read_text())["cache_hit"] for path in receipts] == [False] * 4
    for arguments in (("ledger", "verify"), ("replay",), ("report", finished.ran.json["run_id"])):
        assert finished.again(*arguments, store=store).code == 0
