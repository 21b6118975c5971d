"""Checkpoints: a resumed training equals an uninterrupted one, and a damaged checkpoint is reported and
skipped."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from clocks import BOOT_S
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from training_bench import TINY, TrainingBench, damage, same_weights, stop_after

from shoestring.core.errors import StageStopped
from shoestring.spending.meter import Meter
from shoestring.training import checkpoints
from shoestring.training.task import TrainedModel

# Early stopping triggers on the plateau, so that a run returns to its best weights.
STALLING = TINY.model_copy(update={"max_epochs": 40, "patience": 1, "learning_rate": 0.02})


@cache
def uninterrupted() -> TrainedModel:
    """Return an uninterrupted training."""
    with TemporaryDirectory() as folder:
        return TrainingBench(Path(folder), settings=STALLING).training().run()


def validations(trained: TrainedModel) -> list[tuple[int, float]]:
    return [(each.samples, each.val_loss) for each in trained.state.windows if each.val_loss is not None]


def stop_and_save(bench: TrainingBench, steps: int) -> None:
    with pytest.raises(StageStopped, match="the checkpoint is written"):
        replace(bench, should_stop=stop_after(steps)).training().run()


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
    assert validations(ended) == validations(uninterrupted())


def test_seconds_and_dollars_add_up_over_starts(tmp_path: Path) -> None:
    bench = TrainingBench(tmp_path, step_s=lambda: 1.0, meter=Meter(Decimal("3.6"), BOOT_S, Decimal(9), None))
    stop_and_save(bench, 10)
    bench.clock.at_s = 0.0
    ended = bench.training().run()
    assert ended.state.training_s == 10 + bench.clock.at_s
    spent = [window.spent_usd for window in ended.state.windows]
    assert spent == sorted(spent)
    assert spent[-1] == Decimal("0.001") * round(ended.state.training_s)


@pytest.mark.parametrize("limit", ["deadline", "money"])
def test_a_late_restart_does_not_raise_the_learning_rate(tmp_path: Path, limit: str) -> None:
    """The share of the budget that is gone counts all starts."""

    def meter(spent_s: int) -> Meter:
        # A new start has a meter of its own: what is left of 40 s, or of the dollars that 40 s cost.
        if limit == "deadline":
            return Meter(Decimal(0), BOOT_S, Decimal(0), BOOT_S + 40.0 - spent_s)
        return Meter(Decimal("3.6"), BOOT_S, Decimal("0.001") * (40 - spent_s), None)

    bench = TrainingBench(tmp_path, step_s=lambda: 1.0, meter=meter(0))
    stop_and_save(bench, 32)
    before = bench.training()
    last_rate = before.state.windows[-1].rate
    assert 0 < last_rate < 0.5
    bench.clock.at_s = 0.0
    ended = replace(bench, meter=meter(32)).training().run()
    later = [window.rate for window in ended.state.windows[len(before.state.windows) :]]
    assert later and max(later) <= last_rate


@pytest.mark.parametrize("what", ["train-1-{}.state", "learner-1-{}.part"])
def test_a_damaged_checkpoint_is_reported_and_the_previous_one_is_used(tmp_path: Path, what: str) -> None:
    bench = TrainingBench(tmp_path)
    stop_and_save(bench, 5)
    stop_and_save(bench, 5)
    newest, older = checkpoints.read_pointer(bench.store, "one").slots
    damage(tmp_path, what.format(newest.number))
    bench.reports.clear()
    ended = bench.training().run()
    sentence = (
        f"the checkpoint at {newest.samples} samples is damaged; "
        f"resumed from the one at {older.samples} samples"
    )
    assert (bench.reports[0].phase, bench.reports[0].samples) == (sentence, older.samples)
    assert ended.stop_reason == f"all 3 epochs are done; {sentence}"
    undisturbed = TrainingBench(tmp_path / "other").training().run()
    assert same_weights(ended.weights, undisturbed.weights)


def test_without_an_intact_checkpoint_training_restarts_and_reports_it(tmp_path: Path) -> None:
    bench = TrainingBench(tmp_path)
    stop_and_save(bench, 5)
    stop_and_save(bench, 5)
    path = tmp_path / "runs/one/checkpoints/train-1-0.state"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    (tmp_path / "runs/one/checkpoints/learner-1-1.part").unlink()
    bench.reports.clear()
    ended = bench.training().run()
    assert ended.stop_reason.endswith("samples is damaged; restarted from the beginning")
    assert bench.reports[0].samples == 0
    assert same_weights(ended.weights, TrainingBench(tmp_path / "other").training().run().weights)


def test_an_unreadable_pointer_is_ignored(tmp_path: Path) -> None:
    bench = TrainingBench(tmp_path)
    stop_and_save(bench, 5)
    (tmp_path / "runs/one/checkpoints/train.json").write_text('{"slots": 3')
    assert checkpoints.Checkpoints(bench.store, "one", 1).load("rows") == (None, "")


def test_a_checkpoint_of_other_rows_is_not_used(tmp_path: Path) -> None:
    """The data were split differently in the meantime: rows of the test split may have been trained."""
    bench = TrainingBench(tmp_path)
    stop_and_save(bench, 10)
    moved = replace(bench, train=bench.train[:-5])
    assert moved.training().state.samples == 0
    assert "was trained on other rows" in moved.training().run().stop_reason
