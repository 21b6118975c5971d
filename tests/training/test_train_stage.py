"""The train stage in separate processes: killed at any moment, and without the test split."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import train_process
from small_dataset import dataset
from train_process import EPOCHS, work
from warm_command import PipedProcess
from warm_scripts import start_script

from shoestring.backends.folder_store import FolderStore
from shoestring.core.errors import DataError, StageStopped
from shoestring.core.types import Pool, StageOutcome
from shoestring.data.loading.selection import choose_share, read_selection
from shoestring.data.run_records import read_record
from shoestring.data.storage.blobs import load_manifest
from shoestring.stages import train
from shoestring.training.checkpoints import read_pointer
from shoestring.training.model_record import ModelRecord, SampleRange
from shoestring.training.window_log import WindowLog

ROWS = {"train": 3000, "val": 300, "test": 300}
FEW_ROWS = {"train": 1000, "val": 100, "test": 100}


def start(folder: Path, key: str) -> PipedProcess:
    return start_script(train_process.__file__, folder, key, variables={}, modules="shoestring.stages.train")


@pytest.mark.slow
def test_other_load_on_the_machine_does_not_change_the_weights(tmp_path: Path) -> None:
    """With the same seed, data and threads, while neither money nor time ends the training."""
    key = dataset(FolderStore(tmp_path), tmp_path, FEW_ROWS)
    quiet, busy = tmp_path / "quiet", tmp_path / "busy"
    for folder in (quiet, busy):
        shutil.copytree(tmp_path / "blobs", folder / "blobs")
        shutil.copytree(tmp_path / "datasets", folder / "datasets")
    outcomes = [StageOutcome.model_validate_json(last_line(start(quiet, key)))]
    load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
    try:
        outcomes.append(StageOutcome.model_validate_json(last_line(start(busy, key))))
    finally:
        for process in load:
            process.kill()
            process.wait()
    assert outcomes[0].artifact == outcomes[1].artifact
    assert outcomes[0].samples == outcomes[1].samples == EPOCHS * FEW_ROWS["train"]


def last_line(process: PipedProcess) -> str:
    out, _ = process.communicate(timeout=300)
    return out.splitlines()[-1]


@pytest.mark.slow
def test_a_repeatedly_killed_training_trains_every_row_once_an_epoch_to_the_same_weights(
    tmp_path: Path,
) -> None:
    key, chance, began = dataset(FolderStore(tmp_path), tmp_path, ROWS), random.Random(0), []
    store, whole = FolderStore(tmp_path), tmp_path / "whole"
    for folder in ("blobs", "datasets"):
        shutil.copytree(tmp_path / folder, whole / folder)
    uninterrupted = StageOutcome.model_validate_json(last_line(start(whole, key)))
    for _ in range(3):
        process = start(tmp_path, key)
        began.append(int(process.stdout.readline()))
        time.sleep(chance.uniform(0.1, 0.6))
        process.kill()
        process.communicate()
    slots = read_pointer(store, "one").slots
    assert slots, "no checkpoint was written before a kill"
    assert read_record(store, "runs/one/curve.json", WindowLog).windows, "a killed run shows its curve"
    out, _ = start(tmp_path, key).communicate(timeout=120)
    lines = out.splitlines()
    outcome = StageOutcome.model_validate_json(lines[-1])
    model = read_record(store, outcome.key, ModelRecord)
    assert int(lines[0]) >= slots[0].samples
    assert model.sample_ranges == tuple(
        SampleRange(epoch=epoch, start=0, stop=ROWS["train"]) for epoch in range(EPOCHS)
    )
    assert model.samples == outcome.samples == EPOCHS * ROWS["train"]
    assert outcome.artifact == uninterrupted.artifact
    assert model.stop_reason == f"all {EPOCHS} epochs are done"
    assert model.val_loss is not None and np.isfinite(model.val_loss)
    assert began[-1] > began[0], "no start went on from another's checkpoint"


@pytest.fixture(scope="module")
def without_test(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return a data set whose test split was deleted from the store."""
    folder = tmp_path_factory.mktemp("sealed")
    key = dataset(FolderStore(folder), folder, {"train": 400, "val": 100, "test": 100})
    for part in load_manifest(FolderStore(folder), key).splits["test"]:
        (folder / part.key).unlink()
    return folder, key


def test_the_test_split_is_never_opened(without_test: tuple[Path, str]) -> None:
    folder, key = without_test
    outcome = train.run(work(folder, key))
    store = FolderStore(folder)
    model = read_record(store, outcome.key, ModelRecord)
    assert outcome.samples == EPOCHS * 400
    assert outcome.metrics == {"val_log_loss": model.val_loss}
    assert outcome.artifact == f"blobs/{model.weights_sha256}"
    assert store.fetch(outcome.artifact).stat().st_size > 0
    assert read_record(store, "runs/one/curve.json", WindowLog).windows[-1].val_loss is not None


@pytest.mark.parametrize(
    ("pool", "half_rows"), [(None, None), (Pool(name="core", cores=1, memory_gb=8, markets={}), 256)]
)
def test_the_batch_may_follow_the_noise_on_a_pool_that_is_known(
    without_test: tuple[Path, str], tmp_path: Path, pool: Pool | None, half_rows: int | None
) -> None:
    folder, key = without_test
    for name in ("blobs", "datasets"):
        shutil.copytree(folder / name, tmp_path / name)
    train.run(replace(work(tmp_path, key), pool=pool))
    found = read_record(FolderStore(tmp_path), "runs/one/curve.json", WindowLog).starts[0].setup.batch_range
    assert (found and found.half_rows) == half_rows


def test_a_share_of_the_rows_is_trained_and_named_and_kept_over_a_resume(
    without_test: tuple[Path, str], tmp_path: Path
) -> None:
    folder, key = without_test
    shutil.copytree(folder / "blobs", tmp_path / "blobs")
    shutil.copytree(folder / "datasets", tmp_path / "datasets")
    store, whole = FolderStore(tmp_path), work(tmp_path, key)
    settings = whole.recipe.train.model_copy(update={"rows_share": 0.25})
    tenth = replace(whole, recipe=whole.recipe.model_copy(update={"train": settings}))
    stops = iter([False] * 40)
    with pytest.raises(StageStopped):
        train.run(replace(tenth, should_stop=lambda: next(stops, True)))
    selection = read_pointer(store, "one").selection
    chosen = read_selection(store, selection, 400)
    assert np.array_equal(chosen, choose_share(400, 0, 0.25))
    outcome = train.run(replace(tenth, seed=5, attempt=2))
    model = read_record(store, outcome.key, ModelRecord)
    assert (model.selection, outcome.rows, outcome.samples) == (selection, 100, EPOCHS * 100)
    assert model.epochs == EPOCHS
    assert model.sample_ranges == tuple(
        SampleRange(epoch=epoch, start=0, stop=100) for epoch in range(EPOCHS)
    )
    shares = read_record(store, "runs/one/curve.json", WindowLog).time_shares
    assert shares is not None and shares.read + shares.decode + shares.compute == pytest.approx(1)


@pytest.mark.parametrize("split", ["train", "val"])
def test_an_empty_split_is_refused(tmp_path: Path, split: str) -> None:
    key = dataset(FolderStore(tmp_path), tmp_path, {"train": 40, "val": 10} | {split: 0})
    with pytest.raises(DataError, match=f"the {split} split of made-up holds no rows"):
        train.run(work(tmp_path, key))
