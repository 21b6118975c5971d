"""Laws of the learning rate schedule and of early stopping."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoestring.training.contracts import MIN_RELATIVE_GAIN
from shoestring.training.control.schedule import (
    DECAY_SHARE,
    WARMUP_SHARE,
    EarlyStopping,
    LearningRateSchedule,
    ScheduleProgress,
    min_relative_gain,
    planned_warmup_samples,
)

rows = st.integers(1, 10**7)
rates = st.floats(1, 1e7)
seconds = st.floats(0, 1e5)
epochs = st.floats(0.01, 50)


def steady_run(rows: int, budget_s: float, rate: float, steps: int = 200) -> list[ScheduleProgress]:
    """Return the progress of a run at a constant throughput until its budget is used up."""
    moments = [budget_s * step / steps for step in range(steps + 1)]
    return [ScheduleProgress(int(rate * at_s), rows, at_s, budget_s - at_s, rate) for at_s in moments]


@given(
    rows,
    seconds,
    st.one_of(seconds, st.just(float("inf"))),
    rates,
    st.integers(0, 10**8),
    st.integers(1, 10**8),
)
def test_the_factor_is_between_0_and_1(
    rows: int, spent_s: float, left_s: float, rate: float, samples: int, end_samples: int
) -> None:
    at = ScheduleProgress(samples, rows, spent_s, left_s, rate)
    assert 0.0 <= LearningRateSchedule(end_samples).factor(at) <= 1.0
    assert (LearningRateSchedule(end_samples).factor(at) == 0.0) or not LearningRateSchedule(
        end_samples
    ).is_finished(at)


@given(rows, seconds, rates, st.integers(1, 10**8))
def test_the_rate_is_0_when_money_or_samples_run_out(
    rows: int, spent_s: float, rate: float, end_samples: int
) -> None:
    broke = ScheduleProgress(0, rows, spent_s, 0.0, rate)
    done = ScheduleProgress(end_samples, rows, spent_s, 100.0, rate)
    for at in (broke, done):
        assert LearningRateSchedule(end_samples).factor(at) == 0.0
        assert LearningRateSchedule(end_samples).is_finished(at)


@given(st.integers(1000, 10**6), epochs, rates)
def test_the_rate_rises_once_and_falls_once(rows: int, epochs: float, rate: float) -> None:
    warmup_samples = planned_warmup_samples(rows, int(epochs * rows))
    schedule = LearningRateSchedule(end_samples=30 * rows, warmup_samples=warmup_samples)
    run = steady_run(rows, epochs * rows / rate, rate)
    factors = [schedule.factor(at) for at in run]
    top = factors.index(max(factors))
    assert all(before <= after + 1e-9 for before, after in pairwise(factors[: top + 1]))
    assert all(before >= after - 1e-9 for before, after in pairwise(factors[top:]))
    phases = [schedule.phase(at) for at in run]
    assert phases == sorted(phases, key=["warm-up", "stable", "decay"].index)


@given(st.integers(1000, 10**6), st.floats(0.2, 50), rates)
def test_the_rate_reaches_its_peak_and_comes_all_the_way_down(rows: int, epochs: float, rate: float) -> None:
    warmup_samples = planned_warmup_samples(rows, int(epochs * rows))
    schedule = LearningRateSchedule(end_samples=100 * rows, warmup_samples=warmup_samples)
    factors = [schedule.factor(at) for at in steady_run(rows, epochs * rows / rate, rate, 1000)]
    assert max(factors) > 0.95
    assert factors[-1] == pytest.approx(0.0, abs=1e-9)


@given(st.integers(1000, 10**6), st.floats(2, 20), rates, st.floats(0.5, 10))
def test_the_decay_takes_an_epoch_or_a_share_of_the_samples_and_never_rises_again(
    rows: int, epochs: float, rate: float, begins: float
) -> None:
    run = steady_run(rows, (epochs + begins + 3) * rows / rate, rate, 1000)
    start = next(at for at in run if at.samples >= begins * rows)
    schedule = LearningRateSchedule(end_samples=1000 * rows).start_decay(start)
    assert schedule.decaying
    assert schedule.end_samples - start.samples == min(rows, int(DECAY_SHARE * start.samples))
    factors = [schedule.factor(at) for at in run if at.samples >= start.samples]
    assert factors[0] == pytest.approx(1.0, abs=0.01)
    assert factors[-1] == pytest.approx(0.0, abs=1e-9)
    assert all(before >= after - 1e-9 for before, after in pairwise(factors))


@given(st.integers(100, 10**6), rates, st.floats(1, 1000))
def test_a_resumed_run_does_not_warm_up_again(rows: int, rate: float, left_s: float) -> None:
    """A new start, with nothing spent, of a run that is past its warm-up."""
    at = ScheduleProgress(rows, rows, 0.0, left_s, rate)
    schedule = LearningRateSchedule(100 * rows, warmup_samples=planned_warmup_samples(rows, 100 * rows))
    assert schedule.phase(at) != "warm-up"


def test_warm_up_takes_a_small_share_of_a_small_budget() -> None:
    schedule = LearningRateSchedule(end_samples=10**9, warmup_samples=planned_warmup_samples(10**6, 1000))
    at = ScheduleProgress(int(WARMUP_SHARE * 1000), 10**6, 0.5, 9.5, 100.0)
    assert schedule.factor(at) == pytest.approx(1.0, abs=0.02)


@given(st.integers(0, 10**6), rates, rates)
def test_the_warm_up_does_not_depend_on_the_speed(samples: int, slow: float, fast: float) -> None:
    schedule = LearningRateSchedule(10**9, warmup_samples=planned_warmup_samples(10**6, 10**7))
    factors = {
        schedule.factor(ScheduleProgress(samples, 10**6, 0.0, float("inf"), rate)) for rate in (slow, fast)
    }
    assert len(factors) == 1


@given(st.integers(1000, 10**6), st.floats(0.2, 20), rates, st.floats(0, 1))
def test_a_restart_does_not_raise_the_rate(rows: int, epochs: float, rate: float, stops_at: float) -> None:
    budget_s = epochs * rows / rate
    schedule = LearningRateSchedule(end_samples=100 * rows)
    at_s = stops_at * budget_s
    before = ScheduleProgress(int(rate * at_s), rows, at_s, budget_s - at_s, rate)
    # The restart loses some time.
    after = before._replace(left_s=0.9 * before.left_s)
    assert schedule.factor(after) <= schedule.factor(before) + 1e-9


def test_an_unlimited_run_stays_on_the_plateau_until_its_last_epoch() -> None:
    schedule = LearningRateSchedule(end_samples=10_000)
    factors = [
        schedule.factor(ScheduleProgress(samples, 1000, 5.0, float("inf"), 100.0))
        for samples in (500, 8_999, 9_500, 10_000)
    ]
    assert factors == [1.0, 1.0, 0.5, 0.0]


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=30), st.integers(1, 5), st.integers(1, 10**6))
def test_early_stopping_triggers_after_patience_validations_without_gain(
    losses: list[float], patience: int, units: int
) -> None:
    """Few independent units are noisy: a gain over them must be larger."""
    least = min_relative_gain(units)
    assert MIN_RELATIVE_GAIN <= least <= min_relative_gain(max(1, units // 4))
    stopping = EarlyStopping(patience, least)
    for loss in losses:
        before, stopping = stopping, stopping.update(loss)
        assert stopping.best_loss <= before.best_loss
        assert (stopping.evaluations_without_gain == 0) == (loss < before.best_loss * (1 - least))
        assert stopping.evaluations_without_gain <= before.evaluations_without_gain + 1
    assert stopping.triggered == (stopping.evaluations_without_gain >= patience)


def test_nan_and_inf_losses_are_no_gain() -> None:
    assert EarlyStopping(1).update(float("nan")).triggered
    assert EarlyStopping(1, best_loss=0.5).update(float("inf")).best_loss == 0.5
