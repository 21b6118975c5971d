"""`shoestring data why` and `shoestring data lineage`, on a completed run."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import Finished, shoestring

from shoestring.backends.folder_store import FolderStore
from shoestring.core.types import StageOutcome
from shoestring.data.storage.cache import cache_key, save_outcome

STAGES = ["ingest", "preprocess", "train", "evaluate"]


def why(finished: Finished, recipe: Path, *more: object, store: Path | None = None) -> dict[str, Any]:
    ran = finished.again("data", "why", recipe, "--json", *more, store=store)
    assert ran.code == 0, ran.err
    assert [each["stage"] for each in ran.json] == STAGES
    return {each["stage"]: each for each in ran.json}


def changed(finished: Finished, folder: Path, **changes: object) -> Path:
    """Copy the recipe and its file, with changes to the recipe."""
    shutil.copy(finished.recipe.parent / "flights.csv", folder)
    recipe = folder / "changed.yaml"
    recipe.write_text(yaml.safe_dump(yaml.safe_load(finished.recipe.read_text()) | changes))
    return recipe


def changes_of(stage: dict[str, Any]) -> list[tuple[str, ...]]:
    return [tuple(each[name] for name in ("part", "name", "before", "after")) for each in stage["changes"]]


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_stages_of_a_completed_run_are_cached(finished: Finished, tmp_path: Path) -> None:
    stages = why(finished, changed(finished, tmp_path))
    assert [stages[name]["status"] for name in ("ingest", "preprocess")] == ["cached", "cached"]
    assert stages["ingest"]["entry"].startswith("cache/") and stages["ingest"]["changes"] == []
    assert "ingest       cached: cache/" in finished.again("data", "why", finished.recipe).out


def test_a_changed_setting_is_named_and_what_comes_after_is_not_known(
    finished: Finished, tmp_path: Path
) -> None:
    recipe = changed(finished, tmp_path, numeric=["distance"])
    stages = why(finished, recipe, "--seed", 12345)
    assert stages["ingest"]["status"] == "cached"
    assert stages["preprocess"]["status"] == "missing"
    assert changes_of(stages["preprocess"]) == [
        ("setting", "numeric", '["hour", "distance"]', '["distance"]')
    ]
    assert stages["train"]["status"] == "unknown"
    assert ("setting", "seed", "12345") in [
        (part, name, after) for part, name, _, after in changes_of(stages["train"])
    ]
    text = finished.again("data", "why", recipe).out
    assert '    setting      numeric  ["hour", "distance"] -> ["distance"]' in text


def test_a_changed_source_file_is_named_with_its_digests(finished: Finished, tmp_path: Path) -> None:
    recipe = changed(finished, tmp_path)
    file = tmp_path / "flights.csv"
    before = digest_of(file)
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines, lines[-1]]))
    stages = why(finished, recipe)
    assert stages["ingest"]["status"] == "missing"
    assert changes_of(stages["ingest"]) == [("source file", "flights/flights.csv", before, digest_of(file))]
    assert stages["preprocess"]["changes"] == []


def test_new_and_removed_source_files_are_named_up_to_a_bound(finished: Finished, tmp_path: Path) -> None:
    recipe = changed(finished, tmp_path)
    (folder := tmp_path / "flights").mkdir()
    for number in range(25):
        shutil.copy(tmp_path / "flights.csv", folder / f"{number:02d}.csv")
    recipe.write_text(recipe.read_text().replace("flights.csv", "flights"))
    digest = digest_of(tmp_path / "flights.csv")
    assert changes_of(why(finished, recipe)["ingest"])[0] == ("source file", "flights/00.csv", "", digest)
    text = finished.again("data", "why", recipe).out
    assert f"    source file  flights/19.csv  - -> {digest[:60]}...  (new)\n" in text
    assert "flights/20.csv" not in text
    assert "    26 source files in all: 25 new, 1 removed; --json lists them" in text


def test_a_changed_module_a_library_and_a_damaged_object_are_named(
    finished: Finished, tmp_path: Path
) -> None:
    shutil.copytree(finished.store, tmp_path / "store")
    store, recipe = FolderStore(tmp_path / "store"), changed(finished, tmp_path)
    path = store.root / why(finished, recipe)["ingest"]["entry"]
    entry = json.loads(path.read_text())
    path.unlink()
    fields, module = entry["key_fields"], "shoestring.data.transforms.ingest"
    now = entry["modules"][module]
    key, older = cache_key(
        "ingest", "0" * 64, fields["libraries"] | {"pyarrow": "1.0"}, fields["settings"], fields["inputs"]
    )
    outcome = StageOutcome.model_validate(entry["outcome"])
    save_outcome(store, key, outcome, older, entry["modules"] | {module: "f" * 64})
    stages = why(finished, recipe, store=store.root)
    assert changes_of(stages["ingest"]) == [
        ("module", module, "f" * 16, now),
        ("library", "pyarrow", "1.0", fields["libraries"]["pyarrow"]),
    ]
    path.write_text(json.dumps(entry, sort_keys=True, indent=1) + "\n")
    (store.root / outcome.key).unlink()
    stage = why(finished, recipe, store=store.root)["ingest"]
    assert stage["status"] == "missing" and outcome.key in stage["reason"] and stage["changes"] == []


def test_a_recipe_that_never_ran_has_no_earlier_result(finished: Finished, tmp_path: Path) -> None:
    stages = why(finished, changed(finished, tmp_path, name="another"))
    assert stages["ingest"]["reason"] == "no earlier result of another is stored"


def test_a_model_is_traced_to_its_files(finished: Finished) -> None:
    run_id, file = str(finished.ran.json["run_id"]), finished.recipe.parent / "flights.csv"
    found = finished.again("data", "lineage", run_id, "--json").json
    (source,) = found["files"]
    assert source["name"] == "flights/flights.csv" and source["place"] == str(file)
    assert (source["sha256"], source["size_bytes"]) == (digest_of(file), file.stat().st_size)
    assert source["read_at"] <= found["ingested_at"]
    encoded, raw = found["datasets"]
    assert [each["key"].split("/")[1] for each in (encoded, raw)] == ["slice", "slice-raw"]
    assert set(encoded["splits"]) == {"train", "val", "test"} and raw["splits"] == {"flights": raw["rows"]}
    assert sum(encoded["splits"].values()) == encoded["rows"]
    assert found["decision_key"] == f"runs/{run_id}/decisions/train-1.json" and found["missing"] == ""
    assert found["receipt_key"] == f"runs/{run_id}/receipts/train-1.json" and found["seed"] == 7
    assert len(found["code_sha256"]) == 64 and found["environment"]["python"] and found["libraries"]["numpy"]
    assert found["checked_objects"] > 5 and found["damaged"] == found["deleted"] == []
    assert finished.again("data", "lineage", found["weights_sha256"], "--json").json == found
    text = finished.again("data", "lineage", run_id).out
    assert all(part in text for part in (found["weights_sha256"], source["sha256"], str(file)))
    assert "all that are stored match their digests" in text


def test_the_folder_of_a_model_is_traced_by_the_store_and_elsewhere_by_itself(
    finished: Finished, tmp_path: Path
) -> None:
    found = finished.again("data", "lineage", finished.out, "--json").json
    by_run = finished.again("data", "lineage", finished.ran.json["run_id"], "--json").json
    assert found == by_run | {"folder": str(finished.out / "model")}
    FolderStore(tmp_path / "empty")
    elsewhere = finished.again("data", "lineage", finished.out, "--json", store=tmp_path / "empty").json
    assert elsewhere["files"] == found["files"] and elsewhere["checked_objects"] == 0
    model = shutil.copytree(finished.out / "model", tmp_path / "model")
    weights = next(path for path in (model / "weights").rglob("*") if path.is_file())
    weights.write_bytes(b"x" + weights.read_bytes()[1:])
    ran = finished.again("data", "lineage", model)
    assert ran.code == 1 and str(weights) in ran.err


def test_a_stored_object_that_was_rewritten_is_named(finished: Finished, tmp_path: Path) -> None:
    store = shutil.copytree(finished.store, tmp_path / "store")
    run_id = finished.ran.json["run_id"]
    whole = finished.again("data", "lineage", run_id, "--json", store=store).json
    manifest = json.loads((store / whole["datasets"][1]["key"]).read_text())
    part = store / "blobs" / manifest["splits"]["flights"][0]["sha256"]
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    found = finished.again("data", "lineage", run_id, "--json", store=store)
    assert found.code == 1
    assert [each["key"] for each in found.json["damaged"]] == [f"blobs/{part.name}"]
    ran = finished.again("data", "lineage", run_id, store=store)
    assert ran.code == 1 and f"blobs/{part.name} differs: its bytes have the digest" in ran.out


def test_what_is_no_model_is_named(finished: Finished, tmp_path: Path) -> None:
    ran = finished.again("data", "lineage", "f" * 64)
    assert ran.code == 2 and str(finished.ran.json["run_id"]) in ran.err
    assert shoestring("data", "why", "nothing", "--world", finished.world).code == 2


@pytest.mark.parametrize("gone", ["datasets", "blobs"])
def test_what_is_not_stored_any_longer_is_named(finished: Finished, tmp_path: Path, gone: str) -> None:
    store = shutil.copytree(finished.store, tmp_path / "store")
    shutil.rmtree(store / gone)
    ran = finished.again("data", "lineage", finished.ran.json["run_id"], "--json", store=store)
    found = ran.json
    assert ran.code == 0 and found["files"] == [] and gone in found["missing"]
    assert any(key.startswith(gone) for key in found["deleted"]) and found["damaged"] == []
