"""Loops as people write them: without `epochs()`, with a scheduler that counts, with loaders that end."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from clocks import StillClock
from small_trainings import PEAK, SmallTraining
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from shoestring.budget import Budget, budgeted
from shoestring.core.errors import UsageError
from shoestring.training.own_loop.checkpoints.saved_state import checkpoint_files
from shoestring.training.own_loop.loop_session import MAX_LATE_PASSES

pytestmark = pytest.mark.filterwarnings("ignore:no folder for checkpoints", "ignore:.*scheduler")


def train(training: SmallTraining, budget: Budget, loader: Any = None) -> int:
    """Train for a pass, a second for each batch; return its batches."""
    assert training.optimizer is not None
    count = 0
    for batch in budgeted(loader or training.loader, training.model, training.optimizer, budget):
        training.optimizer.zero_grad()
        training.model(batch).pow(2).mean().backward()
        training.optimizer.step()
        training.rates.append(float(training.optimizer.param_groups[0]["lr"]))
        training.clock.sleep(1)
        training.after_step(len(training.rates))
        count += 1
    return count


@pytest.mark.parametrize("uptime_s", [0.0, 3e3, 1e6, 1e8])
def test_a_while_loop_uses_its_budget_on_a_machine_that_has_been_up_for_a_while(uptime_s: float) -> None:
    clock, steps = StillClock(), 0
    budget = Budget(seconds=100, monotonic_s=lambda: uptime_s + clock.at_s)
    while not budget.should_stop:
        clock.sleep(1)
        steps += 1
    assert steps == 100


def test_a_pass_after_the_end_begins_no_loader_and_says_once_what_ends_with_the_budget() -> None:
    training = SmallTraining()
    budget = Budget(seconds=55, monotonic_s=training.clock.monotonic_s)
    with pytest.warns(UserWarning, match=r"the budget has ended .*budget\.epochs") as found:
        counts = [train(training, budget) for _ in range(9)]
        assert train(training, budget, loader=iter(lambda: pytest.fail("is begun"), None)) == 0
    assert counts[6:] == [0] * 3
    assert sum("has ended" in str(each.message) for each in found) == 1


def test_a_validation_between_epochs_of_ones_own_is_reserved_for_and_the_rate_is_zero_at_the_end() -> None:
    training = SmallTraining()
    budget, ends = Budget(seconds=200, monotonic_s=training.clock.monotonic_s), list[float]()
    for _ in range(30):
        if train(training, budget):
            training.clock.sleep(12)
            ends.append(training.clock.at_s)
    assert 180 < ends[-1] <= 200
    assert training.rates[-1] < 0.05 * PEAK


def test_a_loop_that_counts_its_steps_ends_with_an_error_instead_of_never() -> None:
    training = SmallTraining()
    budget = Budget(seconds=55, monotonic_s=training.clock.monotonic_s)
    with pytest.raises(UsageError, match=r"does not end by itself; `for epoch in budget\.epochs"):
        while len(training.rates) < 1000:
            train(training, budget)
            if budget.loop.late_passes == 1:
                budget.loop.late_passes = MAX_LATE_PASSES - 1


class Nothing(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(())


TOO_FEW: DataLoader[Any] = DataLoader(TensorDataset(torch.zeros(20, 1)), batch_size=32, drop_last=True)


@pytest.mark.parametrize(
    ("loader", "why"),
    [
        (TOO_FEW, "drop_last=True leaves out its 20 rows, which are less than a batch of 32"),
        (DataLoader(Nothing()), "this pass over a DataLoader has no batches"),
        ([], "this pass over a list has no batches"),
        (iter(()), "yields its batches once, and they are used up"),
    ],
)
def test_a_pass_without_batches_is_an_error_before_the_budget_is_spent(loader: Any, why: str) -> None:
    training = SmallTraining(loader=loader)
    with pytest.raises(UsageError, match=why):
        training.run(Budget(seconds=100, monotonic_s=training.clock.monotonic_s))
    assert training.epochs == [0]


def test_a_used_up_generator_is_an_error_in_its_second_pass_and_what_it_trained_is_kept(
    tmp_path: Path,
) -> None:
    training = SmallTraining()
    training.loader = (batch for batch in DataLoader(training.rows, batch_size=4))
    budget = Budget(seconds=500, checkpoints=tmp_path, monotonic_s=training.clock.monotonic_s)
    with pytest.raises(UsageError, match="a generator yields its batches once, and they are used up"):
        training.run(budget)
    assert len(training.rates) == 10
    assert int(checkpoint_files(tmp_path)[0].stem.split("-")[1]) == 10


def one_cycle(optimizer: Any) -> Any:
    return lr_scheduler.OneCycleLR(optimizer, PEAK, total_steps=70)


SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "step": lambda optimizer: lr_scheduler.StepLR(optimizer, 1, 0.5),
    "cosine": lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 10),
    "cyclic": lambda optimizer: lr_scheduler.CyclicLR(optimizer, 0.1, PEAK),
    "lambda": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: 0.5),
    "none": lambda optimizer: None,
}


def test_a_scheduler_that_raises_after_its_steps_is_refused_at_the_first_batch() -> None:
    training = SmallTraining()
    schedule = one_cycle(training.optimizer)
    with pytest.raises(UsageError, match=r"OneCycleLR\(total_steps=70\) raises an error after 70 steps"):
        training.run(Budget(seconds=1000, monotonic_s=training.clock.monotonic_s))
    assert not training.rates and schedule.last_epoch == 0


def test_such_a_scheduler_inside_another_one_is_refused() -> None:
    training = SmallTraining()
    schedule = lr_scheduler.ChainedScheduler([one_cycle(training.optimizer)])
    with pytest.raises(UsageError, match="total_steps=70"):
        training.run(Budget(seconds=1000, monotonic_s=training.clock.monotonic_s))
    assert schedule is not None


@pytest.mark.parametrize("limit", [{"steps": 70}, {"epochs": 7}, {"steps": 40}])
def test_it_may_stay_where_the_script_names_its_own_end(limit: dict[str, int]) -> None:
    training = SmallTraining()
    schedule = one_cycle(training.optimizer)
    training.after_step = lambda step: schedule.step() if step < 70 else None
    training.run(Budget(seconds=1000, monotonic_s=training.clock.monotonic_s), **limit)
    assert len(training.rates) == limit.get("steps", 70) and max(training.rates) == pytest.approx(PEAK)


@pytest.mark.parametrize("limit", [{"steps": 71}, {"epochs": 8}])
def test_it_is_refused_where_the_named_end_comes_later(limit: dict[str, int]) -> None:
    training = SmallTraining()
    schedule = one_cycle(training.optimizer)
    with pytest.raises(UsageError, match="total_steps=70"):
        training.run(Budget(seconds=1000, monotonic_s=training.clock.monotonic_s), **limit)
    assert not training.rates and schedule.last_epoch == 0


def test_it_may_count_the_named_epochs() -> None:
    training = SmallTraining()
    schedule = one_cycle(training.optimizer)
    training.after_step = lambda step: schedule.step() if step % 10 == 0 and step < 700 else None
    training.run(Budget(seconds=1000, monotonic_s=training.clock.monotonic_s), epochs=70)
    assert len(training.rates) == 700 and training.rates[-1] < 0.05 * PEAK


@pytest.mark.parametrize("kind", SCHEDULERS)
def test_other_schedulers_may_stay(kind: str) -> None:
    training = SmallTraining()
    schedule = SCHEDULERS[kind](training.optimizer)
    # Of another optimizer, which this budget does not anneal.
    other = one_cycle(torch.optim.SGD(training.model.parameters(), lr=PEAK))
    training.after_step = lambda step: schedule.step() if schedule else None
    training.run(Budget(seconds=100, monotonic_s=training.clock.monotonic_s))
    assert len(training.rates) > 90 and training.rates[-1] < 0.05 * PEAK and other.last_epoch == 0


def test_a_validation_inside_an_endless_pass_is_reserved_for_and_is_none_of_a_step() -> None:
    training = SmallTraining()
    budget = Budget(seconds=400, monotonic_s=training.clock.monotonic_s)

    def validate(step: int) -> None:
        if step % 40 == 0:
            training.clock.sleep(30)
        # A script may report the loss of each step, with a little noise in its time.
        training.clock.sleep(0.01 * (step % 3))
        budget.report(loss=1.0)

    training.after_step = validate
    train(training, budget, loader=itertools.cycle(list(training.loader)))
    reserve = budget.loop.reserve
    assert [round(each) for each in reserve.validations_s] == [30] * 3
    assert reserve.step_s == pytest.approx(1, abs=0.05)
    assert 400 - 40 < training.clock.at_s <= 400 - 30
    assert training.rates[-1] < 0.05 * PEAK


def test_a_script_that_leaves_its_epochs_is_told_at_which_rate() -> None:
    training = SmallTraining()
    budget = Budget(seconds=1000, monotonic_s=training.clock.monotonic_s)
    with pytest.warns(UserWarning, match=r"ended at a learning rate of 0\.5, 100% of its peak \(the script"):
        for epoch in budget.epochs():
            train(training, budget)
            if epoch == 12:  # early stopping, as a script has it
                break


def test_a_training_that_ends_with_its_budget_or_its_steps_is_told_nothing(
    recwarn: pytest.WarningsRecorder,
) -> None:
    for limit in ({}, {"steps": 45}, {"epochs": 5}):
        training = SmallTraining()
        training.run(Budget(seconds=80, monotonic_s=training.clock.monotonic_s), **limit)
    assert not [each for each in recwarn if "of its peak" in str(each.message)]


SHORT = """\
import time, torch
from shoestring.budget import Budget, budgeted
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
def main():
    budget = Budget(seconds=4)
    for epoch in range(20):
        for batch in budgeted([torch.ones(1, 1)] * 50, model, optimizer, budget):
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
            time.sleep(0.0005)
main()
"""


def test_a_script_whose_own_epochs_end_early_is_told_at_its_exit() -> None:
    done = subprocess.run([sys.executable, "-c", SHORT], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0
    assert "the training ended at a learning rate of 0." in done.stderr, done.stderr
    assert "of its peak (the script has ended)" in done.stderr
