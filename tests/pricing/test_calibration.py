"""The P95 that is enough for 19 of 20 runs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from shoestring.pricing.learned.calibration import Z95, calibrated_p95


def same_work(count: int) -> np.ndarray:
    return np.ones(count, dtype=bool)


def test_before_the_first_run_the_p95_is_that_of_the_normal() -> None:
    assert calibrated_p95(np.zeros(0), same_work(0)) == Z95


@given(arrays(np.float64, st.integers(1, 60), elements=st.floats(-50, 50)))
def test_a_larger_error_never_lowers_the_p95(errors: np.ndarray) -> None:
    before = calibrated_p95(errors, same_work(len(errors)))
    worse = errors.copy()
    worse[0] = 200
    assert calibrated_p95(worse, same_work(len(errors))) >= before - 1e-9


def test_exact_predictions_lower_the_p95_and_large_errors_raise_it() -> None:
    assert calibrated_p95(np.zeros(100), same_work(100)) < 0.5
    assert calibrated_p95(np.tile([0.0, 5.0], 50), same_work(100)) == pytest.approx(5, abs=0.1)


def test_95_percent_of_exchangeable_runs_stay_below_the_p95_for_any_distribution() -> None:
    random = np.random.default_rng(0)
    for draw in (
        random.standard_normal,
        lambda size: random.standard_t(2, size),
        lambda size: random.exponential(size=size) ** 2,
    ):
        runs = draw((2000, 101))
        held = np.mean([row[-1] <= calibrated_p95(row[:-1], same_work(100)) for row in runs])
        assert 0.935 <= held <= 0.965


def test_other_works_and_old_runs_count_less() -> None:
    calm, wild = np.zeros(100), np.full(100, 4.0)
    assert calibrated_p95(np.concatenate([wild, calm]), same_work(200)) <= calibrated_p95(
        np.concatenate([calm, wild]), same_work(200)
    )
    mixed, of_wild = np.tile([0.0, 4.0], 50), np.tile([False, True], 50)
    mixed[1::40] = 4.0
    assert calibrated_p95(np.where(of_wild, mixed, 0.0), ~of_wild) <= calibrated_p95(
        np.where(of_wild, mixed, 0.0), of_wild
    )
