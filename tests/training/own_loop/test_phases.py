"""Two phases of a budget: each has a schedule of its own, and a killed one continues where it was."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from small_trainings import PEAK, Killed, SmallTraining, budget_of

from shoestring.budget import Budget
from shoestring.core.errors import UsageError

pytestmark = pytest.mark.filterwarnings(
    "ignore:no folder for checkpoints", "ignore:.* ended with", "ignore:the training ended"
)


def run_phases(training: SmallTraining, budget: Budget) -> tuple[list[float], list[float]]:
    """Train a model for 60% of its budget, then again for the rest. Return the rates of both phases."""
    training.run(budget.phase(0.6))
    other = SmallTraining(clock=training.clock, model=training.model)
    other.after_step = training.after_step
    other.run(budget)
    return training.rates, other.rates


def test_each_phase_of_a_budget_has_a_schedule_of_its_own() -> None:
    training = SmallTraining()
    first, second = run_phases(training, budget_of(training, 300))
    assert 165 < len(first) <= 180 and 105 < len(second) <= 130
    for rates in (first, second):
        assert rates[0] < 0.5 * PEAK and max(rates) == pytest.approx(PEAK) and rates[-1] < 0.05 * PEAK


def test_a_training_that_is_killed_in_its_second_phase_continues_there(tmp_path: Path) -> None:
    training, steps = SmallTraining(), list[int]()

    def check(done: int) -> None:
        steps.append(done)
        if len(steps) == 230:
            raise Killed

    training.after_step = check
    with pytest.raises(Killed):
        run_phases(training, budget_of(training, 300, tmp_path))
    rest = SmallTraining()
    first, second = run_phases(rest, budget_of(rest, 300, tmp_path))
    assert first == []
    assert 60 < len(second) <= 75 and second[-1] < 0.05 * PEAK


@pytest.mark.parametrize("share", [0, 1, -0.1, 70])
def test_a_phase_is_a_share(share: float) -> None:
    with pytest.raises(UsageError, match=r"a share of its budget, like 0\.7"):
        Budget(seconds=10).phase(share)


def run_again(training: SmallTraining, budget: Budget, rate: float | None = None) -> list[float]:
    """Train for 60% of a budget, and then with the same optimizer. `rate`: the script's for that phase."""
    torch.manual_seed(5)
    training.run(budget.phase(0.6), steps=30)
    first = len(training.rates)
    optimizer: Any = training.optimizer
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] if rate is None else rate
    training.run(budget, steps=45)
    return training.rates[first:]


@pytest.mark.parametrize(("rate", "peak"), [(None, PEAK), (0.02, 0.02)])
def test_a_second_phase_of_an_optimizer_has_its_peak_again_or_what_the_script_sets(
    rate: float | None, peak: float
) -> None:
    training = SmallTraining()
    second = run_again(training, budget_of(training, 5000), rate)
    assert len(second) == 45 and second[0] < 0.5 * peak
    assert max(second) == pytest.approx(peak) and second[-1] < 0.05 * peak


@pytest.mark.parametrize("rate", [None, 0.02])
@pytest.mark.parametrize("killed_at", [20, 31, 50])
def test_it_is_resumed_with_the_same_weights(rate: float | None, killed_at: int, tmp_path: Path) -> None:
    whole = SmallTraining()
    run_again(whole, budget_of(whole, 5000), rate)
    first, rest, done = SmallTraining(), SmallTraining(), list[int]()

    def check(_: int) -> None:
        done.append(0)
        if len(done) == killed_at:
            raise Killed

    first.after_step = check
    with pytest.raises(Killed):
        run_again(first, budget_of(first, 5000, tmp_path), rate)
    run_again(rest, budget_of(rest, 5000, tmp_path), rate)
    assert rest.weights() == whole.weights()
    assert rest.rates == whole.rates[-len(rest.rates) :]


def test_sigterm_in_one_phase_ends_the_next_one() -> None:
    training = SmallTraining()
    training.after_step = lambda done: os.kill(os.getpid(), signal.SIGTERM) if done == 20 else None
    first, second = run_phases(training, budget_of(training, 300))
    assert len(first) == 20 and second == []


def test_progress_counts_the_samples_of_all_phases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    progress = tmp_path / "progress.json"
    monkeypatch.setenv("SHOESTRING_PROGRESS", str(progress))
    training = SmallTraining()
    first, second = run_phases(training, budget_of(training, 300))
    assert json.loads(progress.read_bytes())["samples"] == 4 * len(first + second)
