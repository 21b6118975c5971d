"""Ingest and preprocess on the full flights data, with the inputs that the supervisor passes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.local import WallClock
from shoestring.core.errors import StageFailed, StageStopped
from shoestring.core.receipt import Receipt
from shoestring.core.types import Format
from shoestring.data.recipe import Recipe
from shoestring.data.recipe_files import find_recipe
from shoestring.data.sources.fingerprint import fingerprint
from shoestring.data.storage import cache
from shoestring.data.storage.blobs import load_manifest
from shoestring.spending.meter import Meter
from shoestring.stages import ingest, preprocess
from shoestring.stages.work import StageProgress, Work


def work(folder: Path, stage: str, reported: list[StageProgress] | None = None, **inputs: str) -> Work:
    scratch = folder / "scratch" / stage
    scratch.mkdir(parents=True, exist_ok=True)
    clock = WallClock()
    return Work(
        run_id="r",
        stage=stage,
        attempt=1,
        seed=0,
        inputs=inputs,
        recipe=find_recipe("flights"),
        format=Format.PACKED,
        cores=1,
        store=FolderStore(folder / "store"),
        meter=Meter(Decimal("0.04"), clock.monotonic_s(), Decimal(1), None),
        clock=clock,
        scratch=scratch,
        report_progress=(reported if reported is not None else []).append,
        should_stop=lambda: False,
    )


def test_ingest_and_preprocess_turn_the_flights_files_into_encoded_rows(tmp_path: Path) -> None:
    reported: list[StageProgress] = []
    raw = ingest.run(work(tmp_path, "ingest", reported))
    done = preprocess.run(work(tmp_path, "preprocess", reported, data=raw.key))
    store = FolderStore(tmp_path / "store")
    manifest = load_manifest(store, done.key)
    assert (raw.rows, done.rows) == (336_776, 327_346)
    assert raw.metrics == {"quarantined_rows": 0.0}
    assert manifest.quarantined == {"arr_delay is missing": 9_430}
    assert manifest.parents == (raw.key,)
    assert manifest.encoding is not None
    assert manifest.encoding.task == "binary"
    assert manifest.encoding.train_prior[1] == pytest.approx(0.237, abs=0.02)
    assert {
        split: round(sum(part.rows for part in parts) / done.rows, 1)
        for split, parts in manifest.splits.items()
    } == {
        "train": 0.8,
        "val": 0.1,
        "test": 0.1,
    }
    assert {progress.phase for progress in reported} == {
        "reading flights",
        "reading weather",
        "encoding",
    }
    assert list((tmp_path / "scratch").rglob("part")) == []


def test_a_second_run_finds_both_results_in_the_cache_and_damage_is_a_cache_miss(
    flights_slice: Path, tmp_path: Path
) -> None:
    recipe = find_recipe(str(flights_slice))
    first = replace(work(tmp_path, "ingest"), recipe=recipe)
    raw = ingest.run(first)

    def key() -> str:
        inputs = {"source": fingerprint(recipe, first.store)}
        return cache.cache_key("ingest", "code", {}, ingest.settings(recipe, 0), inputs)[0]

    cache.save_outcome(first.store, key(), raw, {})
    assert cache.find_outcome(first.store, key()) == raw
    part = load_manifest(first.store, raw.key).splits["flights"][0]
    path = first.store.fetch(part.key)
    path.write_bytes(path.read_bytes()[:-1])
    assert cache.find_outcome(first.store, key()) is None
    assert ingest.run(first) == raw
    assert cache.find_outcome(first.store, key()) == raw


@pytest.mark.parametrize("stage", [ingest, preprocess])
def test_the_cache_key_of_a_stage_depends_only_on_the_settings_that_it_uses(stage: object) -> None:
    recipe = find_recipe("flights")
    settings: Callable[..., dict[str, object]] = stage.settings  # type: ignore[attr-defined]
    same = recipe.model_copy(
        update={"budget_usd": Decimal(1), "deadline_s": 9.0, "stage_budgets_usd": {"train": Decimal(1)}}
    )
    assert settings(same, 1) == settings(recipe, 0)
    assert settings(recipe.model_copy(update={"name": "other"}), 0) != settings(recipe, 0)


def test_other_features_splits_or_targets_are_encoded_again_but_not_ingested_again() -> None:
    recipe = find_recipe("flights")
    for changes in (
        {"numeric": ("distance",)},
        {"seed": 1},
        {"target": recipe.target.model_copy(update={"above": 30.0})},
        {"leaks": ()},
    ):
        changed = recipe.model_copy(update=changes)
        assert ingest.settings(changed, 0) == ingest.settings(recipe, 0)
        assert preprocess.settings(changed, 0) != preprocess.settings(recipe, 0)


def test_a_stage_that_is_requested_to_stop_stops_and_stores_no_data_set(tmp_path: Path) -> None:
    stopping = replace(work(tmp_path, "ingest"), should_stop=lambda: True)
    with pytest.raises(StageStopped, match="rows"):
        ingest.run(stopping)
    assert list(stopping.store.list("datasets/")) == []


def test_a_stage_without_a_format_reports_it(tmp_path: Path) -> None:
    for stage in (ingest, preprocess):
        with pytest.raises(StageFailed, match="no format"):
            stage.run(replace(work(tmp_path, "ingest"), format=None))


MEASURED = """
import sys
sys.path.insert(0, {folder!r})
from pathlib import Path
from test_data_stages import ingest, preprocess, work
raw = ingest.run(work(Path({store!r}), "ingest"))
preprocess.run(work(Path({store!r}), "preprocess", data=raw.key))
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak of its memory from /proc")
def test_both_stages_together_stay_within_the_memory_that_they_request(tmp_path: Path) -> None:
    script = MEASURED.format(folder=str(Path(__file__).parent), store=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    asked_gb = max(
        need.memory_fixed_gb + need.memory_bytes_per_row * 336_776 / 2**30
        for need in (ingest.NEED, preprocess.NEED)
    )
    assert int(done.stdout) * 1024 < asked_gb * 2**30


def test_preprocess_names_the_rows_of_an_earlier_version_and_its_receipt_teaches_no_speed(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    recipe = Recipe.model_validate(
        {"name": "mine", "source": {"rows": {"path": data}}, "target": {"column": "y"}}
    )
    learnable, reused_rows = [], []
    for file in range(2):
        numbers = range(file * 70_000, (file + 1) * 70_000)
        (data / f"{file}.csv").write_text(
            "\n".join(["a,b,y", *(f"{each},{each * 7},{each % 2}" for each in numbers)])
        )
        raw = ingest.run(replace(work(tmp_path, "ingest"), recipe=recipe))
        done = preprocess.run(replace(work(tmp_path, "preprocess", data=raw.key), recipe=recipe))
        fields: dict[str, Any] = {
            "status": "done",
            "cause": "",
            "prior_s": 1.0,
            "seconds": 1.0,
            "cache_hit": False,
        }
        receipt = Receipt.model_construct(**fields, outcome=done)
        learnable.append(receipt.is_learnable)
        reused_rows.append(done.reused_rows)
        assert done.rows == (file + 1) * 70_000
    assert (learnable, reused_rows) == ([True, False], [0, 70_000])
