"""A rival that is fair: it knows which columns are categories, stops where validation says, and keeps to its seconds."""

from dataclasses import replace
from functools import cache
from itertools import count
from typing import Any

import numpy as np
import pytest
from encoded import CODES, Task, chances, columns, draw, encoding_of

from shoestring.core.datasets import Encoding
from shoestring.evaluation.baselines import (
    MAX_CATEGORIES,
    BoostedTrees,
    FeatureTable,
    fit_boosted_trees,
    predict_prior,
)
from shoestring.evaluation.metrics import statistics

Array = np.ndarray[Any, np.dtype[Any]]


def table(task: Task, rows: int, seed: int) -> tuple[FeatureTable, Array]:
    """Rows, and the truth about them."""
    found = columns(rows, seed)
    chance = chances(task, found)
    return FeatureTable(np.column_stack(list(found.values())).astype(float), draw(task, chance, seed)), chance


ITERATIONS = 120


def quiet(grown: int) -> None:
    """Tell nobody."""


@cache
def fitted(task: Task) -> tuple[BoostedTrees, Encoding]:
    """By a clock that ticks once an iteration."""
    train, val = table(task, 2000, 0)[0], table(task, 500, 1)[0]
    encoding = encoding_of(task, train.y)
    ticks = count()
    return fit_boosted_trees(train, val, encoding, 0, ITERATIONS, lambda: float(next(ticks)), quiet), encoding


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_it_beats_knowing_nothing_and_not_the_truth(task: Task) -> None:
    made, encoding = fitted(task)
    test, chance = table(task, 4000, 2)
    metric = "rmse" if task == "regression" else "log_loss"
    w = np.ones(4000)
    ours, nothing, truth = (
        statistics(task, test.y, p)[metric](w)
        for p in (made.predict(test.x), predict_prior(encoding, 4000), chance)
    )
    assert truth < ours < nothing - 0.4 * (nothing - truth)


def test_its_probabilities_add_up_to_one_over_all_classes() -> None:
    p = fitted("multiclass")[0].predict(table("multiclass", 50, 2)[0].x)
    assert p.shape == (50, 3)
    assert p.sum(axis=1) == pytest.approx(1)


def test_it_predicts_with_as_many_iterations_as_validation_liked_best() -> None:
    made, _ = fitted("binary")
    val = table("binary", 500, 1)[0]
    w = np.ones(500)
    losses = [
        statistics("binary", val.y, replace(made, iterations=each).predict(val.x))["log_loss"](w)
        for each in range(1, made.fitted_iterations + 1)
    ]
    assert made.iterations == 1 + int(np.argmin(losses)) < made.fitted_iterations


def test_codes_beyond_what_it_can_tell_apart_share_one_and_the_commonest_keep_theirs() -> None:
    made, _ = fitted("binary")
    ranks = made.category_ranks[0]
    assert list(made.category_ranks) == [0], "only the first column has so many"
    held = np.bincount(columns(2000, 0)["where"], minlength=CODES)
    apart, together = ranks < MAX_CATEGORIES - 1, ranks == MAX_CATEGORIES - 1
    assert len(np.unique(ranks[apart])) == apart.sum() == MAX_CATEGORIES - 1
    assert held[apart].min() >= held[together].max()


@pytest.mark.parametrize("given_s", [0.0, 0.5, 1.0, 3.7])
@pytest.mark.parametrize("slower", [1.0, 1.6])
def test_no_iteration_begins_after_its_seconds_and_none_before_is_left_out(
    given_s: float, slower: float
) -> None:
    """On a clock that follows the iterations, not the processor; it may slow down as they go on."""
    train, val = table("binary", 1000, 0)[0], table("binary", 500, 1)[0]
    told = [0]

    def reached_s(iterations: int) -> float:
        return float(0.05 * iterations**slower)

    made = fit_boosted_trees(
        train, val, encoding_of("binary", train.y), 0, given_s, lambda: reached_s(told[-1]), told.append
    )
    assert made.stop_reason == "it reached its time limit"
    assert (
        made.fitted_iterations
        == told[-1]
        == max(1, next(each for each in count() if reached_s(each) >= given_s))
    )
    assert made.elapsed_s == reached_s(made.fitted_iterations)


def test_whoever_is_told_may_stop_it_between_iterations() -> None:
    train, val = table("binary", 500, 0)[0], table("binary", 500, 1)[0]

    def enough(grown: int) -> None:
        if grown == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_boosted_trees(train, val, encoding_of("binary", train.y), 0, 1e6, lambda: 0.0, enough)
