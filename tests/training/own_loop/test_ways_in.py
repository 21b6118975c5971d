"""Other loops than a loader with a model and an optimizer: steps, several optimizers, a loader elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from small_trainings import PEAK, Killed, SmallTraining, budget_of, kill_at, saved_steps, seeded
from torch import nn
from torch.optim import LBFGS, SGD, Adam

from shoestring.budget import Budget, budgeted
from shoestring.core.errors import UsageError

pytestmark = pytest.mark.filterwarnings(
    "ignore:no folder for checkpoints", "ignore:.* ended with", "ignore:the training ended"
)


def run_steps(training: SmallTraining, budget: Budget, n: int | None = None) -> list[int]:
    """A script that draws its batches itself."""
    torch.manual_seed(5)
    numbers = list[int]()
    assert training.optimizer is not None
    for number in budget.steps(training.model, training.optimizer, n):
        numbers.append(number)
        training.optimizer.zero_grad()
        training.model(torch.rand(4, 1)).pow(2).mean().backward()
        training.optimizer.step()
        training.rates.append(float(training.optimizer.param_groups[0]["lr"]))
        training.clock.sleep(1)
        training.after_step(len(training.rates))
    return numbers


def test_a_loop_of_steps_has_the_schedule_and_the_stop_of_a_budget() -> None:
    training = SmallTraining()
    budget = budget_of(training, 200)

    def validate(done: int) -> None:
        if done % 70 == 0:
            training.clock.sleep(9)
            budget.report(loss=1.0)

    training.after_step = validate
    assert run_steps(training, budget) == list(range(len(training.rates)))
    assert 200 - 9 - 4 < training.clock.at_s <= 200 - 9
    assert max(training.rates) == pytest.approx(PEAK) and training.rates[-1] < 0.05 * PEAK
    assert budget.should_stop


def test_a_loop_of_steps_ends_with_the_named_steps() -> None:
    training = SmallTraining()
    assert run_steps(training, budget_of(training, 200), 60) == list(range(60))
    assert training.rates[-1] < 0.05 * PEAK


@pytest.mark.parametrize("killed_at", [2, 27, 44])
def test_a_killed_loop_of_steps_ends_with_the_same_weights(killed_at: int, tmp_path: Path) -> None:
    whole, first, rest = SmallTraining(), SmallTraining(after_step=kill_at(killed_at)), SmallTraining()
    run_steps(whole, budget_of(whole, 5000), 45)
    with pytest.raises(Killed):
        run_steps(first, budget_of(first, 5000, tmp_path), 45)
    saved = saved_steps(tmp_path)
    assert run_steps(rest, budget_of(rest, 5000, tmp_path), 45) == list(range(saved, 45))
    assert rest.weights() == whole.weights() and rest.rates == whole.rates[saved:]


def train_adversaries(training: SmallTraining, budget: Budget) -> tuple[list[nn.Module], list[float]]:
    torch.manual_seed(5)
    models = [training.model, seeded(lambda: nn.Linear(1, 1))]
    optimizers = [SGD(models[0].parameters(), lr=PEAK), Adam(models[1].parameters(), lr=0.01)]
    rates = list[float]()
    for _ in budget.epochs():
        for batch in budgeted(training.loader, models, optimizers, budget, steps=45):
            for model, optimizer in zip(models, optimizers, strict=True):
                optimizer.zero_grad()
                model(batch / 40).pow(2).mean().backward()
                optimizer.step()
            training.rates.append(optimizers[0].param_groups[0]["lr"])
            rates.append(optimizers[1].param_groups[0]["lr"])
            training.clock.sleep(1)
            training.after_step(len(rates))
        budget.report(loss=1.0)
    return models, rates


def test_two_optimizers_share_a_schedule_and_are_resumed(tmp_path: Path) -> None:
    whole, first, rest = SmallTraining(), SmallTraining(after_step=kill_at(27)), SmallTraining()
    models, rates = train_adversaries(whole, budget_of(whole, 5000))
    assert rates == pytest.approx([each * 0.01 / PEAK for each in whole.rates])
    assert rates[-1] < 0.05 * max(rates)
    with pytest.raises(Killed):
        train_adversaries(first, budget_of(first, 5000, tmp_path))
    resumed, _ = train_adversaries(rest, budget_of(rest, 5000, tmp_path))
    for mine, theirs in zip(models, resumed, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine.parameters(), theirs.parameters(), strict=True))


def test_the_checkpoint_of_another_optimizer_is_refused_and_another_folder_is_accepted(
    tmp_path: Path,
) -> None:
    first = SmallTraining()
    first.run(budget_of(first, 30, tmp_path / "first"))
    other = SmallTraining()
    other.optimizer = torch.optim.Adam(other.model.parameters(), lr=PEAK)
    with pytest.raises(UsageError) as refused:
        other.run(budget_of(other, 1000, tmp_path / "first"))
    assert str(refused.value) == (
        f"the checkpoint in {tmp_path / 'first'} is of another optimizer: it has the state of SGD, and the "
        "script trains with Adam: name another folder for checkpoints, or delete it"
    )
    assert other.rates == []
    other.run(budget_of(other, 50, tmp_path / "second"))
    assert other.rates


def test_a_checkpoint_of_one_optimizer_is_none_of_two(tmp_path: Path) -> None:
    training = SmallTraining()
    training.run(budget_of(training, 30, tmp_path))
    other = SmallTraining()
    with pytest.raises(UsageError, match=r"another model or optimizer.*1 model states, and the script has 2"):
        train_adversaries(other, budget_of(other, 300, tmp_path))


def test_a_budgeted_loader_has_the_length_and_the_attributes_of_its_loader() -> None:
    training = SmallTraining()
    assert training.optimizer is not None
    budget = budget_of(training, 55)
    wrapped = budgeted(training.loader, training.model, training.optimizer, budget)
    assert len(wrapped) == 10 and wrapped.batch_size == 4 and wrapped.dataset is training.rows
    with pytest.raises(AttributeError):
        _ = wrapped.no_such_thing
    counts = list[int]()
    for _ in budget.epochs():
        counts.append(0)
        for number, _batch in enumerate(wrapped):  # a pass for each iteration
            training.clock.sleep(1)
            counts[-1] = number + 1
    assert counts[:5] == [10] * 5 and sum(counts) < 56


def run_lbfgs(training: SmallTraining, budget: Budget) -> None:
    optimizer = training.optimizer = LBFGS(training.model.parameters(), lr=PEAK, max_iter=2)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = (training.model(torch.ones(4, 1)) - 3).pow(2).mean()
        loss.backward()
        return loss

    for _ in budget.steps(training.model, optimizer, 45):
        optimizer.step(closure)
        training.rates.append(optimizer.param_groups[0]["lr"])
        training.clock.sleep(1)
        training.after_step(len(training.rates))


def test_lbfgs_ends_at_zero_and_is_resumed(tmp_path: Path) -> None:
    whole, first, rest = SmallTraining(), SmallTraining(after_step=kill_at(27)), SmallTraining()
    run_lbfgs(whole, budget_of(whole, 5000))
    assert max(whole.rates) == pytest.approx(PEAK) and whole.rates[-1] < 0.05 * PEAK
    with pytest.raises(Killed):
        run_lbfgs(first, budget_of(first, 5000, tmp_path))
    run_lbfgs(rest, budget_of(rest, 5000, tmp_path))
    assert rest.weights() == whole.weights()


@pytest.mark.parametrize(
    ("model", "optimizer", "message"),
    [
        (nn.Linear(1, 1), {"a": 1}, "dict is not an optimizer"),
        (nn.Linear(1, 1), [], "at least one model with one optimizer"),
        ("model", SGD(nn.Linear(1, 1).parameters()), "str is not a model"),
        ([nn.Linear(1, 1), None], SGD(nn.Linear(1, 1).parameters()), "NoneType is not a model"),
    ],
)
def test_what_is_no_model_or_optimizer_is_refused_at_the_call(
    model: Any, optimizer: Any, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        budgeted([1], model, optimizer, Budget(seconds=9))
    with pytest.raises(UsageError, match=message):
        Budget(seconds=9).steps(model, optimizer)
