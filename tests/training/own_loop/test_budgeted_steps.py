"""The steps of a budgeted training: warm-up, plateau, decay to zero, and an end inside the budget."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest
from clocks import StillClock
from small_trainings import PEAK, SmallTraining

from shoestring.budget import Budget
from shoestring.core.errors import UsageError
from shoestring.training.own_loop.rates.decay import rate_factor

pytestmark = pytest.mark.filterwarnings("ignore:no folder for checkpoints")


def seconds(training: SmallTraining, total_s: float, folder: Path | None = None) -> Budget:
    return Budget(seconds=total_s, checkpoints=folder, monotonic_s=training.clock.monotonic_s)


def test_the_factor_rises_from_zero_to_one_and_falls_to_zero() -> None:
    assert rate_factor(0.0) < 0.01
    assert rate_factor(0.05) == rate_factor(0.2) == rate_factor(0.8) == 1.0
    assert rate_factor(0.9) == pytest.approx(0.25)
    assert rate_factor(0.6, 0.2) == pytest.approx(0.25)
    assert rate_factor(1.0) == 0.0
    rates = [rate_factor(share / 1000) for share in range(50, 1001)]
    assert rates == sorted(rates, reverse=True)


@pytest.mark.parametrize("validation_s", [0.0, 7.0, 30.0])
def test_a_training_ends_annealed_inside_its_budget(validation_s: float) -> None:
    training = SmallTraining(validation_s=validation_s)
    training.run(seconds(training, 400))
    assert training.clock.at_s <= 400
    assert training.clock.at_s > 400 - 2 * validation_s - 12
    assert max(training.rates) == pytest.approx(PEAK)
    last = training.rates[-len(training.rates) // 20 :]
    assert sum(last) / len(last) < 0.05 * PEAK


@pytest.mark.parametrize("slower", [2.0, 4.0])
def test_a_machine_that_slows_down_still_ends_annealed_and_in_time(slower: float) -> None:
    training = SmallTraining(validation_s=5, step_s=lambda step: 1.0 if step < 100 else slower)
    training.run(seconds(training, 400))
    assert training.clock.at_s <= 400
    last = training.rates[-len(training.rates) // 20 :]
    assert sum(last) / len(last) < 0.05 * PEAK


def test_a_slow_first_step_is_not_expected_again() -> None:
    """It may load libraries and compile, and takes half of the budget here."""
    training = SmallTraining(step_s=lambda step: 200.0 if step == 1 else 1.0)
    training.run(seconds(training, 400))
    assert 390 < training.clock.at_s <= 400
    assert training.rates[-1] < 0.05 * PEAK


def test_named_steps_end_the_training_before_the_budget_and_are_annealed() -> None:
    training = SmallTraining()
    with pytest.warns(UserWarning, match=r"the 60 steps ended with 94% of the budget left"):
        training.run(seconds(training, 1000), steps=60)
    assert len(training.rates) == 60
    assert training.rates[-1] < 0.02 * PEAK < PEAK == max(training.rates)


def test_named_epochs_are_annealed_and_the_unused_budget_is_reported_once() -> None:
    training = SmallTraining()
    with pytest.warns(UserWarning, match=r"the 4 epochs ended with 96% of the budget left") as found:
        training.run(seconds(training, 1000), epochs=4)
    assert sum("epochs ended" in str(each.message) for each in found) == 1
    assert training.epochs == [0, 1, 2, 3]
    assert training.rates[-1] < 0.05 * PEAK


def test_more_epochs_than_the_budget_buys_end_with_the_budget() -> None:
    training = SmallTraining()
    training.run(seconds(training, 100), epochs=50)
    assert 90 < training.clock.at_s <= 100
    assert training.rates[-1] < 0.05 * PEAK


def test_dollars_at_a_price_are_seconds() -> None:
    budget = Budget(usd="0.50", usd_per_hour="0.10", monotonic_s=StillClock().monotonic_s)
    assert budget.seconds_left == pytest.approx(5 * 3600)
    assert (budget.share_gone, budget.should_stop) == (0.0, False)
    assert (budget.checkpoint, budget.checkpoints) == (None, None)


@pytest.mark.parametrize(
    "named",
    [
        {},
        {"seconds": 0},
        {"seconds": float("nan")},
        {"usd": "0.5"},
        {"usd": 0.5, "usd_per_hour": "1"},
        {"usd": "0.5", "usd_per_hour": "0"},
        {"seconds": 5, "usd": "1", "usd_per_hour": "1"},
    ],
)
def test_a_budget_that_is_none_is_refused(named: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Budget(**named)  # type: ignore[arg-type]


def test_sigterm_ends_the_loop_with_a_checkpoint_and_reaches_the_handler_of_before(tmp_path: Path) -> None:
    received: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    try:
        training = SmallTraining()
        training.after_step = lambda step: os.kill(os.getpid(), signal.SIGTERM) if step == 33 else None
        training.run(seconds(training, 1000, tmp_path))
        assert received == [signal.SIGTERM]
        assert len(training.rates) == 33
        assert (tmp_path / "checkpoint-000000000033.pt").exists()
        os.kill(os.getpid(), signal.SIGTERM)
        assert received == [signal.SIGTERM] * 2
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_loop_in_another_thread_installs_no_handler() -> None:
    training, before = SmallTraining(), signal.getsignal(signal.SIGTERM)
    during: list[object] = []
    training.after_step = lambda step: during.append(signal.getsignal(signal.SIGTERM))
    thread = threading.Thread(target=lambda: training.run(seconds(training, 20)))
    thread.start()
    thread.join()
    assert set(during) == {before}


def test_progress_names_samples_total_and_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "progress.json"
    monkeypatch.setenv("SHOESTRING_PROGRESS", str(path))
    training, found = SmallTraining(), list[dict[str, float]]()
    training.after_step = lambda step: found.append(json.loads(path.read_text()))
    with warnings.catch_warnings(action="ignore"):
        training.run(seconds(training, 1000), steps=25)
    assert found[0] == {"samples": 0}
    assert found[14] == {"samples": 56, "total": 100, "loss": pytest.approx(1 / 11)}
    last = {"samples": 100, "total": 100, "loss": pytest.approx(1 / 26)}
    assert json.loads(path.read_text()) == last


def test_a_progress_file_that_cannot_be_written_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOESTRING_PROGRESS", str(tmp_path / "none" / "progress.json"))
    training = SmallTraining()
    with pytest.warns(UserWarning, match="no progress is reported"):
        training.run(seconds(training, 30))
    assert training.rates


def test_a_budget_is_imported_without_pytorch_arrays_or_stores() -> None:
    heavy = ("torch", "numpy", "pyarrow", "kfp", "obstore", "kubernetes", "psutil", "yaml", "lightgbm")
    code = (
        "import sys; from shoestring.budget import Budget, budgeted; Budget(seconds=5).seconds_left; "
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
