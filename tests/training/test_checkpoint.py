"""Checkpoints: a resumed training equals an uninterrupted one, and a damaged checkpoint is reported and
skipped."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from training_bench import TINY, SlowStore, TrainingBench, same_weights, stop_after

from shoestring.backends.folder_store import FolderStore
from shoestring.core.errors import StageStopped, StoreError
from shoestring.spending.meter import Meter
from shoestring.training.torch_ import checkpoint
from shoestring.training.torch_.task import TrainedModel

KEY = "runs/one/checkpoints/train-1-{}.pt"
# Early stopping triggers on the plateau, so that a run returns to its best weights.
STALLING = TINY.model_copy(update={"max_epochs": 12, "patience": 2, "learning_rate": 0.02})


@cache
def uninterrupted() -> TrainedModel:
    """Return an uninterrupted training."""
    with TemporaryDirectory() as folder:
        return TrainingBench(Path(folder), settings=STALLING).training().run()


def stop_and_save(bench: TrainingBench, steps: int) -> None:
    with pytest.raises(StageStopped, match="the checkpoint is written"):
        replace(bench, should_stop=stop_after(steps)).training().run()


def damage(bench: TrainingBench, slot: int) -> None:
    path = bench.folder / KEY.format(slot)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@given(stops=st.lists(st.integers(1, 60), max_size=4))
@examples(10)
def test_a_resumed_training_is_bit_for_bit_equal(stops: list[int]) -> None:
    with TemporaryDirectory() as folder:
        bench = TrainingBench(Path(folder), settings=STALLING)
        for steps in stops:
            with suppress(StageStopped):
                replace(bench, should_stop=stop_after(steps)).training().run()
        ended = bench.training().run()
    assert uninterrupted().state.controller.schedule.decaying
    assert same_weights(ended.weights, uninterrupted().weights)
    assert (ended.val_loss, ended.weights_source, ended.stop_reason) == (
        uninterrupted().val_loss,
        uninterrupted().weights_source,
        uninterrupted().stop_reason,
    )
    assert ended.state.sample_ranges == uninterrupted().state.sample_ranges
    assert ended.state.points == uninterrupted().state.points


def test_seconds_and_dollars_add_up_over_starts(tmp_path: Path) -> None:
    bench = TrainingBench(tmp_path, step_s=lambda: 1.0, meter=Meter(Decimal("3.6"), 0.0, Decimal(9), None))
    stop_and_save(bench, 10)
    bench.clock.at_s = 0.0
    ended = bench.training().run()
    assert ended.state.training_s == 10 + bench.clock.at_s
    spent = [point.spent_usd for point in ended.state.points]
    assert spent == sorted(spent)
    assert spent[-1] == Decimal("0.001") * round(ended.state.training_s)


@pytest.mark.parametrize("limit", ["deadline", "money"])
def test_a_late_restart_does_not_raise_the_learning_rate(tmp_path: Path, limit: str) -> None:
    """The share of the budget that is gone counts all starts."""

    def meter(spent_s: int) -> Meter:
        # A new start has a meter of its own: what is left of 40 s, or of the dollars that 40 s cost.
        if limit == "deadline":
            return Meter(Decimal(0), 0.0, Decimal(0), 40.0 - spent_s)
        return Meter(Decimal("3.6"), 0.0, Decimal("0.001") * (40 - spent_s), None)

    bench = TrainingBench(tmp_path, step_s=lambda: 1.0, meter=meter(0))
    stop_and_save(bench, 32)
    before = bench.training()
    last_rate = before.state.points[-1].learning_rate
    assert 0 < last_rate < 0.5 * TINY.learning_rate
    bench.clock.at_s = 0.0
    ended = replace(bench, meter=meter(32)).training().run()
    later = [point.learning_rate for point in ended.state.points[len(before.state.points) :]]
    assert later and max(later) <= last_rate


def test_a_damaged_checkpoint_is_reported_and_the_previous_one_is_used(tmp_path: Path) -> None:
    bench = TrainingBench(tmp_path)
    stop_and_save(bench, 5)
    stop_and_save(bench, 5)
    newest, older = checkpoint.read_pointer(bench.store, "one").slots
    damage(bench, newest.number)
    bench.reports.clear()
    ended = bench.training().run()
    sentence = (
        f"the checkpoint at {newest.samples} samples is damaged; "
        f"resumed from the one at {older.samples} samples"
    )
    assert bench.reports[0] == (sentence, older.samples, {})
    assert ended.stop_reason == f"all 3 epochs are done; {sentence}"
    undisturbed = TrainingBench(tmp_path / "other").training().run()
    assert same_weights(ended.weights, undisturbed.weights)


def test_without_an_intact_checkpoint_training_restarts_and_reports_it(tmp_path: Path) -> None:
    bench = TrainingBench(tmp_path)
    stop_and_save(bench, 5)
    stop_and_save(bench, 5)
    damage(bench, 0)
    (tmp_path / KEY.format(1)).unlink()
    bench.reports.clear()
    ended = bench.training().run()
    assert ended.stop_reason.endswith("samples is damaged; restarted from the beginning")
    assert bench.reports[0][1] == 0
    assert same_weights(ended.weights, TrainingBench(tmp_path / "other").training().run().weights)


def test_an_unreadable_pointer_is_ignored(tmp_path: Path) -> None:
    bench = TrainingBench(tmp_path)
    stop_and_save(bench, 5)
    (tmp_path / "runs/one/checkpoints/train.json").write_text('{"slots": 3')
    assert checkpoint.load(bench.store, "one", "rows") == (None, "")


@dataclass
class InterruptedStore(SlowStore):
    """A store that fails before the pointer is written."""

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = "standard"
    ) -> bool:
        if key.endswith("train.json"):
            raise StoreError("gone")
        return super().put(key, data, if_absent=if_absent, storage_class=storage_class)


@pytest.mark.parametrize("saves", [1, 2, 3, 4])
@pytest.mark.parametrize("damaged", [False, True])
def test_an_interrupted_save_loses_no_checkpoint(tmp_path: Path, saves: int, damaged: bool) -> None:
    """Also after a damaged one was found: a save never overwrites the only intact slot."""
    bench = TrainingBench(tmp_path)
    store = FolderStore(tmp_path)
    for samples in range(saves):
        checkpoint.save(store, "one", {"rows_sha256": "rows", "samples": samples}, samples, 1)
    expected = saves - 1
    if damaged and saves > 1:
        damage(bench, checkpoint.read_pointer(store, "one").slots[0].number)
        expected -= 1
    assert checkpoint.load(store, "one", "rows")[0] == {"rows_sha256": "rows", "samples": expected}
    with pytest.raises(StoreError):
        checkpoint.save(InterruptedStore(store, bench.clock, lambda: 0.0), "one", {"samples": 99}, 99, 1)
    assert checkpoint.load(store, "one", "rows")[0] == {"rows_sha256": "rows", "samples": expected}


def saved(samples: int) -> dict[str, object]:
    return {"rows_sha256": "rows", "samples": samples}


def test_an_older_attempt_writes_no_checkpoint_over_that_of_a_newer_one(tmp_path: Path) -> None:
    """A pod that was taken for lost, and wakes up."""
    store = FolderStore(tmp_path)
    checkpoint.save(store, "one", saved(10), 10, 1)
    checkpoint.save(store, "one", saved(20), 20, 2)
    with pytest.raises(StageStopped, match=r"attempt 2 has taken over .*attempt 1 writes none") as stopped:
        checkpoint.save(store, "one", saved(99), 99, 1)
    assert stopped.value.cause == "lost"
    assert checkpoint.load(store, "one", "rows")[0] == saved(20)
    assert [slot.samples for slot in checkpoint.read_pointer(store, "one").slots] == [20, 10]


@dataclass
class OvertakenStore(SlowStore):
    """A store on which attempt 2 saves a checkpoint while attempt 1 writes its own."""

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = "standard"
    ) -> bool:
        if key.endswith(".pt"):
            checkpoint.save(self.inner, "one", saved(20), 20, 2)
        return super().put(key, data, if_absent=if_absent, storage_class=storage_class)


def test_an_attempt_that_is_overtaken_in_the_middle_of_a_save_damages_nothing(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    checkpoint.save(store, "one", saved(10), 10, 1)
    slow = OvertakenStore(store, TrainingBench(tmp_path).clock, lambda: 0.0)
    with pytest.raises(StageStopped, match="attempt 2 has taken over"):
        checkpoint.save(slow, "one", saved(99), 99, 1)
    assert checkpoint.load(store, "one", "rows") == (saved(20), "")


def test_a_checkpoint_of_a_release_without_attempts_is_resumed(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    checkpoint.save(store, "one", saved(10), 10, 0)
    assert (tmp_path / "runs/one/checkpoints/train-0.pt").is_file()
    assert checkpoint.load(store, "one", "rows")[0] == saved(10)
    checkpoint.save(store, "one", saved(20), 20, 3)
    assert checkpoint.load(store, "one", "rows")[0] == saved(20)


def test_a_checkpoint_of_other_rows_is_not_used(tmp_path: Path) -> None:
    """The data were split differently in the meantime: rows of the test split may have been trained."""
    bench = TrainingBench(tmp_path)
    stop_and_save(bench, 10)
    moved = replace(bench, train=bench.train[:-5])
    assert moved.training().state.samples == 0
    assert "was trained on other rows" in moved.training().run().stop_reason
