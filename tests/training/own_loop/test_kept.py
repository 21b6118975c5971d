"""Objects that a script keeps in its checkpoints: schedulers that count, averaged weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from small_trainings import Killed, SmallTraining, budget_of, kill_at
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel

from shoestring.budget import Budget, huggingface_callback, lightning_callback
from shoestring.core.errors import UsageError

pytestmark = pytest.mark.filterwarnings(
    "ignore:no folder for checkpoints", "ignore:.* ended with", "ignore:the training ended"
)


def test_a_kept_scheduler_that_counts_anneals_with_the_budget() -> None:
    training, momenta = SmallTraining(), list[float]()
    optimizer: Any = training.optimizer
    schedule = lr_scheduler.OneCycleLR(optimizer, 0.3, total_steps=70)

    def after(done: int) -> None:
        schedule.step()
        momenta.append(optimizer.param_groups[0]["momentum"])

    training.after_step = after
    budget = budget_of(training, 300)
    budget.keep(schedule)
    training.run(budget)
    assert len(training.rates) > 280 and max(training.rates) == pytest.approx(0.3)
    assert training.rates[-1] < 0.05 * 0.3
    # It cycles the momentum against the rate: lowest at 30% of the training.
    lowest = momenta.index(min(momenta)) / len(momenta)
    assert min(momenta) == pytest.approx(0.85, abs=0.005) and lowest == pytest.approx(0.3, abs=0.05)


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.filterwarnings("ignore:.*scheduler is overwritten")
def test_the_peak_of_a_cyclic_scheduler_is_its_highest_rate(is_kept: bool) -> None:
    training = SmallTraining()
    assert training.optimizer is not None
    schedule = lr_scheduler.CyclicLR(training.optimizer, 0.001, 0.4, step_size_up=10)
    training.after_step = lambda done: schedule.step()
    budget = budget_of(training, 300)
    if is_kept:
        budget.keep(schedule)
    training.run(budget)
    assert max(training.rates) == pytest.approx(0.4)


def run_kept(training: SmallTraining, budget: Budget) -> tuple[AveragedModel, Any]:
    assert training.optimizer is not None
    average = AveragedModel(training.model)
    schedule = lr_scheduler.StepLR(training.optimizer, 7)
    stop = training.after_step

    def after(done: int) -> None:
        average.update_parameters(training.model)
        schedule.step()
        stop(done)

    training.after_step = after
    budget.keep(average, schedule)
    torch.manual_seed(5)
    training.run(budget, steps=45)
    return average, schedule


def test_what_is_kept_is_restored(tmp_path: Path) -> None:
    whole, first, rest = SmallTraining(), SmallTraining(after_step=kill_at(27)), SmallTraining()
    average, schedule = run_kept(whole, budget_of(whole, 5000))
    with pytest.raises(Killed):
        run_kept(first, budget_of(first, 5000, tmp_path))
    resumed, counted = run_kept(rest, budget_of(rest, 5000, tmp_path))
    assert counted.last_epoch == schedule.last_epoch == 45
    assert resumed.n_averaged == average.n_averaged == 45
    assert torch.equal(resumed.module.weight, average.module.weight)


def test_what_has_no_state_or_comes_too_late_is_not_kept(tmp_path: Path) -> None:
    training = SmallTraining()
    budget = budget_of(training, 30, tmp_path)
    with pytest.raises(UsageError, match="a float has no state_dict"):
        budget.keep(0.99)
    training.run(budget)
    with pytest.raises(UsageError, match="comes before the first batch"):
        budget.keep(training.model)
    other = SmallTraining()
    more = budget_of(other, 300, tmp_path)
    more.keep(nn.Linear(1, 1))
    with pytest.raises(UsageError, match="0 kept states, and the script has 1"):
        other.run(more)


@pytest.mark.parametrize("calls", [1, 4])
def test_it_may_be_stepped_more_often_than_the_optimizer(calls: int, tmp_path: Path) -> None:
    def run(training: SmallTraining, stop: Any = lambda done: None) -> list[float]:
        optimizer: Any = training.optimizer
        schedule = lr_scheduler.SequentialLR(
            optimizer,
            [lr_scheduler.LinearLR(optimizer), lr_scheduler.OneCycleLR(optimizer, 0.3, total_steps=70)],
            [3],
        )
        momenta = list[float]()

        def after(done: int) -> None:
            for _ in range(calls):
                schedule.step()
            momenta.append(optimizer.param_groups[0]["momentum"])
            stop(done)

        training.after_step = after
        budget = budget_of(training, 5000, tmp_path)
        budget.keep(schedule)
        training.run(budget, steps=200)
        return momenta

    with pytest.raises(Killed):
        run(SmallTraining(), kill_at(150))
    momenta = run(SmallTraining())
    # It goes on where it was, and ends at the highest one.
    assert 50 <= len(momenta) < 60 and min(momenta) > 0.88 and momenta[-1] == pytest.approx(0.95, abs=0.002)


@pytest.mark.parametrize("callback", [huggingface_callback, lightning_callback])
def test_a_framework_keeps_its_own_objects(callback: Any) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("lightning")
    budget = Budget(seconds=9)
    budget.keep(nn.Linear(1, 1))
    with pytest.raises(UsageError, match=r"budget\.keep\(\.\.\.\) is for budgeted\(\) and budget\.steps\(\)"):
        callback(budget)
    other = Budget(seconds=9)
    callback(other)
    with pytest.raises(UsageError, match="comes before the first batch"):
        other.keep(nn.Linear(1, 1))
