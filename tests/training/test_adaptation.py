"""Adaptation: on a slower machine or at a higher price, training still ends annealed, within its budget,
with every change recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from clocks import BOOT_S
from small_dataset import table
from training_bench import TrainingBench, class_prior_loss

from shoestring.config.adaptation import AdaptationLimits
from shoestring.core.receipt import AdaptationChange
from shoestring.spending.meter import Meter
from shoestring.training.control.drift import DRIFT_BAND
from shoestring.training.families.table_net.settings import TableNetSettings
from shoestring.training.task import TrainedModel

STEP_S, STEPS = 0.1, 600
PRICE = Decimal(1)
LONG = TableNetSettings(
    max_epochs=100, hidden=(8,), bins=2, batch_rows=16, patience=999, learning_rate=0.01, dropout=0.0
)


def make_bench(
    folder: Path, limits: AdaptationLimits, validation_s: float = 0.0, steps: int = STEPS
) -> TrainingBench:
    """Return a training whose budget buys `steps` steps."""
    limit_usd = PRICE * Decimal(str(STEP_S * steps)) / 3600
    bench = TrainingBench(
        folder,
        train=table(1600, 0),
        validation=table(400, 1),
        settings=LONG,
        limits=limits,
        meter=Meter(PRICE, BOOT_S, limit_usd, None),
    )
    bench.validation_s, bench.step_s = (lambda: validation_s), (lambda: STEP_S)
    return bench


def slow(bench: TrainingBench, after_s: float, times: float) -> None:
    bench.step_s = lambda: STEP_S * (times if bench.clock.at_s > after_s else 1.0)


def raise_price(bench: TrainingBench, after_s: float, times: int) -> None:
    """Raise the price in the middle of a step, as another thread would."""

    def step_s() -> float:
        if bench.clock.at_s > after_s and not bench.meter.rate_changes:
            bench.meter.update(bench.meter.limit_usd, ((bench.clock.monotonic_s(), PRICE * times),), None)
        return STEP_S

    bench.step_s = step_s


def check_recalibrated(bench: TrainingBench, trained: TrainedModel) -> list[AdaptationChange]:
    assert bench.meter.spent_usd(bench.clock.monotonic_s()) <= bench.meter.limit_usd
    points = bench.points()
    assert max(point.learning_rate for point in points) == pytest.approx(LONG.learning_rate, rel=0.05)
    assert [point.learning_rate for point in points if point.train_loss is not None][
        -1
    ] < 0.2 * LONG.learning_rate
    assert trained.val_loss is not None
    assert trained.val_loss < 0.8 * class_prior_loss(bench.train, bench.validation)
    changes = trained.state.changes
    assert changes, "nothing was recorded"
    assert changes[0].lever == "length"
    assert "rows/s" in changes[0].sentence
    return changes


@pytest.mark.parametrize("disturb", [slow, raise_price])
def test_a_slower_machine_and_a_higher_price_end_annealed_within_the_budget(
    tmp_path: Path, disturb: Callable[[TrainingBench, float, int], None]
) -> None:
    bench = make_bench(tmp_path, AdaptationLimits())
    disturb(bench, 20.0, 3)
    trained = bench.training().run()
    changes = check_recalibrated(bench, trained)
    assert trained.state.samples < 0.7 * 16 * STEPS
    assert bench.forecasts[-1].planned_samples == pytest.approx(trained.state.samples, rel=0.2)
    # A plan that is within the drift band of what is left stays.
    assert bench.forecasts[-1].low_usd <= bench.forecasts[-1].limit_usd * (1 + Decimal(str(DRIFT_BAND)))
    assert [change.lever for change in changes].count("length") <= 3


@pytest.mark.parametrize("disturb", [slow, raise_price])
def test_when_the_policy_forbids_changes_the_guard_cuts_training_off(
    tmp_path: Path, disturb: Callable[[TrainingBench, float, int], None]
) -> None:
    bench = make_bench(
        tmp_path, AdaptationLimits(length=False, min_validation_share=1, max_batch_factor=1, pool=False)
    )
    disturb(bench, 20.0, 3)
    trained = bench.training().run()
    assert bench.meter.spent_usd(bench.clock.monotonic_s()) <= bench.meter.limit_usd
    assert trained.state.changes == []
    assert bench.points()[-2].learning_rate > 0.9 * LONG.learning_rate, "not annealed"


def test_an_undisturbed_run_changes_nothing(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, AdaptationLimits())
    trained = bench.training().run()
    assert trained.state.changes == []
    assert trained.state.samples > 0.9 * 16 * STEPS


def test_a_smaller_validation_share_validates_the_best_weights_again(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, AdaptationLimits(max_batch_factor=1), validation_s=2.0, steps=2000)
    slow(bench, 15.0, 3)
    trained = bench.training().run()
    assert bench.meter.spent_usd(bench.clock.monotonic_s()) <= bench.meter.limit_usd
    assert "validation" in [change.lever for change in trained.state.changes]
    assert trained.state.controller.validation_share < 1


def test_a_larger_batch_gets_a_higher_learning_rate_and_survives_a_restart(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, AdaptationLimits(min_validation_share=1), steps=2000)
    slow(bench, 20.0, 4)
    trained = bench.training().run()
    changes = [change for change in trained.state.changes if change.lever == "batch"]
    assert changes, "steps that take as long whatever their rows are cheaper when they are larger"
    assert trained.state.controller.batch_rows == 32
    assert max(point.learning_rate for point in bench.points()) > 1.3 * LONG.learning_rate
    again = replace(bench, clock=type(bench.clock)()).training()
    assert again.state.controller.batch_rows in (16, 32)
