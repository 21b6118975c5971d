"""A training whose budget a meter writes to a file: the price moves, and the meter asks to stop."""

from __future__ import annotations

import itertools
import multiprocessing
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from clocks import StillClock
from small_trainings import PEAK, SmallTraining, survives_sigterm

from shoestring.budget import Budget, budgeted
from shoestring.core.record import record_bytes
from shoestring.spending.budget_file import BudgetFile
from shoestring.training.own_loop.checkpoints.saved_state import checkpoint_files
from shoestring.training.own_loop.loop_state import STEPS_DONE

pytestmark = pytest.mark.filterwarnings("ignore:no folder for checkpoints")
BUDGET_USD = Decimal(1)


class StillMeter:
    """A meter of $1 that a clock advances. `prices`: dollars per second from each moment on."""

    def __init__(self, path: Path, clock: StillClock, prices: dict[float, Decimal]) -> None:
        self._path, self._clock, self._prices = path, clock, prices
        self.asked_at_s = float("inf")
        self.write()

    def spent_usd(self) -> Decimal:
        """Return what the time so far has cost."""
        starts = [*self._prices, float("inf")]
        return sum(
            (
                Decimal(max(0.0, min(self._clock.at_s, end) - start)) * self._prices[start]
                for start, end in itertools.pairwise(starts)
            ),
            Decimal(0),
        )

    def write(self) -> None:
        left_usd = max(Decimal(0), BUDGET_USD - self.spent_usd())
        price = next(self._prices[start] for start in reversed(self._prices) if start <= self._clock.at_s)
        should_stop = left_usd == 0 or self._clock.at_s >= self.asked_at_s
        file = BudgetFile(
            run_id="one",
            attempt=1,
            usd_left=left_usd,
            usd_per_hour=price * 3600,
            seconds_left=float(left_usd / price),
            share_gone=float(1 - left_usd / BUDGET_USD),
            should_stop=should_stop,
            stop_reason="guardrail" if should_stop else "",
            grace_s=30.0,
            written_at=self._clock.now(),
        )
        new = self._path.with_suffix(".new")
        new.write_bytes(record_bytes(file))
        new.replace(self._path)


def metered(
    folder: Path, monkeypatch: pytest.MonkeyPatch, prices: dict[float, Decimal]
) -> tuple[SmallTraining, StillMeter]:
    """Return a training whose meter writes after each step."""
    monkeypatch.setenv("SHOESTRING_BUDGET", str(folder / "budget.json"))
    monkeypatch.setenv("SHOESTRING_CHECKPOINTS", str(folder / "checkpoints"))
    training = SmallTraining(validation_s=4)
    meter = StillMeter(folder / "budget.json", training.clock, prices)
    training.after_step = lambda step: meter.write()
    return training, meter


@pytest.mark.parametrize("factor", ["1", "2", "0.5"])
def test_a_price_that_moves_ends_the_training_inside_its_dollars(
    factor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Decimal("0.0025")
    training, meter = metered(tmp_path, monkeypatch, {0: first, 150: first * Decimal(factor)})
    training.run(Budget.here(monotonic_s=training.clock.monotonic_s))
    assert Decimal("0.95") < meter.spent_usd() <= 1
    assert max(training.rates) == pytest.approx(PEAK)
    last = training.rates[-len(training.rates) // 20 :]
    assert sum(last) / len(last) < 0.05 * PEAK


def test_a_meter_that_asks_to_stop_gets_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training, meter = metered(tmp_path, monkeypatch, {0: Decimal("0.0025")})
    meter.asked_at_s = 77.0
    budget = Budget.here(monotonic_s=training.clock.monotonic_s)
    training.run(budget)
    assert training.clock.at_s < 77 + 10
    newest = checkpoint_files(tmp_path / "checkpoints")[0]
    assert int(newest.stem.split("-")[1]) == len(training.rates)
    assert budget.should_stop
    assert (budget.checkpoint, budget.checkpoints) == (newest, tmp_path / "checkpoints")


def test_sigterm_does_not_end_a_script_that_writes_its_results_at_the_end_of_its_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training, _ = metered(tmp_path, monkeypatch, {0: Decimal("0.0025")})
    training.run(Budget.here(monotonic_s=training.clock.monotonic_s))
    assert survives_sigterm()


@pytest.mark.filterwarnings("ignore:the 2 epochs ended")
def test_sigterm_ends_a_script_whose_epochs_end_before_its_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training, _ = metered(tmp_path, monkeypatch, {0: Decimal("0.0025")})
    training.run(Budget.here(monotonic_s=training.clock.monotonic_s), epochs=2)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def train_without_epochs(training: SmallTraining, budget: Budget) -> None:
    assert training.optimizer is not None
    endless = itertools.cycle(list(training.loader))
    for _ in budgeted(endless, training.model, training.optimizer, budget):
        training.clock.sleep(1)
        training.after_step(0)


def ask_to_stop(training: SmallTraining, budget: Budget) -> None:
    while not budget.should_stop:
        training.clock.sleep(1)
        training.after_step(0)


def read_seconds_left(training: SmallTraining, budget: Budget) -> None:
    while budget.seconds_left > 0:
        training.clock.sleep(1)
        training.after_step(0)


def keep_a_margin(training: SmallTraining, budget: Budget) -> None:
    while budget.seconds_left > 20:
        training.clock.sleep(1)
    training.clock.sleep(30)  # its export begins before the end of the budget
    training.after_step(0)


@pytest.mark.parametrize("loop", [train_without_epochs, ask_to_stop, read_seconds_left, keep_a_margin])
def test_sigterm_ends_no_script_that_has_seen_the_end_of_its_budget_in_a_loop_of_its_own(
    loop: Callable[[SmallTraining, Budget], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training, meter = metered(tmp_path, monkeypatch, {0: Decimal("0.0025")})
    loop(training, Budget.here(monotonic_s=training.clock.monotonic_s))
    assert survives_sigterm()
    assert meter.spent_usd() > Decimal("0.9")


def test_sigterm_ends_a_script_whose_budget_has_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training, _ = metered(tmp_path, monkeypatch, {0: Decimal("0.0025")})
    budget = Budget.here(monotonic_s=training.clock.monotonic_s)
    assert training.optimizer is not None
    assert not budget.should_stop and budget.seconds_left > 100
    for _ in budgeted(training.loader, training.model, training.optimizer, budget, steps=5):
        training.clock.sleep(1)
    assert budget.loop.stop_reason == STEPS_DONE
    assert budget.seconds_left > 100
    script = "import os, signal, time\nfrom shoestring.budget import Budget\nBudget.here().share_gone\n"
    asked = subprocess.Popen([sys.executable, "-c", f"{script}print(flush=True)\ntime.sleep(60)"], stdout=-1)
    assert asked.stdout is not None and asked.stdout.readline()
    asked.terminate()
    assert asked.wait(20) == -signal.SIGTERM


def test_a_handler_of_the_script_receives_sigterm_after_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training, _ = metered(tmp_path, monkeypatch, {0: Decimal("0.0025")})
    signal.signal(signal.SIGTERM, own := lambda number, frame: None)
    ask_to_stop(training, Budget.here(monotonic_s=training.clock.monotonic_s))
    assert signal.getsignal(signal.SIGTERM) is own


def test_a_process_that_is_started_in_the_grace_can_be_terminated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training, _ = metered(tmp_path, monkeypatch, {0: Decimal("0.0025")})
    ask_to_stop(training, Budget.here(monotonic_s=training.clock.monotonic_s))
    forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    forked.start()
    executed = subprocess.Popen(["sleep", "60"])
    time.sleep(0.2)
    forked.terminate()
    executed.terminate()
    forked.join(20)
    assert (forked.exitcode, executed.wait(20)) == (-signal.SIGTERM, -signal.SIGTERM)
    assert survives_sigterm()
