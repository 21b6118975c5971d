"""Shards on a real S3 server: a training streams them, and finds a changed byte."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from s3_server import S3Server
from store_locations import StoreLocation

from shoestring.backends.local import WallClock
from shoestring.core import store_layout
from shoestring.core.datasets import DatasetPart
from shoestring.core.errors import DataError, StageStopped
from shoestring.core.types import Format, StageOutcome
from shoestring.data.formats.volume_probe import reading_fields
from shoestring.data.loading.open_split import open_split
from shoestring.data.loading.shuffle import SampleCursor
from shoestring.data.recipe import Recipe
from shoestring.data.storage.blobs import load_manifest
from shoestring.data.storage.cache import cache_key, find_outcome, save_outcome
from shoestring.data.transforms.ingest import ingest
from shoestring.data.transforms.preprocess import preprocess
from shoestring.spending.meter import Meter
from shoestring.stages import train
from shoestring.stages.work import StageProgress, Work
from shoestring.training.model_record import ModelRecord

ROWS = 3000


def recipe_in(folder: Path) -> Recipe:
    draw = np.random.default_rng(0)
    numbers, noise = draw.normal(size=ROWS), draw.normal(size=ROWS)
    lines = [f"{x:.4f},{z:.4f},{int(x + 0.3 * z > 0)}\n" for x, z in zip(numbers, noise, strict=True)]
    (folder / "rows.csv").write_text("x,z,y\n" + "".join(lines))
    content = {
        "name": "made",
        "source": {"rows": {"path": folder / "rows.csv"}},
        "target": {"column": "y"},
        "train": {"max_epochs": 2},
    }
    return Recipe.model_validate(content)


def test_a_training_streams_shards_from_s3_to_a_model_and_resumes_there(
    s3_server: S3Server, prefix: str, tmp_path: Path
) -> None:
    location = StoreLocation(tmp_path, s3_server.location(prefix))
    store, recipe, scratch = location.open(), recipe_in(tmp_path), tmp_path / "scratch"
    scratch.mkdir()
    readers = StoreLocation(tmp_path / "readers", location.s3)
    readers.folder.mkdir()
    raw, _ = ingest(recipe, Format.SHARDS, store, scratch, lambda *_: None)
    key, manifest = preprocess(recipe, raw, Format.SHARDS, store, scratch, lambda *_: None)
    result, fields = cache_key("preprocess", "code", {}, {}, {"data": raw})
    save_outcome(store, result, StageOutcome(key=key, rows=ROWS), fields)
    clock, stops, reported = WallClock(), iter([False] * 3), list[StageProgress]()
    work = Work(
        run_id="streamed",
        stage="train",
        attempt=1,
        seed=0,
        inputs={"data": key},
        recipe=recipe,
        format=None,
        cores=1,
        store=readers.open(),
        meter=Meter(Decimal("0.04"), clock.monotonic_s(), Decimal(1), None),
        clock=clock,
        scratch=scratch,
        report_progress=reported.append,
        should_stop=lambda: next(stops, True),
    )
    with pytest.raises(StageStopped):
        train.run(work)
    outcome = train.run(replace(work, attempt=2, store=readers.open(), should_stop=lambda: False))
    model = ModelRecord.model_validate_json(store.fetch(outcome.key).read_bytes())
    rows = sum(part.rows for part in manifest.splits["train"])
    assert reported[-1].resumed_samples > 0 and outcome.samples == 2 * rows
    assert [each.stop - each.start for each in model.sample_ranges] == [rows, rows]
    assert model.val_loss is not None and model.val_loss < 0.5
    (part,) = manifest.splits["train"]
    assert find_outcome(readers.open(), result) is not None
    assert part.sha256 not in {path.name for path in readers.folder.rglob("*")}
    check_damage_is_found(location, key, part, scratch)


def check_damage_is_found(location: StoreLocation, dataset: str, part: DatasetPart, scratch: Path) -> None:
    """Change a byte of a part of train, and read all rows."""
    store = location.open()
    changed, rows = bytearray(store.fetch(part.key).read_bytes()), part.rows
    changed[-9] ^= 4
    store.put(part.key, bytes(changed))
    split = open_split(location.open(), load_manifest(store, dataset), "train", scratch)
    with pytest.raises(DataError, match=f"{part.key} is damaged"):
        split.take(split.positions(SampleCursor(seed=0, order=3), 0, 0, rows))


def test_the_probe_of_a_store_on_s3_measures_what_it_sends(
    s3_server: S3Server, prefix: str, tmp_path: Path
) -> None:
    store = StoreLocation(tmp_path, s3_server.location(prefix)).open()
    fetching = reading_fields(store, WallClock())["fetching"]
    assert fetching.bytes_per_s > 1 << 20 and fetching.room_bytes > 0
    assert len(store.fetch(store_layout.FETCH_PROBE).read_bytes()) == 4 << 20
