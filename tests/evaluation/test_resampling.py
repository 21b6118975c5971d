"""Confidence intervals with the stated coverage."""

from typing import Any

import numpy as np
import pytest
from encoded_datasets import Task
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from shoestring.evaluation.metrics import rmse, statistics
from shoestring.evaluation.resampling import (
    RESAMPLES,
    ResampledMetric,
    draws,
    expanded_tail,
    resample,
    student_quantile,
)
from shoestring.evaluation.units import make_units

Array = np.ndarray[Any, np.dtype[Any]]


def quiet(phase: str, done: int) -> None:
    """Ignore the progress."""


def mae_of(errors: Array, groups: Array | None, seed: int) -> ResampledMetric:
    units = make_units(groups, len(errors))
    return resample(
        [statistics("regression", errors, np.zeros(len(errors)), units)["mae"]], units, seed, quiet
    )[0]


def correlated_errors(generator: np.random.Generator, groups: int, each: int) -> tuple[Array, Array]:
    """Return errors with a common part in each group. Their expected mean absolute value is 10."""
    group = np.repeat(np.arange(groups), each)
    return 10 + generator.normal(size=groups)[group] + 0.5 * generator.normal(size=groups * each), group


def test_group_intervals_cover_the_truth_95_times_in_100_and_row_intervals_do_not() -> None:
    trials, by_group, by_row = 100, 0, 0
    for seed in range(trials):
        errors, group = correlated_errors(np.random.default_rng(seed), 20, 10)
        whole, single = mae_of(errors, group, seed).score(), mae_of(errors, None, seed).score()
        assert (
            whole.low is not None
            and whole.high is not None
            and single.low is not None
            and single.high is not None
        )
        by_group += whole.low <= 10 <= whole.high
        by_row += single.low <= 10 <= single.high
    assert 0.91 <= by_group / trials <= 0.985
    assert by_row / trials < 0.7


@examples(15)
@given(st.integers(0, 1000))
def test_group_intervals_are_wider_when_rows_of_a_group_are_correlated(seed: int) -> None:
    errors, group = correlated_errors(np.random.default_rng(seed), 25, 20)
    assert mae_of(errors, group, 1).draws.std() > 1.5 * mae_of(errors, None, 1).draws.std()


def test_the_paired_difference_of_similar_models_has_a_narrower_interval() -> None:
    generator = np.random.default_rng(0)
    y = generator.normal(size=500)
    shared = generator.normal(size=500)
    units = make_units(None, 500)
    a, b = resample([rmse(y, y + shared, units), rmse(y, y + 1.1 * shared, units)], units, 0, quiet)
    lead, alone = (a - b).score(), a.score()
    assert lead.low is not None and lead.high is not None and alone.low is not None and alone.high is not None
    assert lead.value == a.value - b.value
    assert lead.high < 0
    assert lead.high - lead.low < (alone.high - alone.low) / 5


def test_equal_seeds_give_equal_draws() -> None:
    errors, group = correlated_errors(np.random.default_rng(0), 20, 5)
    assert np.array_equal(mae_of(errors, group, 7).draws, mae_of(errors, group, 7).draws)
    assert not np.array_equal(mae_of(errors, group, 7).draws, mae_of(errors, group, 8).draws)


def test_a_draw_has_as_many_units_as_there_are() -> None:
    units = make_units(np.array([5, -3, 5, 9, -3, 5]), 6)
    assert units.unit_of_row.tolist() == [1, 0, 1, 2, 0, 1]
    assert {w.sum() for w in draws(units, 0)} == {3.0}


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
@pytest.mark.parametrize("groups", [12, 400])
def test_sums_of_groups_give_what_weighted_rows_give_under_the_same_draws(task: Task, groups: int) -> None:
    rows, generator = 600, np.random.default_rng(4)
    group = generator.integers(0, groups, rows)
    classes = 2 if task == "binary" else 3
    if task == "regression":
        y, p = generator.normal(5, 2, rows), generator.normal(5, 2, rows)
    else:
        y = generator.integers(0, classes, rows)
        # Rounded, so that many rows tie.
        p = np.round(generator.dirichlet(np.ones(classes), rows), 1) + 1e-3
        p /= p.sum(axis=1, keepdims=True)
    units = make_units(group, rows)
    by_group, by_row = statistics(task, y, p, units), statistics(task, y, p)
    resampled = dict(zip(by_group, resample([*by_group.values()], units, 9, quiet), strict=True))
    for name, each in resampled.items():
        expected = [float(by_row[name](w[units.unit_of_row])) for w in draws(units, 9)]
        assert each.draws == pytest.approx(expected, rel=1e-9), name
        assert each.value == pytest.approx(float(by_row[name](np.ones(rows))), rel=1e-9), name


def test_few_units_or_unmeasurable_draws_give_no_interval() -> None:
    assert ResampledMetric(1.0, np.arange(RESAMPLES) / 100, 4).score().low is None
    assert ResampledMetric(1.0, np.full(RESAMPLES, np.nan), 100).score().high is None
    mostly = np.where(np.arange(RESAMPLES) % 3 == 0, np.nan, 1.0)
    assert ResampledMetric(1.0, mostly, 100).score().low == 1.0


@pytest.mark.parametrize("freedom", [4, 5, 9, 32, 1000])
def test_student_quantiles_agree_with_scipy(freedom: int) -> None:
    assert student_quantile(0.975, freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=0.01)


def test_the_tail_of_many_units_is_not_expanded() -> None:
    assert expanded_tail(10**6) == pytest.approx(0.025, abs=1e-5)
    assert expanded_tail(10) < 0.015
