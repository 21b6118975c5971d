"""The baselines that a model is compared with: the prior, and gradient boosting.

Gradient boosting is scikit-learn's HistGradientBoosting with its default settings, fitted on the same
encoded rows. It stops when the loss on the validation split no longer improves, and predicts with the number
of iterations that has the lowest one. No clock decides, so equal rows and an equal seed give equal
predictions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from shoestring.core.datasets import Encoding
from shoestring.evaluation.metrics import Targets
from shoestring.evaluation.units import Floats

MAX_ITERATIONS = 1000

PATIENCE = 10
"""Iterations without a lower validation loss after which the fit stops; scikit-learn's default."""

MAX_CATEGORIES = 255
"""The number of categories of one feature that HistGradientBoosting supports."""

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
    """A fitted gradient boosting model, and scikit-learn's name of its kind.

    It predicts with the first `iterations` of its `fitted_iterations`.
    """

    name: str
    estimator: Any
    category_ranks: dict[int, Floats]
    iterations: int
    fitted_iterations: int
    stop_reason: str

    def predict(self, x: Floats) -> Floats:
        """Return probabilities float[n, classes]; for regression float[n]."""
        return next(islice(self.staged_predictions(x), self.iterations - 1, None))

    def staged_predictions(self, x: Floats) -> Iterator[Floats]:
        """Yield the predictions with 1, 2, ... iterations."""
        staged = getattr(self.estimator, "staged_predict_proba", self.estimator.staged_predict)
        return iter(staged(_merge_rare_categories(x, self.category_ranks)))


def fit_boosted_trees(
    train: FeatureTable, val: FeatureTable, encoding: Encoding, seed: int, report: ReportIterations
) -> BoostedTrees:
    """Fit until the loss on `val` no longer improves, and choose the number of iterations on `val`.

    `report` receives the number of iterations so far, and may raise to stop the fit.
    """
    name, estimator = _unfitted(encoding, seed, report)
    ranks = _category_ranks(train.x, encoding)
    inputs = [_merge_rare_categories(each.x, ranks) for each in (train, val)]
    estimator.fit(inputs[0], train.y, X_val=inputs[1], y_val=val.y)
    fitted = int(estimator.n_iter_)
    stop_reason = (
        "its validation loss stopped improving"
        if fitted < MAX_ITERATIONS
        else f"it reached the maximum of {MAX_ITERATIONS} iterations"
    )
    # The first score is that of no iteration. At least one is used.
    iterations = 1 + int(np.argmax(estimator.validation_score_[1:]))
    return BoostedTrees(name, estimator, ranks, iterations, fitted, stop_reason)


def _unfitted(encoding: Encoding, seed: int, report: ReportIterations) -> tuple[str, Any]:
    """Return the name of the kind of estimator, and the estimator."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    kind = HistGradientBoostingRegressor if encoding.task == "regression" else HistGradientBoostingClassifier

    class Reported(kind):  # type: ignore[misc, valid-type]
        """The estimator, which reports its iterations. scikit-learn has no callback after an iteration.

        The loss on train decides nothing and takes a twentieth of the fit, so it is computed on one row.
        """

        def _check_early_stopping_loss(self, **arrays: Any) -> bool:
            report(len(self.validation_score_))
            one_row = {name: arrays[name][:1] for name in ("raw_predictions", "y_train")}
            return bool(super()._check_early_stopping_loss(**arrays | one_row))

    estimator = Reported(
        max_iter=MAX_ITERATIONS,
        early_stopping=True,
        n_iter_no_change=PATIENCE,
        categorical_features=[feature.kind == "categorical" for feature in encoding.features],
        random_state=seed,
    )
    return kind.__name__, estimator


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
