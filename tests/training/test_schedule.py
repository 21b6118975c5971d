"""Laws of the learning rate's schedule and of the stall: plain numbers in, plain numbers out."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoestring.training.control.schedule import MIN_GAIN, WARMUP_SHARE, Progress, Schedule, Stall

rows = st.integers(1, 10**7)
rates = st.floats(1, 1e7)
seconds = st.floats(0, 1e5)
epochs = st.floats(0.01, 50)


def course(rows: int, budget_s: float, rate: float, steps: int = 200) -> list[Progress]:
    """A run at a steady rate until its budget is gone."""
    moments = [budget_s * step / steps for step in range(steps + 1)]
    return [Progress(int(rate * at_s), rows, at_s, budget_s - at_s, rate) for at_s in moments]


@given(
    rows,
    seconds,
    st.one_of(seconds, st.just(float("inf"))),
    rates,
    st.integers(0, 10**8),
    st.integers(1, 10**8),
)
def test_a_factor_is_a_share(
    rows: int, spent_s: float, left_s: float, rate: float, samples: int, end_samples: int
) -> None:
    at = Progress(samples, rows, spent_s, left_s, rate)
    assert 0.0 <= Schedule(end_samples).factor(at) <= 1.0
    assert (Schedule(end_samples).factor(at) == 0.0) or not Schedule(end_samples).ends(at)


@given(rows, seconds, rates, st.integers(1, 10**8))
def test_the_rate_is_at_zero_when_money_or_samples_run_out(
    rows: int, spent_s: float, rate: float, end_samples: int
) -> None:
    broke = Progress(0, rows, spent_s, 0.0, rate)
    done = Progress(end_samples, rows, spent_s, 100.0, rate)
    for at in (broke, done):
        assert Schedule(end_samples).factor(at) == 0.0
        assert Schedule(end_samples).ends(at)


@given(st.integers(1000, 10**6), epochs, rates)
def test_the_rate_rises_once_and_falls_once(rows: int, epochs: float, rate: float) -> None:
    schedule = Schedule(end_samples=30 * rows)
    run = course(rows, epochs * rows / rate, rate)
    factors = [schedule.factor(at) for at in run]
    top = factors.index(max(factors))
    assert all(before <= after + 1e-9 for before, after in pairwise(factors[: top + 1]))
    assert all(before >= after - 1e-9 for before, after in pairwise(factors[top:]))
    phases = [schedule.phase(at) for at in run]
    assert phases == sorted(phases, key=["warm-up", "stable", "decay"].index)


@given(st.integers(1000, 10**6), st.floats(0.2, 50), rates)
def test_the_rate_reaches_its_peak_and_comes_all_the_way_down(rows: int, epochs: float, rate: float) -> None:
    schedule = Schedule(end_samples=100 * rows)
    factors = [schedule.factor(at) for at in course(rows, epochs * rows / rate, rate, 1000)]
    assert max(factors) > 0.95
    assert factors[-1] == pytest.approx(0.0, abs=1e-9)


@given(st.integers(1000, 10**6), st.floats(2, 20), rates, st.floats(0.5, 10))
def test_winding_down_takes_an_epoch_and_never_goes_up_again(
    rows: int, epochs: float, rate: float, begins: float
) -> None:
    run = course(rows, (epochs + begins + 3) * rows / rate, rate, 1000)
    start = next(at for at in run if at.samples >= begins * rows)
    schedule = Schedule(end_samples=1000 * rows).wind_down(start)
    assert schedule.decaying
    assert schedule.end_samples - start.samples == rows
    factors = [schedule.factor(at) for at in run if at.samples >= start.samples]
    assert factors[0] == 1.0
    assert factors[-1] == pytest.approx(0.0, abs=1e-9)
    assert all(before >= after - 1e-9 for before, after in pairwise(factors))


@given(st.integers(100, 10**6), rates, st.floats(1, 1000))
def test_a_resumed_run_does_not_warm_up_again(rows: int, rate: float, left_s: float) -> None:
    """A start with nothing spent yet, of a run that is past its warm-up."""
    at = Progress(rows, rows, 0.0, left_s, rate)
    assert Schedule(end_samples=100 * rows).phase(at) != "warm-up"


def test_warm_up_takes_a_small_share_of_a_small_budget() -> None:
    at = Progress(int(WARMUP_SHARE * 1000), 10**6, 0.5, 9.5, 100.0)
    assert Schedule(end_samples=10**9).factor(at) == pytest.approx(1.0, abs=0.02)


def test_a_run_without_an_end_to_its_money_stays_on_the_plateau_until_its_last_epoch() -> None:
    schedule = Schedule(end_samples=10_000)
    factors = [
        schedule.factor(Progress(samples, 1000, 5.0, float("inf"), 100.0))
        for samples in (500, 8_999, 9_500, 10_000)
    ]
    assert factors == [1.0, 1.0, 0.5, 0.0]


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=30), st.integers(1, 5))
def test_a_stall_is_patience_looks_without_a_gain(losses: list[float], patience: int) -> None:
    stall = Stall(patience)
    for loss in losses:
        before, stall = stall, stall.saw(loss)
        assert stall.best <= before.best
        assert (stall.since == 0) == (loss < before.best * (1 - MIN_GAIN))
        assert stall.since <= before.since + 1
    assert stall.stalled == (stall.since >= patience)


def test_a_loss_that_is_not_a_number_is_no_gain() -> None:
    assert Stall(1).saw(float("nan")).stalled
    assert Stall(1, best=0.5).saw(float("inf")).best == 0.5
