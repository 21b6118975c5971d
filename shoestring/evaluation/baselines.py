"""What the model has to beat: knowing nothing, and gradient boosting given the same core-seconds.

Gradient boosting is scikit-learn's HistGradientBoosting with its own settings, on the same encoded rows. It grows until its seconds are
over, and predicts with as many iterations as validation liked best.
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
"""Categories of one feature that HistGradientBoosting can tell apart."""

Monotonic = Callable[[], float]
ReportIterations = Callable[[int], None]


def predict_prior(encoding: Encoding, rows: int) -> Floats:
    """Class shares of train for every row, float[rows, classes]; for regression train's mean, float[rows]."""
    if encoding.task == "regression":
        return np.full(rows, encoding.train_prior[0])
    return np.tile(np.array(encoding.train_prior), (rows, 1))


@dataclass(frozen=True, slots=True)
class FeatureTable:
    """Rows to fit on or to choose by: x float[n, features], y [n]."""

    x: Floats
    y: Targets


@dataclass(frozen=True, slots=True)
class BoostedTrees:
    """Gradient boosting that has been fitted. `iterations` of those `grown` are predicted with."""

    estimator: Any
    category_ranks: dict[int, Floats]
    iterations: int
    fitted_iterations: int
    elapsed_s: float
    stop_reason: str

    def predict(self, x: Floats) -> Floats:
        """float[n, classes] probabilities; for regression float[n]."""
        return next(islice(self.staged_predictions(x), self.iterations - 1, None))

    def staged_predictions(self, x: Floats) -> Iterator[Floats]:
        """What it would predict with 1, 2, ... iterations."""
        staged = getattr(self.estimator, "staged_predict_proba", self.estimator.staged_predict)
        return iter(staged(_merge_rare_categories(x, self.category_ranks)))


def fit_boosted_trees(
    train: FeatureTable,
    val: FeatureTable,
    encoding: Encoding,
    seed: int,
    given_s: float,
    now_s: Monotonic,
    tell: ReportIterations,
) -> BoostedTrees:
    """Fit until `given_s` seconds are over, and at least one iteration; choosing how many to keep comes after that.

    `tell` is called with the iterations so far, and may raise to stop.
    """
    estimator = _unfitted(encoding, seed)
    started_s = now_s()
    codes = _category_ranks(train.x, encoding)
    estimator.set_params(scoring=_TimeLimit(started_s + given_s, now_s, tell)).fit(
        _merge_rare_categories(train.x, codes), train.y
    )
    grown, taken_s = int(estimator.n_iter_), now_s() - started_s
    ended = "its seconds were over" if grown < MAX_ITERATIONS else f"{MAX_ITERATIONS} iterations are the most"
    whole = BoostedTrees(estimator, codes, grown, grown, taken_s, ended)
    loss, plain = rmse if encoding.task == "regression" else log_loss, np.ones(len(val.y))
    losses = [loss(val.y, p)(plain) for p in whole.staged_predictions(val.x)]
    return replace(whole, iterations=1 + int(np.argmin(losses)))


@dataclass(slots=True, eq=False)
class _TimeLimit:
    """scikit-learn asks it for a score before the first iteration and after each, and goes on for as long as the score grows."""

    ends_s: float
    now_s: Monotonic
    tell: ReportIterations
    grown: int = -1

    def __call__(self, estimator: Any, x: Any, y: Any) -> float:
        self.grown += 1
        self.tell(self.grown)
        return float(self.grown) if self.now_s() < self.ends_s else -1.0


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
    """For each feature of too many codes: code -> its rank by how often train holds it; the rest share the last."""
    found: dict[int, Floats] = {}
    for place, feature in enumerate(encoding.features):
        if feature.cardinality > MAX_CATEGORIES:
            counts = np.bincount(x[:, place].astype(np.int64), minlength=feature.cardinality)
            ranks = np.empty(feature.cardinality)
            ranks[np.argsort(-counts, kind="stable")] = np.minimum(
                np.arange(feature.cardinality), MAX_CATEGORIES - 1
            )
            found[place] = ranks
    return found


def _merge_rare_categories(x: Floats, codes: dict[int, Floats]) -> Floats:
    if not codes:
        return x
    x = x.copy()
    for place, ranks in codes.items():
        x[:, place] = ranks[x[:, place].astype(np.int64)]
    return x
