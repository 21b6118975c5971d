"""The meter's arithmetic, and the guard that keeps steps within the meter's limit."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from shoestring.core.money import from_microusd
from shoestring.core.receipt import PricePoint
from shoestring.spending.guard import RECENT_STEPS, SLOWEST_FACTOR, Guard
from shoestring.spending.meter import Meter, cost_between_usd, cost_usd, costs_usd

prices = st.integers(0, 100_000_000).map(from_microusd)
limits = st.integers(0, 10_000_000).map(from_microusd)
moments = st.floats(0, 1e8)
durations = st.floats(0, 1e6)
MICRO = Decimal("0.000001")
# The precision of sums of floats near 1e8 s.
ROUNDING_S = 1e-6


@given(prices, durations)
@example(Decimal("0.04"), 90.0)
def test_a_cost_is_exact_and_rounded_up_to_the_micro_dollar(usd_per_hour, seconds):
    exact = Fraction(usd_per_hour) * round(seconds * 1e9) / (3600 * 10**9)
    cost = Fraction(cost_usd(usd_per_hour, seconds))
    assert exact <= cost < exact + Fraction(MICRO)


def test_float_rounding_noise_costs_nothing():
    assert cost_usd(Decimal("3.6"), 0.1 + 0.2) == cost_usd(Decimal("3.6"), 0.3) == Decimal("0.000300")


@given(prices, moments, durations, durations)
def test_spend_never_falls_with_time(usd_per_hour, started_s, first_s, more_s):
    meter = Meter(usd_per_hour, started_s, Decimal(1), None)
    assert 0 <= meter.spent_usd(started_s + first_s) <= meter.spent_usd(started_s + first_s + more_s)


def test_nothing_is_spent_before_the_start():
    assert Meter(Decimal(1), 100.0, Decimal(1), None).spent_usd(50.0) == 0


@given(prices, limits, moments, durations, st.none() | durations)
def test_spending_to_the_last_second_left_stays_within_limit_and_deadline(
    usd_per_hour, limit_usd, started_s, elapsed_s, deadline_in_s
):
    deadline_s = None if deadline_in_s is None else started_s + deadline_in_s
    meter = Meter(usd_per_hour, started_s, limit_usd, deadline_s)
    now_s = started_s + elapsed_s
    left_s = meter.seconds_left(now_s)
    if left_s == float("inf"):
        assert usd_per_hour == 0 and deadline_s is None
    elif left_s > 0:
        assert meter.spent_usd(now_s + left_s) <= limit_usd
        assert deadline_s is None or now_s + left_s <= deadline_s * (1 + 1e-15)


@given(st.integers(1, 100_000_000).map(from_microusd), st.integers(1, 10_000_000).map(from_microusd))
def test_at_most_a_moment_of_the_limit_stays_unused(usd_per_hour, limit_usd):
    meter = Meter(usd_per_hour, 0.0, limit_usd, None)
    assert meter.spent_usd(meter.ends_s + 2e-6) >= limit_usd


@pytest.mark.parametrize(
    ("limit_usd", "deadline_s", "left_s"),
    [("0.01", None, 36), ("0.01", 1020.0, 20), ("0.01", 900.0, 0), ("-1", None, 0)],
)
def test_a_meter_ends_at_the_limit_or_the_deadline_whichever_is_first(limit_usd, deadline_s, left_s):
    meter = Meter(Decimal(1), 1000.0, Decimal(limit_usd), deadline_s)
    assert meter.seconds_left(1000.0) == pytest.approx(left_s, abs=1e-5)


@given(
    usd_per_hour=st.integers(1_000, 100_000_000).map(from_microusd),
    paid_s=st.floats(1, 1000),
    due_in=st.none() | st.floats(0.2, 2),
    started_s=moments,
    first=st.floats(1e-3, 0.3),
    leaving=st.floats(0, 0.5),
    slowness=st.lists(st.floats(0.3, 1), min_size=1, max_size=30),
)
def test_training_that_obeys_the_guard_never_overruns(
    usd_per_hour, paid_s, due_in, started_s, first, leaving, slowness
):
    """A step takes at most SLOWEST_FACTOR times the slowest remembered one, and the exit takes all of its
    reserved time.
    """
    first_s, exit_s, due_s = (
        first * paid_s,
        leaving * paid_s,
        None if due_in is None else started_s + due_in * paid_s,
    )
    meter = Meter(usd_per_hour, started_s, cost_usd(usd_per_hour, paid_s), due_s)
    guard, now_s, remembered = Guard(meter, step_s=first_s, exit_s=exit_s), started_s, [first_s]
    assume(meter.seconds_left(now_s) >= exit_s)
    for share in itertools.islice(itertools.cycle(slowness), 500):
        if not guard.may_step(now_s):
            break
        took_s = share * SLOWEST_FACTOR * max(remembered)
        now_s += took_s
        guard.record_step(took_s)
        remembered = [*remembered, took_s][-RECENT_STEPS:]
    now_s += exit_s
    assert meter.spent_usd(now_s - ROUNDING_S) <= meter.limit_usd
    assert due_s is None or now_s <= due_s + ROUNDING_S


@given(step=st.floats(0.05, 1), exit_s=st.floats(0, 10))
def test_the_guard_leaves_at_most_one_slow_step_and_the_exit_unused(step, exit_s):
    meter = Meter(Decimal(1), 0.0, Decimal("0.01"), None)
    guard, now_s = Guard(meter, step_s=step, exit_s=exit_s), 0.0
    while guard.may_step(now_s):
        now_s += step
        guard.record_step(step)
    assert meter.seconds_left(now_s) < SLOWEST_FACTOR * step + exit_s or now_s == 0.0


def test_one_slow_step_is_forgotten_in_time():
    meter = Meter(Decimal(1), 0.0, Decimal("0.01"), None)
    guard = Guard(meter, step_s=30.0, exit_s=0.0)
    assert not guard.may_step(0.0)
    for _ in range(RECENT_STEPS):
        guard.record_step(0.001)
    assert guard.may_step(0.0)


def test_on_a_free_machine_every_step_is_allowed():
    assert Guard(Meter(Decimal(0), 0.0, Decimal(0), None), step_s=1.0, exit_s=1.0).may_step(1e9)


moved = st.lists(st.tuples(st.floats(0, 1e4), st.decimals("0.000001", "100", places=6)), max_size=4)


@given(st.decimals("0.000001", "100", places=6), moved, st.floats(0, 1e5))
def test_spend_is_the_sum_over_prices_of_price_times_duration(
    first: Decimal, gaps: list[tuple[float, Decimal]], rest_s: float
):
    """The receipt's own sum agrees, and one more second never has a negative cost."""
    meter, now_s, spans, moves = Meter(first, 0.0, Decimal(10**6), None), 0.0, [], ()
    price = first
    for gap_s, next_price in gaps:
        spans.append((price, gap_s))
        now_s, price = now_s + gap_s, next_price
        moves += ((now_s, price),)
        meter.update(Decimal(10**6), moves, None)
    spans.append((price, rest_s))
    at = lambda seconds: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)  # noqa: E731
    had = [
        PricePoint(at=at(0.0), usd_per_hour=first),
        *(PricePoint(at=at(moment_s), usd_per_hour=each) for moment_s, each in moves),
    ]
    by_receipt = cost_between_usd(had, at(0.0), at(now_s + rest_s))
    rounding = Decimal("0.000002") + sum((price for price, _ in spans), Decimal(0)) / 3600 / 10**5
    assert abs(meter.spent_usd(now_s + rest_s) - costs_usd(spans)) <= rounding
    assert abs(by_receipt - costs_usd(spans)) <= rounding
    assert meter.spent_usd(now_s + rest_s) <= meter.spent_usd(now_s + rest_s + 1)


@given(
    st.decimals("0.01", "100", places=6),
    st.decimals("0.01", "100", places=6),
    st.floats(1, 1e4),
    st.floats(0, 0.99),
)
def test_after_a_price_change_the_limit_lasts_to_the_last_affordable_moment(
    before: Decimal, after: Decimal, seconds: float, share: float
):
    meter = Meter(before, 0.0, cost_usd(before, seconds), None)
    meter.update(meter.limit_usd, ((share * seconds, after),), None)
    assert meter.spent_usd(meter.ends_s - ROUNDING_S) <= meter.limit_usd
    assert meter.spent_usd(meter.ends_s + 0.01) > meter.limit_usd - Decimal("0.000002")
