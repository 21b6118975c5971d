"""The noise scale of the gradient: its estimate, its interval, and which steps are measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoestring.config.adaptation import AdaptationLimits
from shoestring.config.guardrails import Guardrails
from shoestring.training.contracts import RunPosition, TrainingSetup
from shoestring.training.control.controller import Controller
from shoestring.training.control.memory import ControllerMemory, recall, remember
from shoestring.training.control.noise import (
    DENSE_EVERY,
    DENSE_STEPS,
    LATER_EVERY,
    LEAST_MEASUREMENTS,
    LEAST_STEPS,
    MEASURED_STEPS,
    NOT_MEASURED,
    GradientNoise,
    quotient,
    student_quantile,
)
from shoestring.training.curve import Halves, NoiseScale, StepReadings

DIMENSIONS = 200


def drawn(phi: float, rows: int, count: int, seed: int, seen: int = 0, size: float = 1.0) -> list[Halves]:
    """Return measurements of a gradient of a size, whose noise scale is phi, 20 batches apart."""
    random = np.random.default_rng(seed)
    gradient_D = random.normal(size=DIMENSIONS)
    gradient_D *= size / np.linalg.norm(gradient_D)
    noise_N2D = random.normal(size=(count, 2, DIMENSIONS)) * size * math.sqrt(phi / DIMENSIONS / rows)
    g_N2D = gradient_D + noise_N2D
    products = (g_N2D[:, 0] * g_N2D[:, 1]).sum(1)
    differences = np.square(g_N2D[:, 0] - g_N2D[:, 1]).sum(1)
    return [
        Halves(seen + 20 * rows * number, rows, float(product), float(difference))
        for number, (product, difference) in enumerate(zip(products, differences, strict=True))
    ]


def noise_of(found: list[Halves]) -> GradientNoise:
    return NOT_MEASURED.after(found)


def scale_of(noise: GradientNoise) -> NoiseScale:
    assert noise.scale is not None
    return noise.scale


def test_estimates_are_unbiased() -> None:
    found = drawn(500.0, 64, 20_000, 0)
    assert np.mean([each.signal for each in found]) == pytest.approx(1.0, rel=0.02)
    assert np.mean([each.noise for each in found]) == pytest.approx(500.0, rel=0.01)


@pytest.mark.parametrize("phi", [10.0, 1e3, 1e4])
def test_the_interval_holds_the_scale_in_95_of_100_trainings(phi: float) -> None:
    scales = [scale_of(noise_of(drawn(phi, 512, 60, seed))) for seed in range(400)]
    held = [each.low <= phi and (each.high is None or phi <= each.high) for each in scales]
    assert 0.9 <= np.mean(held) <= 0.99
    assert np.median([each.rows for each in scales]) == pytest.approx(phi, rel=0.1)


def test_a_gradient_that_is_lost_in_its_noise_has_an_interval_without_an_end() -> None:
    found = [noise_of(drawn(1e5, 64, 40, seed)).scale for seed in range(40)]
    with_end = [each for each in found if each is not None and each.high is not None]
    assert len(with_end) < 10
    assert all(each is None or each.low <= each.rows for each in found)


@given(st.floats(1e-3, 1e3))
def test_the_scale_of_a_loss_that_is_multiplied_stays(factor: float) -> None:
    found = drawn(300.0, 64, 30, 1)
    other = [
        each._replace(product=factor**2 * each.product, difference=factor**2 * each.difference)
        for each in found
    ]
    assert scale_of(noise_of(other)) == pytest.approx(scale_of(noise_of(found)))


def test_every_row_twice_doubles_the_scale() -> None:
    found = drawn(300.0, 64, 30, 1)
    twice = [each._replace(rows=2 * each.rows) for each in found]
    assert scale_of(noise_of(twice)).rows == pytest.approx(2 * scale_of(noise_of(found)).rows)


def test_old_measurements_count_less() -> None:
    early, late = drawn(100.0, 512, 40, 0), drawn(10_000.0, 512, 200, 1, seen=40 * 20 * 512, size=0.1)
    whole = scale_of(noise_of([*early, *late]))
    plain = np.mean([each.noise for each in (*early, *late)]) / np.mean(
        [each.signal for each in (*early, *late)]
    )
    assert whole.rows > 5 * plain


def test_too_few_measurements_have_no_scale() -> None:
    found = drawn(100.0, 64, LEAST_MEASUREMENTS, 0)
    assert noise_of(found[1:]).scale is None
    assert scale_of(noise_of(found)).measurements == LEAST_MEASUREMENTS


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_measurement_that_is_not_finite_changes_nothing(bad: float) -> None:
    before = noise_of(drawn(100.0, 64, 30, 0))
    assert before.after([Halves(99, 64, bad, 1.0), Halves(99, 64, 1.0, bad)]) == before


@pytest.mark.parametrize("signal", [-1.0, 0.0])
def test_a_scale_that_would_be_negative_or_infinite_is_none(signal: float) -> None:
    assert noise_of([Halves(0, 64, signal, 1.0)] * 30).scale is None
    assert quotient(1.0, signal, 0.1, 0.1, 0.0, 2.0) is None


@given(
    y=st.floats(1e-6, 1e6),
    x=st.floats(1e-6, 1e6),
    y_share=st.floats(0, 3),
    x_share=st.floats(0, 3),
    correlation=st.floats(-1, 1),
)
def test_an_interval_holds_its_quotient(
    y: float, x: float, y_share: float, x_share: float, correlation: float
) -> None:
    y_var, x_var = (y_share * y) ** 2, (x_share * x) ** 2
    found = quotient(y, x, y_var, x_var, correlation * math.sqrt(y_var * x_var), 2.0)
    if found is not None:
        value, low, high = found
        assert value == y / x and 0 <= low <= value
        assert high is None or value <= high * (1 + 1e-9)


@pytest.mark.parametrize(
    ("freedom", "end"), [(3, 3.182), (4, 2.776), (6, 2.447), (10, 2.228), (30, 2.042), (1e6, 1.96)]
)
def test_the_end_of_students_interval(freedom: float, end: float) -> None:
    assert student_quantile(freedom) == pytest.approx(end, rel=0.01)


def test_few_measurements_have_a_wide_interval() -> None:
    found = drawn(500.0, 512, 60, 3)
    few, many = scale_of(noise_of(found[:LEAST_MEASUREMENTS])), scale_of(noise_of(found))
    assert few.high is None or few.high - few.low > 2 * ((many.high or math.inf) - many.low)


SETUP = TrainingSetup(
    epoch_rows=640_000,
    max_samples=12_800_000,
    batch_rows=64,
    patience=99,
    prior_loss=1.0,
    adaptation=AdaptationLimits(),
    guardrails=Guardrails(),
    measures_noise=True,
)
"""200,000 steps."""


def plans(
    setup: TrainingSetup, planned: int | None, samples: int, left_s: Callable[[int], float]
) -> list[tuple[int, int, bool, bool]]:
    """Return begin, rows, whether it is measured, and whether the budget has shaped it, of each step."""
    controller, found, at = Controller.start(setup, planned, 1000.0), [], 0
    while at < samples:
        plan = controller.plan(RunPosition(at, 0.0, left_s(at), 1000.0))
        found.append((at, plan.rows, plan.is_measured, plan.is_shaped_by_budget))
        at += plan.rows
    return found


@pytest.mark.parametrize(("steps", "most"), [(3_000, 0.01), (20_000, 0.01), (LEAST_STEPS, 0.015)])
def test_measuring_takes_4_percent_of_the_first_steps_and_1_of_all(steps: int, most: float) -> None:
    made = plans(SETUP, steps * 64, steps * 64, lambda at: math.inf)
    measured = [at for at, _, is_measured, _ in made if is_measured]
    assert MEASURED_STEPS * len(measured) <= most * steps
    first = [at for at in measured if at < DENSE_STEPS * 64]
    assert MEASURED_STEPS * len(first) <= 0.04 * DENSE_STEPS
    assert {later - earlier for earlier, later in pairwise(first)} == {DENSE_EVERY * 64}
    assert measured[0] == DENSE_EVERY * 64 and measured[-1] - measured[-2] == LATER_EVERY * 64
    assert len(measured) >= LEAST_MEASUREMENTS


def test_a_short_training_measures_nothing() -> None:
    setup = replace(SETUP, max_samples=LEAST_STEPS * 64 - 1)
    made = plans(setup, None, setup.max_samples, lambda at: math.inf)
    assert not any(is_measured for _, _, is_measured, _ in made)


def test_a_budget_that_buys_few_steps_measures_nothing_and_has_shaped_that() -> None:
    made = plans(SETUP, LEAST_STEPS * 64 - 1, 2 * DENSE_STEPS * 64, lambda at: math.inf)
    assert not any(is_measured for _, _, is_measured, _ in made)
    assert any(is_shaped for _, _, _, is_shaped in made)


def test_a_measured_step_has_two_batches_at_the_rate_of_their_size() -> None:
    controller = Controller.start(SETUP, None, 1000.0)
    at = RunPosition(DENSE_EVERY * 64, 0.0, math.inf, 1000.0)
    measured = controller.plan(at)
    plain = replace(controller, setup=replace(SETUP, measures_noise=False)).plan(at)
    assert (plain.rows, plain.is_measured) == (64, False)
    assert (measured.rows, measured.is_measured) == (128, True)
    assert measured.rate == plain.rate == plain.step_rate
    assert measured.step_rate == pytest.approx(math.sqrt(2) * plain.rate)


def test_a_step_that_ends_an_epoch_is_not_measured() -> None:
    setup = replace(SETUP, epoch_rows=64 * 40 + 7, max_samples=640_000)
    assert setup.first_batch_rows == 64
    made = plans(setup, None, 640_000, lambda at: math.inf)
    assert {rows for _, rows, is_measured, _ in made if is_measured} == {128}
    assert {7, 64} <= {rows for _, rows, is_measured, _ in made if not is_measured}
    assert all((at + rows - 1) // setup.epoch_rows == at // setup.epoch_rows for at, rows, *_ in made)


def test_without_time_for_it_no_step_is_measured_and_the_budget_has_shaped_that() -> None:
    made = plans(SETUP, 20_000 * 64, 64 * 2 * DENSE_EVERY, lambda at: 20 * 128 / 1000 - 0.001)
    assert not any(is_measured for _, _, is_measured, _ in made)
    due = [at for at, _, _, is_shaped in made if is_shaped]
    assert DENSE_EVERY * 64 in due


def test_the_memory_of_a_training_holds_its_noise() -> None:
    controller = Controller.start(SETUP, None, 1000.0)
    readings = StepReadings(0.1, 0, tuple(drawn(100.0, 64, 30, 0)))
    controller, _ = controller.after_readings(readings, RunPosition(64, 0.0, math.inf, 1000.0))
    stored = remember(controller, 1.0).model_dump_json()
    later = recall(Controller.start(SETUP, 64, 1000.0), ControllerMemory.model_validate_json(stored))
    assert later.noise == controller.noise and not later.noise.is_short
