"""A training that is put down and taken up again is the same training; a damaged checkpoint is said, and the one before is used."""

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
from small_world import TINY, Bench, SlowStore, same_weights, stop_after

from shoestring.backends.folder_store import FolderStore
from shoestring.core.errors import StageStopped, StoreError
from shoestring.spending.meter import Meter
from shoestring.training.torch_ import checkpoint
from shoestring.training.torch_.task import TrainedModel

KEY = "runs/one/checkpoints/train-{}.pt"
# Stalls on its plateau, so that a run goes back to its best weights on the way.
STALLING = TINY.model_copy(update={"max_epochs": 12, "patience": 2, "learning_rate": 0.02})


@cache
def whole() -> TrainedModel:
    """A training that nobody disturbs."""
    with TemporaryDirectory() as folder:
        return Bench(Path(folder), settings=STALLING).training().run()


def put_down(bench: Bench, steps: int) -> None:
    with pytest.raises(StageStopped, match="the checkpoint is written"):
        replace(bench, should_stop=stop_after(steps)).training().run()


def damage(bench: Bench, slot: int) -> None:
    path = bench.folder / KEY.format(slot)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@given(stops=st.lists(st.integers(1, 60), max_size=4))
@examples(10)
def test_a_training_goes_on_bit_for_bit_wherever_it_was_put_down(stops: list[int]) -> None:
    with TemporaryDirectory() as folder:
        bench = Bench(Path(folder), settings=STALLING)
        for steps in stops:
            with suppress(StageStopped):
                replace(bench, should_stop=stop_after(steps)).training().run()
        ended = bench.training().run()
    assert whole().state.schedule.decaying
    assert same_weights(ended.weights, whole().weights)
    assert (ended.val_loss, ended.weights_source, ended.stop_reason) == (
        whole().val_loss,
        whole().weights_source,
        whole().stop_reason,
    )
    assert ended.state.sample_ranges == whole().state.sample_ranges
    assert ended.state.points == whole().state.points


def test_seconds_and_dollars_add_up_over_starts(tmp_path: Path) -> None:
    bench = Bench(tmp_path, step_s=lambda: 1.0, meter=Meter(Decimal("3.6"), 0.0, Decimal(9), None))
    put_down(bench, 10)
    bench.clock.at_s = 0.0
    ended = bench.training().run()
    assert ended.state.training_s == 10 + bench.clock.at_s
    spent = [point.spent_usd for point in ended.state.points]
    assert spent == sorted(spent)
    assert spent[-1] == Decimal("0.001") * round(ended.state.training_s)


def test_a_damaged_checkpoint_is_told_and_the_one_before_is_used(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    put_down(bench, 5)
    put_down(bench, 5)
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
    undisturbed = Bench(tmp_path / "other").training().run()
    assert same_weights(ended.weights, undisturbed.weights)


def test_without_a_whole_checkpoint_training_starts_afresh_and_says_so(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    put_down(bench, 5)
    put_down(bench, 5)
    damage(bench, 0)
    (tmp_path / KEY.format(1)).unlink()
    bench.reports.clear()
    ended = bench.training().run()
    assert ended.stop_reason.endswith("samples is damaged; restarted from the beginning")
    assert bench.reports[0][1] == 0
    assert same_weights(ended.weights, Bench(tmp_path / "other").training().run().weights)


def test_a_pointer_that_cannot_be_read_is_a_fresh_start(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    put_down(bench, 5)
    (tmp_path / "runs/one/checkpoints/train.json").write_text('{"slots": 3')
    assert checkpoint.load(bench.store, "one") == (None, "")


@dataclass
class CutShort(SlowStore):
    """A store that goes away before the pointer is written."""

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = "standard"
    ) -> bool:
        if key.endswith("train.json"):
            raise StoreError("gone")
        return super().put(key, data, if_absent=if_absent, storage_class=storage_class)


@pytest.mark.parametrize("saves", [1, 2, 3, 4])
@pytest.mark.parametrize("damaged", [False, True])
def test_a_save_that_is_cut_short_loses_no_checkpoint(tmp_path: Path, saves: int, damaged: bool) -> None:
    """Also after a damaged one was found: the slot that is written to is never the only whole one."""
    bench = Bench(tmp_path)
    store = FolderStore(tmp_path)
    for samples in range(saves):
        checkpoint.save(store, "one", {"samples": samples}, samples)
    expected = saves - 1
    if damaged and saves > 1:
        damage(bench, checkpoint.read_pointer(store, "one").slots[0].number)
        expected -= 1
    assert checkpoint.load(store, "one")[0] == {"samples": expected}
    with pytest.raises(StoreError):
        checkpoint.save(CutShort(store, bench.clock, lambda: 0.0), "one", {"samples": 99}, 99)
    assert checkpoint.load(store, "one")[0] == {"samples": expected}
