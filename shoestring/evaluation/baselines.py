"""The baselines that a model is compared with: the prior, and gradient boosting given the same core-seconds.

Gradient boosting is scikit-learn's HistGradientBoosting with its default settings, fitted on the same
encoded rows. It adds iterations until its time limit, and predicts with the number of iterations that has
the lowest validation loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from shoestring.core.datasets import Encoding
from shoestring.evaluation.metrics import Floats, Targets, log_loss, rmse

MAX_ITERATIONS = 1000

MAX_CATEGORIES = 255
"""The number of categories of one feature that HistGradientBoosting supports."""

Monotonic = Callable[[], float]
ReportIterations = Callable[[int], None]


def predict_prior(encoding: Encoding, rows: int) -> Floats:
    """Return train's class shares for every row, float[rows, classes]; for regression train's mean,
    float[rows]."""
    if encoding.task == "regression":
        return np.full(rows, encoding.train_prior[0])
    return np.tile(np.array(encoding.train_prior), (rows, 1))


@dataclass(frozen=True, slots=True)
class FeatureTable:
    """Encoded rows: x float[n, features], y [n]."""

    x: Floats
    y: Targets


@dataclass(frozen=True, slots=True)
class BoostedTrees:
    """A fitted gradient boosting model. It predicts with the first `iterations` of its
    `fitted_iterations`."""

    estimator: Any
    category_ranks: dict[int, Floats]
    iterations: int
    fitted_iterations: int
    elapsed_s: float
    stop_reason: str

    def predict(self, x: Floats) -> Floats:
        """Return probabilities float[n, classes]; for regression float[n]."""
        return next(islice(self.staged_predictions(x), self.iterations - 1, None))

    def staged_predictions(self, x: Floats) -> Iterator[Floats]:
        """Yield the predictions with 1, 2, ... iterations."""
        staged = getattr(self.estimator, "staged_predict_proba", self.estimator.staged_predict)
        return iter(staged(_merge_rare_categories(x, self.category_ranks)))


def fit_boosted_trees(
    train: FeatureTable,
    val: FeatureTable,
    encoding: Encoding,
    seed: int,
    limit_s: float,
    now_s: Monotonic,
    report: ReportIterations,
) -> BoostedTrees:
    """Fit for `limit_s` seconds and at least one iteration, then choose the number of iterations on `val`.

    `report` receives the number of iterations so far, and may raise to stop the fit.
    """
    estimator = _unfitted(encoding, seed)
    started_s = now_s()
    ranks = _category_ranks(train.x, encoding)
    estimator.set_params(scoring=_TimeLimit(started_s + limit_s, now_s, report)).fit(
        _merge_rare_categories(train.x, ranks), train.y
    )
    fitted, elapsed_s = int(estimator.n_iter_), now_s() - started_s
    stop_reason = (
        "it reached its time limit"
        if fitted < MAX_ITERATIONS
        else f"it reached the maximum of {MAX_ITERATIONS} iterations"
    )
    whole = BoostedTrees(estimator, ranks, fitted, fitted, elapsed_s, stop_reason)
    loss, weights = rmse if encoding.task == "regression" else log_loss, np.ones(len(val.y))
    losses = [loss(val.y, p)(weights) for p in whole.staged_predictions(val.x)]
    return replace(whole, iterations=1 + int(np.argmin(losses)))


@dataclass(slots=True, eq=False)
class _TimeLimit:
    """A scorer that stops a fit at a time limit.

    scikit-learn calls it before the first iteration and after each, and continues while the score rises.
    """

    ends_s: float
    now_s: Monotonic
    report: ReportIterations
    iterations: int = -1

    def __call__(self, estimator: Any, x: Any, y: Any) -> float:
        self.iterations += 1
        self.report(self.iterations)
        return float(self.iterations) if self.now_s() < self.ends_s else -1.0


def _unfitted(encoding: Encoding, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    kind = HistGradientBoostingRegressor if encoding.task == "regression" else HistGradientBoostingClassifier
    return kind(
        max_iter=MAX_ITERATIONS,
        early_stopping=True,
        validation_fraction=None,
        n_iter_no_change=1,
        tol=0,
        categorical_features=[feature.kind == "categorical" for feature in encoding.features],
        random_state=seed,
    )


def _category_ranks(x: Floats, encoding: Encoding) -> dict[int, Floats]:
    """Return, for each feature with too many categories, code -> rank by frequency in train; rare codes
    share the last."""
    found: dict[int, Floats] = {}
    for index, feature in enumerate(encoding.features):
        if feature.cardinality > MAX_CATEGORIES:
            counts = np.bincount(x[:, index].astype(np.int64), minlength=feature.cardinality)
            ranks = np.empty(feature.cardinality)
            ranks[np.argsort(-counts, kind="stable")] = np.minimum(
                np.arange(feature.cardinality), MAX_CATEGORIES - 1
            )
            found[index] = ranks
    return found


def _merge_rare_categories(x: Floats, ranks: dict[int, Floats]) -> Floats:
    if not ranks:
        return x
    x = x.copy()
    for index, feature_ranks in ranks.items():
        x[:, index] = feature_ranks[x[:, index].astype(np.int64)]
    return x
