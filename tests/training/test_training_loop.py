"""Training learns, is reproducible from a seed, and reports a divergence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_dataset import samples, table
from training_bench import TINY, TrainingBench, class_prior_loss, net_learner, same_weights, stop_after

from shoestring.core.datasets import Encoding, Feature
from shoestring.core.errors import StageFailed, StageStopped
from shoestring.core.receipt import TimeShares
from shoestring.data.loading.gathering import GatherSeconds, LoaderTimes
from shoestring.training.contracts import MIN_STEPS_PER_EPOCH, NO_STEPS
from shoestring.training.families.table_net.settings import TableNetSettings
from shoestring.training.frameworks.torch_.net_kind import load_weights

LEARNING = TableNetSettings(
    max_epochs=6, hidden=(16,), bins=8, dropout=0.0, category_dropout=0.0, learning_rate=0.01
)


def test_training_comes_close_to_the_loss_of_the_true_model(tmp_path: Path) -> None:
    bench = TrainingBench(tmp_path, train=table(4000, 0), validation=table(1000, 1), settings=LEARNING)
    trained = bench.training().run()
    assert trained.val_loss is not None
    logit = np.where(bench.validation["code"] % 2, 2.0, -2.0) + 2 * bench.validation["number"]
    truth = float(np.log1p(np.exp(np.where(bench.validation["y"], -logit, logit))).mean())
    assert trained.val_loss < truth + 0.1 * (class_prior_loss(bench.train, bench.validation) - truth)


def test_equal_seeds_give_equal_weights_and_other_seeds_do_not(tmp_path: Path) -> None:
    one, again, other = (
        TrainingBench(tmp_path / name, seed=seed).training().run().weights
        for name, seed in (("one", 4), ("again", 4), ("other", 5))
    )
    assert same_weights(one, again)
    assert not same_weights(one, other)


def test_a_diverged_training_fails_with_its_learning_rate_and_leaves_no_model(tmp_path: Path) -> None:
    settings = TINY.model_copy(update={"learning_rate": 1e38, "weight_decay": 1.0})
    with pytest.raises(
        StageFailed, match=r"diverged at \d+ samples.*train.learning_rate in the recipe \(it is 1e\+38\)"
    ):
        TrainingBench(tmp_path, settings=settings).training().run()
    assert list(tmp_path.rglob("*.part")) == []


def test_regression_losses_are_in_the_unit_of_y(tmp_path: Path) -> None:
    """`y` has a standard deviation of 51, of which 10 is noise."""
    generator = np.random.default_rng(0)
    rows = np.empty(5000, np.dtype([("number", "f4"), ("y", "f4")]))
    rows["number"] = generator.normal(size=5000)
    rows["y"] = 100 + 50 * rows["number"] + 10 * generator.normal(size=5000)
    prior = (float(rows["y"].mean()), float(rows["y"].std()))
    encoding = Encoding(
        features=(Feature(name="number", kind="numeric"),), task="regression", train_prior=prior
    )
    bench = TrainingBench(
        tmp_path, train=rows[:4000], validation=rows[4000:], settings=LEARNING, encoding=encoding
    )
    trained = bench.training().run()
    assert trained.val_loss == pytest.approx(10, rel=0.15)
    losses = [point.train_loss for point in bench.points() if point.train_loss is not None]
    assert losses[-1] == pytest.approx(10, rel=0.3)
    assert bench.reports[-1].best_loss == pytest.approx(10, rel=0.3)
    untrained = net_learner(bench.training())
    found = untrained.loss([samples(rows[4000:], encoding)], untrained.net)
    assert found == pytest.approx(51, rel=0.1)


@pytest.mark.parametrize("rows", [1, 2, 3, 17])
def test_training_works_on_a_few_rows(tmp_path: Path, rows: int) -> None:
    train = table(rows, 0)
    trained = TrainingBench(tmp_path, train=train, validation=table(1, 1)).training().run()
    assert trained.state.samples == 3 * rows
    assert [(window.epoch, window.start, window.stop) for window in trained.state.sample_ranges] == [
        (epoch, 0, rows) for epoch in range(3)
    ]
    assert np.isfinite(trained.val_loss or 0.0)


@pytest.mark.parametrize("batch_rows", [1, 7, 10_000])
def test_every_row_is_trained_once_an_epoch_for_any_batch_size(tmp_path: Path, batch_rows: int) -> None:
    bench = TrainingBench(
        tmp_path, train=table(101, 0), settings=TINY.model_copy(update={"batch_rows": batch_rows})
    )
    trained = bench.training().run()
    assert trained.state.samples == 303
    assert [(window.epoch, window.start, window.stop) for window in trained.state.sample_ranges] == [
        (0, 0, 101),
        (1, 0, 101),
        (2, 0, 101),
    ]


def test_a_small_table_gets_small_batches_and_a_large_one_the_batch_size_of_the_recipe(
    tmp_path: Path,
) -> None:
    def batch(rows: int) -> int:
        return (
            TrainingBench(
                tmp_path, train=table(rows, 0), settings=TableNetSettings(hidden=(4,), batch_rows=1024)
            )
            .training()
            .state.controller.batch_rows
        )

    assert batch(20) == 16
    assert batch(3200) == 3200 // MIN_STEPS_PER_EPOCH
    assert batch(100_000) == 1024


def test_the_final_weights_are_the_better_of_annealed_and_averaged(tmp_path: Path) -> None:
    bench = TrainingBench(
        tmp_path, settings=TINY.model_copy(update={"max_epochs": 20, "learning_rate": 0.05, "patience": 2})
    )
    training = bench.training()
    trained = training.run()
    val_losses = [point.val_loss for point in bench.points() if point.val_loss is not None]
    assert trained.val_loss == min(val_losses[-1], trained.state.controller.best_loss)
    load_weights(net_learner(training).net, trained.weights)
    assert net_learner(training).loss(
        [samples(bench.validation)], net_learner(training).net
    ) == pytest.approx(trained.val_loss)


def test_the_log_is_stored_with_the_first_checkpoint(tmp_path: Path) -> None:
    bench = TrainingBench(tmp_path, should_stop=stop_after(30))
    with pytest.raises(StageStopped):
        bench.training().run()
    half = bench.log()
    replace(bench, should_stop=lambda: False).training().run()
    done = bench.log()
    assert 0 < len(half.windows) < len(done.windows)
    assert done.windows[: len(half.windows)] == half.windows
    assert done.windows[-1].val_loss is not None
    assert [each.first_window for each in done.starts] == [0, len(half.windows)]


def test_checkpoints_are_less_frequent_on_a_slow_store(tmp_path: Path) -> None:
    """A checkpoint every 5 s, but at most 2% of the time: more only where pods often end without notice."""
    for put_s, per_hour, saved in (
        (0.0, 0.0, range(3, 21)),
        (0.5, 0.0, range(1, 3)),
        (0.5, 90.0, range(3, 9)),
    ):
        puts: list[float] = []

        def take(puts: list[float] = puts, put_s: float = put_s) -> float:
            puts.append(put_s)
            return put_s

        folder = tmp_path / f"{put_s}-{per_hour}"
        bench = TrainingBench(folder, step_s=lambda: 1.7, put_s=take, sudden_ends_per_hour=per_hour)
        bench.training().run()
        assert (len(puts) - 1) // 4 in saved


def test_the_bottleneck_of_the_last_seconds_is_reported(tmp_path: Path) -> None:
    bench = TrainingBench(tmp_path)
    training = bench.training()

    def reported(times: LoaderTimes) -> TimeShares | None:
        training.measured.record_window(NO_STEPS, times)
        training.report(at_once=True)
        return bench.time_shares

    assert reported(LoaderTimes(4.0, 3.0, GatherSeconds(2.0, 1.0))) is None
    shares = reported(LoaderTimes(6.0, 3.0, GatherSeconds(2.0, 1.0)))
    assert shares is not None and (shares.bottleneck, shares.compute) == ("read", 0.5)
    shares = reported(LoaderTimes(16.0, 3.5, GatherSeconds(2.0, 2.0)))
    assert shares is not None and (shares.bottleneck, shares.decode) == ("compute", 0.05)
    shares = reported(LoaderTimes(26.0, 7.5, GatherSeconds(2.0, 3.0, 3.0)))
    assert shares is not None and shares.bottleneck == "transfer"
    assert (shares.decode, shares.transfer) == (0.1, 0.3)
