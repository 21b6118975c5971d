"""Training learns, the same from the same seed, and says plainly when it cannot."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from made_up import table
from small_world import TINY, Bench, class_prior_loss, same_weights, stop_after

from shoestring.core.datasets import Encoding, Feature
from shoestring.core.errors import StageFailed, StageStopped
from shoestring.data.recipe import TrainSettings
from shoestring.data.run_records import read_record
from shoestring.training.curve import TrainingCurve
from shoestring.training.torch_.checkpoint import from_bytes
from shoestring.training.torch_.session import MIN_STEPS_PER_EPOCH

LEARNING = TrainSettings(
    max_epochs=6, hidden=(16,), bins=8, dropout=0.0, category_dropout=0.0, learning_rate=0.01
)


def test_it_learns_what_there_is_to_learn(tmp_path: Path) -> None:
    bench = Bench(tmp_path, train=table(4000, 0), validation=table(1000, 1), settings=LEARNING)
    trained = bench.training().run()
    assert trained.val_loss is not None
    logit = np.where(bench.validation["code"] % 2, 2.0, -2.0) + 2 * bench.validation["number"]
    truth = float(np.log1p(np.exp(np.where(bench.validation["y"], -logit, logit))).mean())
    assert trained.val_loss < truth + 0.1 * (class_prior_loss(bench.train, bench.validation) - truth)


def test_the_same_seed_gives_the_same_weights_and_another_gives_others(tmp_path: Path) -> None:
    one, again, other = (
        Bench(tmp_path / name, seed=seed).training().run().weights
        for name, seed in (("one", 4), ("again", 4), ("other", 5))
    )
    assert same_weights(one, again)
    assert not same_weights(one, other)


def test_a_loss_that_is_no_number_stops_it_with_the_learning_rate_and_without_a_model(tmp_path: Path) -> None:
    settings = TINY.model_copy(update={"learning_rate": 1e38, "weight_decay": 1.0})
    with pytest.raises(
        StageFailed, match=r"diverged at \d+ samples.*train.learning_rate in the recipe \(it is 1e\+38\)"
    ):
        Bench(tmp_path, settings=settings).training().run()
    assert list(tmp_path.rglob("*.pt")) == []


def test_the_error_of_a_regression_is_in_the_unit_of_y(tmp_path: Path) -> None:
    """Of `y` with a standard deviation of 51, of which 10 is noise."""
    generator = np.random.default_rng(0)
    rows = np.empty(5000, np.dtype([("number", "f4"), ("y", "f4")]))
    rows["number"] = generator.normal(size=5000)
    rows["y"] = 100 + 50 * rows["number"] + 10 * generator.normal(size=5000)
    prior = (float(rows["y"].mean()), float(rows["y"].std()))
    encoding = Encoding(
        features=(Feature(name="number", kind="numeric"),), task="regression", train_prior=prior
    )
    bench = Bench(tmp_path, train=rows[:4000], validation=rows[4000:], settings=LEARNING, encoding=encoding)
    trained = bench.training().run()
    assert trained.val_loss == pytest.approx(10, rel=0.15)
    losses = [point.train_loss for point in trained.state.points if point.train_loss is not None]
    assert losses[-1] == pytest.approx(10, rel=0.3)
    assert bench.reports[-1][2]["rmse"] == pytest.approx(10, rel=0.3)
    assert bench.training().learner.loss([rows[4000:]], bench.training().learner.net) == pytest.approx(
        51, rel=0.1
    )


@pytest.mark.parametrize("rows", [1, 2, 3, 17])
def test_a_handful_of_rows_can_be_trained_on(tmp_path: Path, rows: int) -> None:
    train = table(rows, 0)
    trained = Bench(tmp_path, train=train, validation=table(1, 1)).training().run()
    assert trained.state.samples == 3 * rows
    assert [(window.epoch, window.start, window.stop) for window in trained.state.sample_ranges] == [
        (epoch, 0, rows) for epoch in range(3)
    ]
    assert np.isfinite(trained.val_loss or 0.0)


@pytest.mark.parametrize("batch_rows", [1, 7, 10_000])
def test_any_batch_size_sees_every_row_once_an_epoch(tmp_path: Path, batch_rows: int) -> None:
    bench = Bench(tmp_path, train=table(101, 0), settings=TINY.model_copy(update={"batch_rows": batch_rows}))
    trained = bench.training().run()
    assert trained.state.samples == 303
    assert [(window.epoch, window.start, window.stop) for window in trained.state.sample_ranges] == [
        (0, 0, 101),
        (1, 0, 101),
        (2, 0, 101),
    ]


def test_a_small_table_gets_small_batches_and_a_large_one_what_was_asked(tmp_path: Path) -> None:
    def batch(rows: int) -> int:
        return (
            Bench(tmp_path, train=table(rows, 0), settings=TrainSettings(hidden=(4,), batch_rows=1024))
            .training()
            .batch_rows
        )

    assert batch(20) == 10
    assert batch(3200) == 3200 // MIN_STEPS_PER_EPOCH
    assert batch(100_000) == 1024


def test_a_short_batch_moves_the_weights_in_proportion(tmp_path: Path) -> None:
    """Twenty rows from one look to the next, in batches of 16, are one of 16 and one of 4."""
    bench = Bench(tmp_path, train=table(40, 0), settings=TINY.model_copy(update={"max_epochs": 50}))
    points = [point for point in bench.training().run().state.points if point.train_loss is not None]
    batches = [
        (after.samples - before.samples, after.learning_rate) for before, after in pairwise(points[20:30])
    ]
    assert {rows for rows, _ in batches} == {16, 4}
    assert all(rate == pytest.approx(TINY.learning_rate * rows / 16) for rows, rate in batches)


def test_the_kept_weights_are_the_better_of_the_annealed_and_the_averaged(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path, settings=TINY.model_copy(update={"max_epochs": 20, "learning_rate": 0.05, "patience": 2})
    )
    training = bench.training()
    trained = training.run()
    looks = [point.val_loss for point in trained.state.points if point.val_loss is not None]
    assert trained.val_loss == min(looks[-1], trained.state.best_loss)
    training.learner.net.load_state_dict(from_bytes(trained.weights))
    assert training.learner.loss([bench.validation], training.learner.net) == pytest.approx(trained.val_loss)


def test_the_curve_is_there_with_the_first_checkpoint(tmp_path: Path) -> None:
    bench = Bench(tmp_path, should_stop=stop_after(30))
    with pytest.raises(StageStopped):
        bench.training().run()
    half = read_record(bench.store, "runs/one/curve.json", TrainingCurve)
    replace(bench, should_stop=lambda: False).training().run()
    done = read_record(bench.store, "runs/one/curve.json", TrainingCurve)
    assert 0 < len(half.points) < len(done.points)
    assert done.points[: len(half.points)] == half.points
    assert done.points[-1].val_loss is not None


def test_checkpoints_are_far_apart_where_writing_is_slow(tmp_path: Path) -> None:
    """A checkpoint every five seconds, but never more than a fiftieth of the time."""
    for put_s, most in ((0.0, 20), (0.5, 2)):
        puts: list[float] = []

        def take(puts: list[float] = puts, put_s: float = put_s) -> float:
            puts.append(put_s)
            return put_s

        bench = Bench(tmp_path / str(put_s), step_s=lambda: 1.7, put_s=take)
        bench.training().run()
        saves = (len(puts) - 1) // 3
        assert 1 <= saves <= most
