"""A training whose batch follows the noise of its gradient: logged, replayed, and the same after a stop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from small_dataset import table
from training_bench import LIMITS, TINY, TrainingBench, net_learner, same_weights, stop_after

from shoestring.config.adaptation import AdaptationLimits, BatchBounds
from shoestring.core.errors import StageStopped
from shoestring.training.families.linear.settings import LinearSettings
from shoestring.training.families.table_net.settings import TableNetSettings
from shoestring.training.replay import replay_differences
from shoestring.training.task import TrainedModel

SETTINGS = TINY.model_copy(update={"batch_rows": 16, "max_epochs": 5, "weight_decay": 0.1})
"""1,250 steps of 16 rows."""


def bench_of(folder: Path, half_rows: int = 4096, limits: AdaptationLimits | None = None) -> TrainingBench:
    return TrainingBench(
        folder,
        train=table(4_000, 0),
        settings=SETTINGS,
        step_s=lambda: 0.01,
        half_rows={"table_net": half_rows},
        limits=limits or AdaptationLimits(),
    )


def batches(bench: TrainingBench) -> list[float]:
    """Return the rows of the batch after each change."""
    found = [change for window in bench.log().windows for change in window.changes if change.lever == "batch"]
    return [float(change.after.removesuffix(" rows")) for change in found]


def test_the_batch_grows_where_a_step_takes_long(tmp_path: Path) -> None:
    bench = bench_of(tmp_path)
    training = bench.training()
    trained = training.run()
    assert batches(bench) == [32.0, 64.0]
    log = bench.log()
    assert log.starts[0].setup.batch_range is not None and log.starts[0].setup.batch_range.max_rows == 125
    assert all("noise scale" in change.reason for window in log.windows for change in window.changes)
    assert max(window.rate for window in log.windows) == pytest.approx(2.0, rel=0.01)
    assert list(replay_differences(log)) == []
    assert trained.state.samples == 5 * 4_000 and not trained.depends_on_limits
    # Rows count alike in the decay of the weights, whatever their batch.
    assert net_learner(training).optimizer.param_groups[0]["weight_decay"] == pytest.approx(0.2)


def test_a_log_without_its_measurements_does_not_replay(tmp_path: Path) -> None:
    bench = bench_of(tmp_path)
    bench.training().run()
    log = bench.log()
    silent = tuple(window.model_copy(update={"halves": ()}) for window in log.windows)
    assert any("changes" in each for each in replay_differences(log.model_copy(update={"windows": silent})))


def usual_batch(folder: Path, half_rows: int) -> TrainingBench:
    """Return a training with the family's batch: 1,024 rows of a table that has 64 steps of them an epoch."""
    settings = TableNetSettings(max_epochs=60, hidden=(2,), bins=2, dropout=0.0)
    train = table(65_536, 0)
    return TrainingBench(folder, train=train, settings=settings, half_rows={"table_net": half_rows})


def test_the_first_batch_of_a_gpu_is_logged_and_replayed(tmp_path: Path) -> None:
    bench = usual_batch(tmp_path, 1 << 16)
    for _ in range(2):
        with pytest.raises(StageStopped):
            replace(bench, should_stop=stop_after(3)).training().run()
    log = bench.log()
    change, *others = log.windows[0].changes
    assert (change.before, change.after, change.samples) == ("1,024 rows", "2,048 rows", 0) and not others
    assert "step takes twice its fixed time with 65,536 rows" in change.reason
    assert log.windows[0].rows == 2_048 * log.windows[0].steps
    assert list(replay_differences(log)) == [] and len(log.starts) == 2
    assert not any(window.changes for window in log.windows[1:])
    silent = (log.windows[0].model_copy(update={"changes": ()}), *log.windows[1:])
    assert list(replay_differences(log.model_copy(update={"windows": silent})))


def test_the_first_batch_of_a_core_is_the_familys(tmp_path: Path) -> None:
    bench = usual_batch(tmp_path, 256)
    with pytest.raises(StageStopped):
        replace(bench, should_stop=stop_after(3)).training().run()
    assert bench.log().windows[0].rows == 1_024 * bench.log().windows[0].steps


@pytest.mark.parametrize(
    ("half_rows", "limits"),
    [
        (0, LIMITS),
        (4096, AdaptationLimits(batch=None)),
        (4096, AdaptationLimits(batch=BatchBounds(max_rows=16))),
        (1, LIMITS),
    ],
)
def test_the_batch_stays_where_it_may_or_should(
    tmp_path: Path, half_rows: int, limits: AdaptationLimits
) -> None:
    bench = bench_of(tmp_path, half_rows, limits)
    bench.training().run()
    assert batches(bench) == []


def test_a_family_without_a_gradient_of_batches_has_no_range(tmp_path: Path) -> None:
    bench = replace(bench_of(tmp_path), settings=LinearSettings(max_epochs=2), half_rows={"linear": 4096})
    bench.training().run()
    assert bench.log().starts[0].setup.batch_range is None


@pytest.mark.parametrize("stops", [[100], [150, 20, 60]])
def test_a_training_that_is_stopped_anywhere_has_the_same_batches(tmp_path: Path, stops: list[int]) -> None:
    whole = bench_of(tmp_path / "whole")
    model = whole.training().run()
    bench = bench_of(tmp_path / "stopped")
    for steps in stops:
        with pytest.raises(StageStopped):
            replace(bench, should_stop=stop_after(steps)).training().run()
    again: TrainedModel = bench.training().run()
    assert batches(bench) == batches(whole) and same_weights(again.weights, model.weights)
    assert list(replay_differences(bench.log())) == []


def test_the_speed_of_the_clock_does_not_change_the_batch(tmp_path: Path) -> None:
    slow, fast = bench_of(tmp_path / "slow"), replace(bench_of(tmp_path / "fast"), step_s=lambda: 1e-4)
    models = [bench.training().run() for bench in (slow, fast)]
    assert batches(slow) == batches(fast) and same_weights(models[0].weights, models[1].weights)
