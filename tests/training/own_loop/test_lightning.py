"""Lightning's Trainer inside a budget: the schedule, the stop, checkpoints and a restart."""

from __future__ import annotations

import os
import signal
import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning")

from lightning_trainings import PEAK, LightningTraining, TimedModule, TwoOptimizers
from small_trainings import Killed, kill_at

from shoestring.budget import Budget, lightning_callback
from shoestring.core.errors import UsageError
from shoestring.training.own_loop.pace import ZERO_FROM, rate_factor
from shoestring.training.own_loop.termination import live_handler

pytestmark = pytest.mark.filterwarnings("ignore", "always:.*budget left", "always:.*overwritten")


def budget_of(training: LightningTraining, seconds: float) -> Budget:
    return Budget(
        seconds=seconds, checkpoints=training.folder / "kept", monotonic_s=training.clock.monotonic_s
    )


def expected(steps: int) -> list[float]:
    return [rate_factor(min(1.0, (step + 0.5) / steps / ZERO_FROM)) for step in range(steps)]


def test_lightning_ends_annealed_inside_its_budget(tmp_path: Path) -> None:
    training = LightningTraining(tmp_path)
    training.run(budget_of(training, 200))
    rates = training.made.rates
    assert 190 <= training.clock.at_s <= 200 and len(rates) == training.clock.at_s
    assert max(rates) == pytest.approx(PEAK) and rates[-1] < 0.03 * PEAK
    assert [each / PEAK for each in rates][10:] == pytest.approx(expected(len(rates))[10:], abs=0.01)


def test_both_optimizers_of_a_manual_optimisation_follow_one_schedule(tmp_path: Path) -> None:
    training = LightningTraining(tmp_path)
    training.module = module = TwoOptimizers(training.clock)
    training.run(budget_of(training, 200))
    assert 190 <= training.clock.at_s <= 200
    assert max(module.rates) == pytest.approx(PEAK) and module.rates[-1] < 0.03 * PEAK
    assert max(module.other_rates) == pytest.approx(PEAK / 10)
    assert module.other_rates[-1] < 0.03 * PEAK / 10


def test_an_accumulated_step_is_not_cut(tmp_path: Path) -> None:
    training = LightningTraining(tmp_path, arguments={"accumulate_grad_batches": 4})
    trainer = training.run(budget_of(training, 200))
    assert 190 <= training.clock.at_s <= 200
    assert trainer.global_step * 4 == training.clock.at_s
    assert training.made.rates[-1] < 0.05 * PEAK


def test_a_stop_leaves_time_for_the_validation_that_was_measured(tmp_path: Path) -> None:
    training = LightningTraining(tmp_path, validates=True)
    training.module = module = TimedModule(training.clock, validation_s=9.0)
    training.run(budget := budget_of(training, 200))
    assert 180 <= training.clock.at_s <= 200
    assert module.validated_s[-1] == training.clock.at_s
    assert module.rates[-1] < 0.03 * PEAK
    assert budget.checkpoint is not None
    assert int(budget.checkpoint.stem.split("-")[1]) == len(module.rates)


@pytest.mark.parametrize("limit", [{"max_epochs": 2}, {"max_steps": 32}])
def test_epochs_and_steps_of_lightning_that_end_before_the_money_are_named(
    limit: dict[str, int], tmp_path: Path
) -> None:
    training = LightningTraining(tmp_path, arguments=limit)
    with pytest.warns(UserWarning, match="=.* ended with 68% of the budget left: name more epochs or steps"):
        training.run(budget_of(training, 100))
    assert len(training.made.rates) == 32
    assert training.made.rates[-1] < 0.05 * PEAK


def test_a_scheduler_of_lightning_is_overwritten_and_named_once(tmp_path: Path) -> None:
    training = LightningTraining(tmp_path)
    training.made.has_scheduler = True
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        training.run(budget_of(training, 100))
    assert sum("scheduler is overwritten" in str(each.message) for each in found) == 1


@pytest.mark.parametrize("at", [64, 70])
def test_a_killed_lightning_training_continues_its_schedule(at: int, tmp_path: Path) -> None:
    first = LightningTraining(tmp_path)
    first.made.after_batch = kill_at(at)
    with pytest.raises(Killed):
        first.run(budget_of(first, 200))
    rest = LightningTraining(tmp_path, resumes=True)
    budget = budget_of(rest, 200)
    assert budget.checkpoint is not None and budget.checkpoint.suffix == ".ckpt"
    saved = int(budget.checkpoint.stem.split("-")[1])
    assert 50 < saved <= at
    trainer = rest.run(budget)
    assert trainer.global_step == saved + len(rest.made.rates)
    assert 190 <= first.clock.at_s + rest.clock.at_s <= 202
    assert rest.made.rates[0] == pytest.approx(first.made.rates[-1], rel=0.05)
    assert rest.made.rates == sorted(rest.made.rates, reverse=True)
    assert rest.made.rates[-1] < 0.03 * PEAK


def test_a_changed_module_is_named_at_a_restart(tmp_path: Path) -> None:
    first = LightningTraining(tmp_path)
    first.run(budget_of(first, 30))
    changed = LightningTraining(tmp_path, resumes=True)
    changed.module = TimedModule(changed.clock, width=2)
    with pytest.raises(UsageError, match="is of another model: name another folder"):
        changed.run(budget_of(changed, 300))


def test_sigterm_ends_lightning_with_a_checkpoint(tmp_path: Path) -> None:
    before = live_handler()
    training = LightningTraining(tmp_path, validates=True)

    def terminate(batches: int) -> None:
        if batches == 20:
            os.kill(os.getpid(), signal.SIGTERM)

    training.made.after_batch = terminate
    training.run(budget := budget_of(training, 200))
    assert len(training.made.rates) == 21
    assert budget.checkpoint is not None and budget.checkpoint.stem.endswith("-000000000021")
    assert live_handler() == before


def test_a_lightning_training_that_has_raised_leaves_sigterm_to_the_script(tmp_path: Path) -> None:
    before = live_handler()
    training = LightningTraining(tmp_path)
    training.made.after_batch = kill_at(5)
    with pytest.raises(Killed):
        training.run(budget_of(training, 200))
    assert live_handler() == before


def test_a_budget_of_lightning_belongs_to_one_training() -> None:
    budget: Any = Budget(seconds=10)
    lightning_callback(budget)
    with pytest.raises(UsageError, match="one training"):
        lightning_callback(budget)
