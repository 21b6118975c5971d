"""The batch that follows the noise of the gradient: its best size, its moves, and what they depend on."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_noise import SETUP

from shoestring.config.adaptation import AdaptationLimits, BatchBounds
from shoestring.config.guardrails import Guardrails, SkillFloor
from shoestring.core.types import Need, Pool
from shoestring.pricing.throughput import half_rows
from shoestring.training.contracts import BatchRange, RunPosition, Signals
from shoestring.training.control.batch_size import (
    LOOKS,
    NEAR,
    BatchMoves,
    best_rows,
    first_changes,
    relative_cost,
)
from shoestring.training.control.controller import Controller
from shoestring.training.control.memory import ControllerMemory, recall, remember
from shoestring.training.curve import Halves, NoiseScale, StepReadings

LIMITS = BatchRange(256, 1, 8192, 1e6)
MOVING = replace(SETUP, batch_range=LIMITS)


def scale(rows: float, share: float = 1.2) -> NoiseScale:
    """Return a noise scale whose interval is narrow."""
    return NoiseScale(rows, rows / share, rows * share, 40)


def after(
    moves: BatchMoves, *scales: NoiseScale, limits: BatchRange = LIMITS, early: bool = False
) -> BatchMoves:
    for each in scales:
        moves, _ = moves.after(each, limits, is_early=early)
    return moves


@given(st.floats(1, 1e6), st.floats(1, 1e5))
def test_the_best_batch_costs_the_least(phi: float, half: float) -> None:
    best = best_rows(phi, half)
    assert relative_cost(best, phi, half) == pytest.approx(1.0)
    assert all(relative_cost(factor * best, phi, half) > 1 for factor in (0.5, 0.9, 1.1, 2.0))
    # Twice or half of it is 12.5% dearer at most.
    assert relative_cost(2 * best, phi, half) == pytest.approx(relative_cost(best / 2, phi, half))
    assert relative_cost(2 * best, phi, half) <= 1.125 + 1e-9


@given(st.floats(10, 1e5), st.integers(0, 12), st.floats(1, 1e4))
def test_the_batch_ends_within_3_percent_of_the_best_one(phi: float, start: int, half: float) -> None:
    limits = BatchRange(round(half), 1, 8192, 1e6)
    known = scale(phi, 1.01)
    moves = after(BatchMoves(2**start), *[known] * 40, limits=limits)
    assert relative_cost(moves.rows, phi, limits.half_rows) <= NEAR or moves.rows in (1, 8192)
    assert after(moves, *[known] * 10, limits=limits).rows == moves.rows


def test_one_move_takes_two_measurements_that_agree() -> None:
    up, down = scale(150), scale(10)
    assert LOOKS == 2
    assert after(BatchMoves(64), up).rows == 64
    assert after(BatchMoves(64), up, up).rows == 128
    assert after(BatchMoves(64), up, up, up).rows == 128
    assert after(BatchMoves(64), up, scale(64 * 64 / 256), up).rows == 64
    assert after(BatchMoves(128), down, down).rows == 64
    assert after(BatchMoves(128), down, up, down).rows == 128


def test_an_interval_that_does_not_tell_two_batches_apart_moves_nothing() -> None:
    wide = NoiseScale(100_000, 10, None, 40)
    assert after(BatchMoves(64), *[wide] * 9).rows == 64
    without_end = NoiseScale(10, 1, None, 40)
    assert after(BatchMoves(256), *[without_end] * 9).rows == 256


def test_a_batch_that_is_four_times_off_moves_at_each_measurement() -> None:
    assert after(BatchMoves(64), *[scale(100_000)] * 3).rows == 512
    assert after(BatchMoves(4096), *[scale(10)] * 3).rows == 512


def test_in_the_first_steps_only_a_batch_far_above_the_best_one_becomes_smaller() -> None:
    down = scale(10)
    assert after(BatchMoves(128), *[down] * 9, early=True).rows == 128
    assert after(BatchMoves(1024), down, early=True).rows == 512
    assert after(BatchMoves(64), *[scale(150)] * 2, early=True).rows == 128


@pytest.mark.parametrize(("bounds", "rows"), [((100, 8192), 128), ((1, 200), 128), ((1, 1000), 512)])
def test_a_batch_stays_within_its_bounds(bounds: tuple[int, int], rows: int) -> None:
    phi = 10.0 if bounds[0] > 1 else 1e5
    assert after(BatchMoves(128), *[scale(phi)] * 40, limits=BatchRange(256, *bounds, 1e6)).rows == rows


def test_a_change_has_its_numbers() -> None:
    moves, _ = BatchMoves(64).after(scale(150), LIMITS, is_early=False)
    moves, change = moves.after(scale(150), LIMITS, is_early=False)
    assert change is not None and (change.lever, change.value) == ("batch", 128)
    assert change.before == "64 rows" and change.after == "128 rows"
    assert "150 rows (125 to 180)" in change.reason and "256: 196 rows are best" in change.reason


def measured(controller: Controller, phi: float, count: int, at: RunPosition) -> list[Controller]:
    """Return the controllers after each of some measurements of batches as they are."""
    found = []
    for number in range(count):
        signal = 1.0 + 0.1 * (number % 2)
        rows = controller.batch_rows
        halves = Halves(at.samples + number, rows, signal, 2 * signal * phi / rows)
        controller, _ = controller.after_readings(StepReadings(halves=(halves,)), at)
        found.append(controller)
    return found


LATER = RunPosition(40_000 * 64, 10.0, math.inf, 1000.0)


def test_the_controller_enlarges_the_batch_and_its_rate() -> None:
    controller = measured(Controller.start(MOVING, None, 1000.0), 1e5, 40, LATER)[-1]
    assert controller.batch_rows == controller.moves.rows > 256
    plan = controller.plan(LATER._replace(samples=LATER.samples + 64))
    size = controller.batch_rows / 64
    assert plan.rows == controller.batch_rows and plan.size == size
    assert plan.rate == pytest.approx(math.sqrt(size))


def test_below_the_recipes_batch_the_rate_stays() -> None:
    controller = replace(Controller.start(MOVING, None, 1000.0), batch_rows=16, moves=BatchMoves(16))
    plan = controller.plan(LATER._replace(samples=LATER.samples + 16))
    assert (plan.rows, plan.rate, plan.size) == (16, 1.0, 0.25)


@pytest.mark.parametrize("batch_range", [None, LIMITS])
def test_without_a_range_the_batch_stays(batch_range: BatchRange | None) -> None:
    setup = replace(MOVING, batch_range=batch_range)
    controller = measured(Controller.start(setup, None, 1000.0), 1e5, 40, LATER)[-1]
    assert (controller.batch_rows > 64) == (batch_range is not None)
    assert controller.noise.measurements == 40


def test_while_the_rate_decays_the_batch_stays() -> None:
    controller = Controller.start(MOVING, None, 1000.0).start_decay(LATER)
    assert measured(controller, 1e5, 40, LATER)[-1].batch_rows == 64


def test_a_batch_that_money_has_changed_is_not_moved() -> None:
    controller = replace(Controller.start(MOVING, None, 1000.0), batch_rows=128)
    assert measured(controller, 1e5, 40, LATER)[-1].batch_rows == 128


def test_a_roll_back_takes_moves_back_and_others_follow() -> None:
    floor = SkillFloor(min=0.2, after_epochs=0.1, action="roll-back")
    setup = replace(MOVING, guardrails=Guardrails(skill=floor))
    began = Controller.start(setup, None, 1000.0)
    signals = Signals(Decimal(1), Decimal(0), 1.0, True)
    began, _ = began.after_validation(0.5, LATER, signals)
    moved = measured(began, 1e5, 12, LATER)[-1]
    assert moved.batch_rows > 64
    back, todo = moved.after_validation(2.0, LATER, signals)
    assert todo.restore == "rollback" and back.batch_rows == back.moves.rows == 64
    assert measured(back, 1e5, 4, LATER)[-1].batch_rows > 64


def test_a_new_pace_is_measured_after_a_move() -> None:
    controller = Controller.start(MOVING, None, 1000.0)
    controller = replace(controller, drift=replace(controller.drift, recent_s_per_row=(0.1, 0.1, 0.1)))
    steps = measured(controller, 1e5, 40, LATER)
    moved = next(each for each in steps if each.batch_rows > 64)
    assert moved.drift.recent_s_per_row == () and steps[0].drift.recent_s_per_row


def test_the_next_start_goes_on_with_the_moves() -> None:
    controller = measured(Controller.start(MOVING, None, 1000.0), 1e5, 11, LATER)[-1]
    stored = remember(controller, 1.0).model_dump_json()
    later = recall(Controller.start(MOVING, None, 1000.0), ControllerMemory.model_validate_json(stored))
    assert (later.moves, later.noise, later.batch_rows) == (
        controller.moves,
        controller.noise,
        controller.batch_rows,
    )
    older = remember(controller, 1.0).model_copy(update={"moves": None, "noise": None, "batch_rows": 128})
    assert recall(Controller.start(MOVING, None, 1000.0), older).moves == BatchMoves(128)


def test_neither_the_price_nor_the_speed_of_a_core_changes_the_batch() -> None:
    need = Need(stage="train", cpu_us_per_row=6.0, step_us=1_700.0)
    slow, fast = (Pool(name="p", cores=1, memory_gb=8, core_speed=speed, markets={}) for speed in (0.5, 3.0))
    assert half_rows(need, slow) == half_rows(need, fast) == 256
    assert half_rows(need.model_copy(update={"step_us": 0.0}), slow) == 0
    assert half_rows(need.model_copy(update={"cpu_us_per_row": 1e6}), slow) == 1


FREE = LIMITS._replace(is_free=True)


@pytest.mark.parametrize(
    ("limits", "rows"),
    [
        (None, 64),
        (LIMITS, 64),
        (FREE, 256),
        (FREE._replace(half_rows=4096), 1024),
        # It would save 3%.
        (FREE._replace(half_rows=40), 64),
        (FREE._replace(half_rows=4096, max_rows=300), 256),
        # Of few epochs none may be lost to a larger batch.
        (FREE._replace(half_rows=4096, noise_share=0.0), 64),
        (FREE._replace(half_rows=4096, noise_share=1.0), 128),
    ],
)
def test_the_first_batch_is_larger_where_a_step_takes_long(limits: BatchRange | None, rows: int) -> None:
    setup = replace(SETUP, batch_range=limits)
    controller = Controller.start(setup, None, 1000.0)
    assert controller.batch_rows == controller.moves.rows == rows
    changes = first_changes(setup, rows)
    assert [(each.before, each.after) for each in changes] == (
        [("64 rows", f"{rows:,} rows")] if rows > 64 else []
    )
    plan = controller.plan(RunPosition(0, 0.0, math.inf, 1000.0))
    assert (plan.rows, plan.size) == (rows, rows / 64)


def test_the_first_batch_of_a_short_training_is_the_familys() -> None:
    setup = replace(SETUP, batch_range=FREE._replace(half_rows=4096))
    first = {
        samples: Controller.start(setup, samples, 1000.0).batch_rows for samples in (12_799, 12_800, 60_000)
    }
    assert first == {12_799: 64, 12_800: 128, 60_000: 512}


def test_the_batch_does_not_grow_where_the_epochs_are_few() -> None:
    narrow = LIMITS._replace(noise_share=0.5)
    assert after(BatchMoves(64), *[scale(1_000)] * 40).rows == 512
    assert after(BatchMoves(64), *[scale(400)] * 40, limits=narrow).rows == 128
    assert after(BatchMoves(64), *[scale(100)] * 40, limits=narrow).rows == 64
    # It shrinks all the same.
    assert after(BatchMoves(4096), *[scale(100)] * 40, limits=narrow).rows <= 256


def test_a_gpu_has_a_larger_batch_than_cores() -> None:
    need = Need(
        stage="train",
        cpu_us_per_row=6.0,
        step_us=1_700.0,
        gpu="may",
        gpu_flop_per_row=1e6,
        gpu_bytes_per_row=3e4,
    )
    cores = Pool(name="p", cores=8, memory_gb=8, markets={})
    gpu = cores.model_copy(update={"gpu": "H100", "gpu_count": 1, "gpu_memory_gb": 80.0, "gpu_tflops": 989.0})
    assert half_rows(need, gpu) > 64 * half_rows(need, cores)


def test_bounds_of_a_policy() -> None:
    assert AdaptationLimits().batch == BatchBounds() and "batch" not in AdaptationLimits().model_dump()
    assert AdaptationLimits.model_validate({"batch": None}).batch is None
    bounds = AdaptationLimits.model_validate({"batch": {"min_rows": 64, "max_rows": 512}}).batch
    assert bounds == BatchBounds(min_rows=64, max_rows=512)
    with pytest.raises(ValueError, match="max_rows 32 is below min_rows 64"):
        BatchBounds(min_rows=64, max_rows=32)
