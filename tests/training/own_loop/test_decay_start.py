"""The decay of the learning rate begins once the reported losses no longer improve, and stays begun."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_trainings import PEAK, Killed, SmallTraining, budget_of, kill_at

from shoestring.budget import Budget, budgeted
from shoestring.training.own_loop.checkpoints.saved_state import restore_loop, state_of_loop
from shoestring.training.own_loop.rates.decay import LATEST_START, DecayStart, rate_factor

pytestmark = pytest.mark.filterwarnings("ignore:no folder for checkpoints", "ignore:.* ended with")
REPORTS = 200
STALLED_AT, BATCHES = 0.3, 400


def begun(loss_at: Callable[[float], float]) -> float:
    """Return where the decay of a training begins that reports these losses."""
    start = DecayStart()
    for report in range(REPORTS):
        start.note_loss(report / REPORTS, loss_at(report / REPORTS))
    return start.share


def test_losses_that_improve_leave_the_decay_to_the_last_fifth() -> None:
    assert begun(lambda at: 1 / (1 + at)) == LATEST_START
    assert begun(lambda at: -at) == LATEST_START
    # A noise that is larger than the gain between two reports, not than that of an interval.
    assert begun(lambda at: 2 - at + 0.2 * math.sin(1000 * at)) == LATEST_START


@pytest.mark.parametrize("stalled_at", [0.0, 0.1, 0.33, 0.5])
def test_losses_that_stall_begin_it_a_fifth_of_the_training_later(stalled_at: float) -> None:
    assert begun(lambda at: 1 - min(at, stalled_at)) == pytest.approx(stalled_at + 0.2, abs=0.06)
    # A loss that rises, as that of a model that overfits.
    assert begun(lambda at: 1 + abs(at - stalled_at)) == pytest.approx(stalled_at + 0.2, abs=0.06)


def test_losses_that_are_no_numbers_are_left_out() -> None:
    assert begun(lambda at: math.nan) == begun(lambda at: math.inf) == LATEST_START
    assert begun(lambda at: math.nan if at * REPORTS % 2 else 1 - at) == LATEST_START


def test_few_reports_begin_nothing() -> None:
    start = DecayStart()
    for at in (0.1, 0.7, 0.9):
        start.note_loss(at, 1.0)
    assert start.share == 0.7
    start = DecayStart()
    start.note_loss(0.5, 1.0)
    assert start.share == LATEST_START


def test_a_larger_budget_forgets_losses_of_other_shares() -> None:
    start = DecayStart()
    for at in (0.1, 0.2, 0.3):
        start.note_loss(at, 1 - at)
    # 30% of the training have become 10%.
    for at in (0.1, 0.2, 0.3, 0.4):
        start.note_loss(at, 0.9 - at / 10)
    assert start.share == LATEST_START


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(allow_nan=True, allow_infinity=True))))
def test_a_begin_is_never_moved_and_never_in_the_first_fifth(reports: list[tuple[float, float]]) -> None:
    start, shares = DecayStart(), [LATEST_START]
    for at, loss in sorted(reports, key=lambda each: each[0]):
        start.note_loss(at, loss)
        shares.append(start.share)
    assert len(set(shares)) <= 2
    assert 0.2 <= shares[-1] <= LATEST_START
    rates = [rate_factor(share / 200, shares[-1]) for share in range(10, 201)]
    assert rates == sorted(rates, reverse=True) and rates[-1] == 0


def run_stalling(training: SmallTraining, budget: Budget, epochs: int | None = None) -> None:
    """The script, with losses that improve for the first 30% of its steps."""
    assert training.optimizer is not None
    for _ in budget.epochs(epochs):
        for batch in budgeted(training.loader, training.model, training.optimizer, budget):
            training.optimizer.zero_grad()
            training.model(batch / 40).pow(2).mean().backward()
            training.optimizer.step()
            training.rates.append(float(training.optimizer.param_groups[0]["lr"]))
            training.clock.sleep(1.0)
            training.after_step(len(training.rates))
        done = budget.loop.position.batches
        budget.report(loss=1 - min(done / BATCHES, STALLED_AT))


def test_a_training_whose_losses_stall_decays_earlier_and_ends_at_zero() -> None:
    training = SmallTraining()
    run_stalling(training, budget := budget_of(training, BATCHES))
    assert 0.45 < budget.loop.decay_start.share < 0.56
    begin = next(step for step, rate in enumerate(training.rates[30:], 30) if rate < PEAK)
    assert 0.44 < begin / BATCHES < 0.57
    assert training.rates[begin:] == sorted(training.rates[begin:], reverse=True)
    assert training.rates[-1] < 0.01 * PEAK and training.clock.at_s > BATCHES - 5


@pytest.mark.parametrize("at", [150, 330])
def test_a_restart_keeps_the_losses_and_the_begin(at: int, tmp_path: Path) -> None:
    """One attempt is killed before the decay, one in it."""
    whole = SmallTraining()
    run_stalling(whole, of_whole := budget_of(whole, BATCHES))
    first = SmallTraining(after_step=kill_at(at))
    with pytest.raises(Killed):
        run_stalling(first, budget_of(first, BATCHES, tmp_path))
    rest = SmallTraining()
    run_stalling(rest, budget := budget_of(rest, BATCHES, tmp_path))
    assert budget.loop.decay_start.share == pytest.approx(of_whole.loop.decay_start.share, abs=0.05)
    known = state_of_loop(budget.loop)
    restored = Budget(seconds=BATCHES)
    restore_loop(restored.loop, known)
    assert restored.loop.decay_start == budget.loop.decay_start


def test_a_checkpoint_without_losses_is_one_of_an_earlier_version() -> None:
    known = state_of_loop(Budget(seconds=10).loop)
    del known["decay_start"]
    restore_loop((budget := Budget(seconds=10)).loop, known)
    assert budget.loop.decay_start == DecayStart()


def test_a_loss_before_the_first_batch_and_one_of_another_phase_count_for_nothing() -> None:
    training = SmallTraining()
    whole = budget_of(training, 300)
    phase = whole.phase(0.6)
    training.after_step = lambda step: whole.report(loss=1.0)
    training.run(phase)
    assert phase.loop.decay_start.share == LATEST_START
    assert whole.loop.decay_start == DecayStart()
