"""Gradient boosting as a fair baseline: categorical features, and early stopping on validation."""

import time
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from encoded_datasets import CODES, Task, chances, columns, draw, encoding_of

from shoestring.core.datasets import Encoding
from shoestring.evaluation.baselines import (
    MAX_CATEGORIES,
    PATIENCE,
    BoostedTrees,
    FeatureTable,
    fit_boosted_trees,
    predict_prior,
)
from shoestring.evaluation.metrics import statistics

Array = np.ndarray[Any, np.dtype[Any]]


def table(task: Task, rows: int, seed: int) -> tuple[FeatureTable, Array]:
    """Return rows, and their true probabilities."""
    found = columns(rows, seed)
    chance = chances(task, found)
    return FeatureTable(np.column_stack(list(found.values())).astype(float), draw(task, chance, seed)), chance


def quiet(iterations: int) -> None:
    """Ignore the progress."""


@cache
def fitted(task: Task) -> tuple[BoostedTrees, Encoding]:
    train, val = table(task, 2000, 0)[0], table(task, 500, 1)[0]
    encoding = encoding_of(task, train.y)
    return fit_boosted_trees(train, val, encoding, 0, quiet), encoding


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_boosting_is_better_than_the_prior_and_not_better_than_the_truth(task: Task) -> None:
    model, encoding = fitted(task)
    test, chance = table(task, 4000, 2)
    metric = "rmse" if task == "regression" else "log_loss"
    w = np.ones(4000)
    boosted, nothing, truth = (
        statistics(task, test.y, p)[metric](w)
        for p in (model.predict(test.x), predict_prior(encoding, 4000), chance)
    )
    assert truth < boosted < nothing - 0.4 * (nothing - truth)


def test_boosted_probabilities_add_up_to_1() -> None:
    p = fitted("multiclass")[0].predict(table("multiclass", 50, 2)[0].x)
    assert p.shape == (50, 3)
    assert p.sum(axis=1) == pytest.approx(1)


def test_boosting_predicts_with_the_iterations_that_validate_best() -> None:
    model, _ = fitted("binary")
    val = table("binary", 500, 1)[0]
    w = np.ones(500)
    losses = [
        statistics("binary", val.y, replace(model, iterations=each).predict(val.x))["log_loss"](w)
        for each in range(1, model.fitted_iterations + 1)
    ]
    assert model.iterations == 1 + int(np.argmin(losses)) < model.fitted_iterations


def test_rare_categories_beyond_the_limit_share_a_code_and_common_ones_keep_theirs() -> None:
    model, _ = fitted("binary")
    ranks = model.category_ranks[0]
    assert list(model.category_ranks) == [0], "only the first column has so many"
    held = np.bincount(columns(2000, 0)["where"], minlength=CODES)
    apart, together = ranks < MAX_CATEGORIES - 1, ranks == MAX_CATEGORIES - 1
    assert len(np.unique(ranks[apart])) == apart.sum() == MAX_CATEGORIES - 1
    assert held[apart].min() >= held[together].max()


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_boosting_stops_by_validation_and_reports_every_iteration(task: Task) -> None:
    train, val = table(task, 1000, 0)[0], table(task, 500, 1)[0]
    reported = list[int]()
    model = fit_boosted_trees(train, val, encoding_of(task, train.y), 0, reported.append)
    assert model.stop_reason == "its validation loss stopped improving"
    assert model.fitted_iterations == model.iterations + PATIENCE
    assert reported == [*range(model.fitted_iterations + 1)]


def test_equal_rows_and_an_equal_seed_give_equal_predictions_however_busy_the_machine_is() -> None:
    train, val = table("binary", 1000, 0)[0], table("binary", 500, 1)[0]
    encoding = encoding_of("binary", train.y)
    x = table("binary", 200, 2)[0].x

    def busy(iterations: int) -> None:
        time.sleep(0.01)

    quick, slow = (fit_boosted_trees(train, val, encoding, 3, report).predict(x) for report in (quiet, busy))
    assert np.array_equal(quick, slow)


def test_the_report_callback_can_stop_the_fit() -> None:
    train, val = table("binary", 500, 0)[0], table("binary", 500, 1)[0]

    def enough(iterations: int) -> None:
        if iterations == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_boosted_trees(train, val, encoding_of("binary", train.y), 0, enough)
