"""Laws of the spend forecast and its changes, on a simulated machine with a given pace and price."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoestring.config.adaptation import AdaptationLimits
from shoestring.training.changes import PlanChange
from shoestring.training.control.drift import (
    BATCH_BELOW,
    DRIFT_BAND,
    POOL_BELOW,
    RECENT_WINDOWS,
    VALIDATION_BELOW,
    WINDOWS_BEFORE_PLAN,
    WINDOWS_BETWEEN_CHANGES,
    SpendTracker,
    TrainingPosition,
)

WINDOW_ROWS = 1000
DOLLAR = Decimal(1)


@dataclass
class Machine:
    """Trains windows of a thousand rows and makes the changes. `pace`: seconds per row at a batch of
    `batch_rows`.
    """

    pace: float = 0.001
    price: Decimal = DOLLAR
    budget_usd: float = 0.05
    max_samples: int = 10**9
    validation_s: float = 0.0
    bounds: AdaptationLimits = field(default_factory=AdaptationLimits)
    larger_is_quicker: float = 1.0
    annealing: bool = False
    samples: int = 0
    spent_usd: float = 0.0
    validation_share: float = 1.0
    batch_rows: int = 1024
    windows: int = 0
    moves: list[tuple[int, PlanChange]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.drift = SpendTracker(self.bounds)

    def position(self) -> TrainingPosition:
        an_hour = float(self.price)
        return TrainingPosition(
            samples=self.samples,
            max_samples=self.max_samples,
            spent_s=self.spent_usd / an_hour * 3600,
            left_s=max(0.0, self.budget_usd - self.spent_usd) / an_hour * 3600,
            usd_per_hour=self.price,
            validation_s=self.validation_s * self.validation_share,
            validation_every_rows=5000,
            validation_share=self.validation_share,
            batch_rows=self.batch_rows,
            recipe_batch_rows=1024,
            annealing=self.annealing,
        )

    def window(self, times: float = 1.0) -> PlanChange | None:
        pace = self.pace * times / self.larger_is_quicker ** (self.batch_rows > 1024)
        self.samples, self.windows = self.samples + WINDOW_ROWS, self.windows + 1
        self.spent_usd += (
            WINDOW_ROWS * (pace + self.validation_s * self.validation_share / 5000) * float(self.price) / 3600
        )
        self.drift, move = self.drift.after_window(pace, self.position())
        if move is not None:
            self.moves.append((self.windows, move))
            self.validation_share = move.value if move.lever == "validation" else self.validation_share
            self.batch_rows = int(move.value) if move.lever == "batch" else self.batch_rows
        return move

    def run(self, windows: int) -> Machine:
        for _ in range(windows):
            if self.spent_usd < self.budget_usd and self.samples < min(
                self.max_samples, self.drift.planned_samples or self.max_samples
            ):
                self.window()
        return self

    def levers(self) -> list[str]:
        return [move.lever for _, move in self.moves]


paces, prices = st.floats(1e-5, 1e-2), st.decimals("0.01", "50", places=4)


@given(paces, prices, st.lists(st.floats(0.95, 1.05), min_size=60, max_size=60))
def test_a_steady_machine_changes_nothing(pace: float, price: Decimal, noise: list[float]) -> None:
    machine = Machine(pace=pace, price=price, budget_usd=100 * WINDOW_ROWS * pace * float(price) / 3600)
    for times in noise:
        machine.window(times)
    assert machine.moves == []


@given(st.integers(5, 60), st.floats(2, 100))
def test_one_slow_window_changes_nothing(at: int, times: float) -> None:
    machine = Machine(budget_usd=100 * WINDOW_ROWS * 0.001 / 3600 + 10)
    for number in range(80):
        machine.window(times if number == at else 1.0)
    assert machine.moves == []


@given(st.floats(1.5, 20), st.integers(10, 40), st.booleans())
def test_drift_leads_to_a_plan_that_ends_within_the_limit(times: float, after: int, by_price: bool) -> None:
    """A slower machine and a more expensive one are treated alike."""
    machine = Machine(budget_usd=100 * WINDOW_ROWS * 0.001 / 3600).run(after)
    if by_price:
        machine.price *= Decimal(str(round(times, 3)))
    else:
        machine.pace *= times
    machine.run(4 * WINDOWS_BETWEEN_CHANGES)
    at = machine.position()
    on_trial = not machine.drift.recent_s_per_row
    assert (
        on_trial
        or machine.drift.spend_ratio(at) <= 1 + DRIFT_BAND
        or at.left_s * 3600 < 2 * WINDOWS_BETWEEN_CHANGES * WINDOW_ROWS * machine.pace
    )
    if machine.moves:
        assert machine.levers()[0] == "length"
        assert machine.drift.planned_samples < machine.drift.initial_samples


@given(st.lists(st.sampled_from([0.3, 1.0, 4.0]), min_size=20, max_size=200))
def test_changes_are_at_least_a_dwell_apart(turns: list[float]) -> None:
    machine = Machine(budget_usd=1.0, validation_s=2.0)
    for times in turns:
        machine.window(times)
    numbers = [number for number, _ in machine.moves]
    assert all(later - earlier >= WINDOWS_BETWEEN_CHANGES for earlier, later in pairwise(numbers))


def test_a_faster_machine_gets_a_longer_plan_up_to_all_samples() -> None:
    machine = Machine(budget_usd=100 * WINDOW_ROWS * 0.001 / 3600, max_samples=150_000).run(20)
    assert machine.drift.planned_samples == pytest.approx(100_000, rel=0.01)
    machine.pace /= 4
    machine.run(200)
    assert machine.levers() == ["length"]
    assert machine.drift.planned_samples == machine.samples == 150_000


def test_a_run_that_ends_before_its_money_is_unchanged() -> None:
    machine = Machine(budget_usd=1.0, max_samples=60_000).run(20)
    machine.pace *= 3
    assert machine.run(100).moves == []


def slowed(times: float, **kinds: object) -> Machine:
    machine = Machine(budget_usd=400 * WINDOW_ROWS * 0.001 / 3600, **kinds).run(20)  # type: ignore[arg-type]
    machine.pace *= times
    return machine.run(300)


def test_the_changes_with_the_least_effect_on_training_are_made_first() -> None:
    machine = slowed(7.0, validation_s=6.0, larger_is_quicker=1.5)
    assert list(dict.fromkeys(machine.levers())) == ["length", "validation", "batch", "pool"]
    assert machine.validation_share == AdaptationLimits().min_validation_share
    assert machine.batch_rows == 2048
    assert machine.levers().count("pool") == 1
    for _, move in machine.moves:
        assert any(sign.isdigit() for sign in move.reason)


def test_a_larger_batch_without_gain_is_reverted_for_good() -> None:
    machine = slowed(4.0)
    batches = [move for _, move in machine.moves if move.lever == "batch"]
    assert [move.value for move in batches] == [2048, 1024]
    assert "the gain is less than 5%" in batches[1].reason


@pytest.mark.parametrize(
    ("bounds", "missing"),
    [
        (AdaptationLimits(length=False), "length"),
        (AdaptationLimits(min_validation_share=1), "validation"),
        (AdaptationLimits(max_batch_factor=1), "batch"),
        (AdaptationLimits(pool=False), "pool"),
    ],
)
def test_changes_that_the_policy_forbids_are_not_made(bounds: AdaptationLimits, missing: str) -> None:
    levers = slowed(6.0, validation_s=2.0, larger_is_quicker=1.5, bounds=bounds).levers()
    assert missing not in levers
    assert levers


def test_while_annealing_only_the_planned_end_may_change() -> None:
    machine = Machine(budget_usd=400 * WINDOW_ROWS * 0.001 / 3600, validation_s=1.0).run(20)
    machine.pace, machine.annealing = machine.pace * 6, True
    assert set(machine.run(300).levers()) == {"length"}


def test_thresholds_are_ordered_mildest_first() -> None:
    assert 1 > VALIDATION_BELOW > BATCH_BELOW > POOL_BELOW > 0


@given(st.floats(0.5, 2), st.integers(WINDOWS_BEFORE_PLAN, 60))
def test_the_forecast_is_between_its_bounds_and_contains_the_limit(times: float, windows: int) -> None:
    machine = Machine(budget_usd=100 * WINDOW_ROWS * 0.001 / 3600)
    assert (
        machine.drift.forecast(machine.position(), Decimal(0)) is None
        if machine.drift.recent_s_per_row
        else True
    )
    machine.run(windows)
    machine.pace *= times
    machine.run(RECENT_WINDOWS)
    spent_usd = Decimal(str(round(machine.spent_usd, 6)))
    forecast = machine.drift.forecast(machine.position(), spent_usd)
    assert forecast is not None
    assert forecast.low_usd <= forecast.usd <= forecast.high_usd
    assert float(forecast.limit_usd) == pytest.approx(max(machine.budget_usd, machine.spent_usd), abs=5e-6)
