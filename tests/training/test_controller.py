"""Laws of the controller: a value that decides by numbers alone, and replays."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoestring.config.adaptation import AdaptationLimits
from shoestring.config.guardrails import EpochCap, Guardrails, SkillFloor
from shoestring.training.contracts import RunPosition, Signals, TrainingSetup, Window
from shoestring.training.control.controller import Controller
from shoestring.training.control.drift import WINDOWS_BEFORE_PLAN
from shoestring.training.control.guardrails import MAX_ROLLBACKS, ROLLBACK_RATE_FACTOR
from shoestring.training.control.schedule import DECAY_SHARE

EPOCH_ROWS = 10_000
SETUP = TrainingSetup(
    epoch_rows=EPOCH_ROWS,
    max_samples=20 * EPOCH_ROWS,
    batch_rows=1000,
    patience=2,
    prior_loss=1.0,
    adaptation=AdaptationLimits(),
    guardrails=Guardrails(),
)
PRICE = Decimal(1)


def controller(**setup: Any) -> Controller:
    return Controller.start(replace(SETUP, **setup), None, rows_per_s=1000.0)


def position(
    samples: int = 0, spent_s: float = 0.0, left_s: float = math.inf, pace: float = 0.0
) -> RunPosition:
    return RunPosition(samples, spent_s, left_s, pace)


def signals(spent_usd: str = "0", validation_s: float = 0.0, *, may_validate: bool = True) -> Signals:
    return Signals(PRICE, Decimal(spent_usd), validation_s, may_validate)


def after_losses(losses: list[float], **setup: Any) -> tuple[Controller, list[Any]]:
    """Return the controller after validations half an epoch apart, and the instructions of each."""
    now, all_instructions = controller(**setup), []
    for number, loss in enumerate(losses, 1):
        at = position(number * EPOCH_ROWS // 2)
        now, todo = now.after_validation(loss, at, signals())
        all_instructions.append(todo)
    return now, all_instructions


@given(st.integers(1, 5000), st.integers(1, 3000), st.integers(1, 40))
def test_batches_cover_each_epoch_and_none_spans_a_validation(rows: int, batch_rows: int, steps: int) -> None:
    now = controller(epoch_rows=rows, max_samples=3 * rows, batch_rows=batch_rows)
    every, samples = now.setup.validation_every_rows, 0
    for _ in range(steps):
        plan = now.plan(position(samples))
        assert 1 <= plan.rows <= now.batch_rows
        ends = samples + plan.rows
        assert samples // every == (ends - 1) // every
        assert samples // rows == (ends - 1) // rows
        samples = ends


@given(st.integers(0, 10**6), st.floats(0, 1e4), st.floats(0, 1e4), st.floats(0, 1e6))
def test_equal_numbers_give_equal_plans(samples: int, spent_s: float, left_s: float, pace: float) -> None:
    """A recorded training replays: the controller has no memory but its value."""
    at = position(samples, spent_s, left_s, pace)
    one, other = controller(), controller()
    assert one.plan(at) == other.plan(at)
    assert one.after_validation(0.5, at, signals()) == other.after_validation(0.5, at, signals())
    assert one == other


def test_a_larger_batch_has_a_higher_rate_and_a_short_one_a_lower() -> None:
    now, at = controller(batch_rows=100), position(5000)
    plain = now.plan(at).rate
    assert replace(now, batch_rows=400).plan(at).rate == pytest.approx(2 * plain)
    assert now.plan(position(4950)).rows == 50
    assert now.plan(position(4950)).rate == pytest.approx(plain / 2)


def test_the_pace_is_the_measured_one_until_the_first_plan_and_then_the_planned_one() -> None:
    now = controller()
    assert now.throughput(position()) == 1000
    for number in range(WINDOWS_BEFORE_PLAN):
        assert now.throughput(position(pace=500 + number)) == 500 + number
        at = position(16_000 * (number + 1), left_s=1000.0, pace=2000.0)
        now, change = now.after_window(Window(16_000, 8.0, 16), at, signals())
        assert change is None
    assert now.throughput(position(pace=9999)) == pytest.approx(2000)
    forecast = now.forecast(position(48_000, left_s=1000.0), signals())
    assert forecast is not None and forecast.planned_samples == 20 * EPOCH_ROWS


def test_a_fixed_length_follows_the_first_plan_and_no_budget() -> None:
    now = controller(adaptation=AdaptationLimits(length=False))
    for number in range(1, WINDOWS_BEFORE_PLAN + 1):
        at = position(8000 * number, left_s=50.0 - 8 * number)
        now, _ = now.after_window(Window(8000, 8.0, 16), at, signals())
    assert not now.schedule.follows_budget
    assert now.schedule.end_samples == 24_000 + 26_000


def test_early_stopping_returns_to_the_best_of_the_plateau_and_decays() -> None:
    now, todo = after_losses([0.9, 0.8, 0.81, 0.82])
    assert [each.keep for each in todo] == [("best", "plateau"), ("best", "plateau"), (), ()]
    assert [each.restore for each in todo] == [None, None, None, "plateau"]
    assert now.schedule.decaying
    assert now.schedule.end_samples == 2 * EPOCH_ROWS + DECAY_SHARE * 2 * EPOCH_ROWS
    assert now.best_loss == 0.8


def test_a_loss_that_is_not_a_number_is_never_the_best() -> None:
    now, todo = after_losses([0.9, math.nan])
    assert (now.best_loss, todo[1].keep) == (0.9, ())


FLOOR = Guardrails(skill=SkillFloor(min=0.3, after_epochs=1, action="roll-back"))


def test_a_roll_back_restores_the_batch_lowers_the_rate_and_is_limited() -> None:
    now, todo = after_losses([0.6], guardrails=FLOOR)
    assert "rollback" in todo[0].keep
    now = replace(now, batch_rows=2 * now.batch_rows)
    for number in range(1, MAX_ROLLBACKS + 1):
        now, again = now.after_validation(0.9, position(number * EPOCH_ROWS), signals())
        assert (again.restore, again.stop, now.batch_rows) == ("rollback", None, SETUP.first_batch_rows)
        assert now.rate_factor == ROLLBACK_RATE_FACTOR**number
        assert "5,000 samples" in again.changes[0].after
        assert now.best_loss == 0.6
    _, last = now.after_validation(0.9, position(5 * EPOCH_ROWS), signals())
    assert last.stop is not None and last.stop.action == "roll-back"


def test_without_a_good_validation_there_is_nothing_to_roll_back_to() -> None:
    _, todo = after_losses([0.95, 0.95], guardrails=FLOOR)
    assert todo[0].stop is None
    assert todo[1].stop is not None and "0.050 after 1.00 epochs" in todo[1].stop.reason


def capped(action: str, **also: Any) -> Controller:
    cap = EpochCap(max_usd=Decimal("0.10"), action=action)
    now = controller(guardrails=Guardrails(usd_per_epoch=cap), batch_rows=100, **also)
    for number in range(1, WINDOWS_BEFORE_PLAN + 1):
        now, _ = now.after_window(Window(1600, 1.6, 16), position(1600 * number), signals(validation_s=2.0))
    return now


def test_the_cost_of_an_epoch_is_checked_between_two_validations_also_where_one_was_skipped() -> None:
    now, todo = capped("stop").after_validation(None, position(5000), signals("0.02"))
    assert todo.stop is None
    cheap, todo = now.after_validation(None, position(10_000), signals("0.07"))
    assert todo.stop is None
    _, todo = cheap.after_validation(None, position(15_000), signals("0.121"))
    assert todo.stop is not None and "$0.102000" in todo.stop.reason


def test_a_costly_epoch_is_made_cheaper_one_change_at_a_time() -> None:
    now, levers = capped("rebalance", patience=99), list[str]()
    for number in range(1, 20):
        at, costly = position(5000 * number), signals(str(number), validation_s=2.0)
        now, todo = now.after_validation(0.5, at, costly)
        levers += [change.lever for change in todo.changes]
        if todo.stop is not None:
            break
        # A new batch has to be measured before the next change.
        now, _ = now.after_window(Window(1600, 1.0, 16), at, costly)
    assert levers == ["validation", "validation", "batch", "pool"]
    assert (now.validation_share, now.batch_rows) == (0.25, 200)
    assert todo.stop is not None and todo.stop.reason.endswith("no further saving is possible")


def test_validation_is_not_reduced_while_no_validation_is_affordable() -> None:
    now, _ = capped("rebalance").after_validation(None, position(5000), signals("1"))
    _, todo = now.after_validation(None, position(10_000), signals("2", 2.0, may_validate=False))
    assert [change.lever for change in todo.changes] == ["batch"]
