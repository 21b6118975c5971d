"""What the model has to beat: knowing nothing, and gradient boosting given the same core-seconds.

Gradient boosting is scikit-learn's HistGradientBoosting with its own settings, on the same encoded rows. It grows in chunks, each sized by
what the last one took, until validation stalls or its seconds are over, and predicts with as many iterations as validation liked best.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from shoestring.evaluation.metrics import Answers, Floats
from shoestring.model import Encoding

FIRST_CHUNK = 10
LEAST_CHUNK = 5
SHARE_OF_REST = 2 / 3
"""Of the seconds that are left, a chunk is meant to take so much: it may take half as long again and still be in time."""

MOST_ITERATIONS = 2000
STALLED = 50
"""Iterations without an improvement on validation, after which it grows no more; with fewer, it ends in the first dip."""

MOST_CODES = 255
"""Categories of one feature that HistGradientBoosting can tell apart."""

Monotonic = Callable[[], float]
Tell = Callable[[int], None]


def knows_nothing(encoding: Encoding, rows: int) -> Floats:
    """Class shares of train for every row, float[rows, classes]; for regression train's mean, float[rows]."""
    if encoding.task == "regression":
        return np.full(rows, encoding.train_prior[0])
    return np.tile(np.array(encoding.train_prior), (rows, 1))


@dataclass(frozen=True, slots=True)
class Table:
    """Rows to fit on or to choose by: x float[n, features], y [n]."""

    x: Floats
    y: Answers


@dataclass(frozen=True, slots=True)
class Boosted:
    """Gradient boosting that has been fitted. `iterations` of those `grown` are predicted with."""

    estimator: Any
    codes: dict[int, Floats]
    classes: int
    iterations: int
    grown: int
    taken_s: float
    ended: str

    def predict(self, x: Floats) -> Floats:
        """float[n, classes] probabilities; for regression float[n]."""
        x = _merged(x, self.codes)
        if not self.classes:
            return np.asarray(_last(self.estimator.staged_predict(x), self.iterations))
        p = np.zeros((len(x), self.classes))
        p[:, self.estimator.classes_] = _last(self.estimator.staged_predict_proba(x), self.iterations)
        return p


def boost(estimator: Any, train: Table, val: Table, encoding: Encoding, given_s: float, now_s: Monotonic, tell: Tell) -> Boosted:
    """Fit what `unfitted` made for `given_s` seconds; longer only when a chunk takes half as long again as the one before it foretold.

    `tell` is called before each chunk with the iterations so far, and may raise to stop.
    """
    started_s = now_s()
    codes = _commonest(train.x, encoding)
    x, x_val = _merged(train.x, codes), _merged(val.x, codes)
    chunk, grown, ended = FIRST_CHUNK, 0, ""
    while not ended:
        tell(grown)
        before_s = now_s()
        estimator.set_params(max_iter=grown + chunk).fit(x, train.y, X_val=x_val, y_val=val.y)
        each_s = (now_s() - before_s) / chunk
        affordable = int(SHARE_OF_REST * (given_s - (now_s() - started_s)) / each_s)
        stalled, grown = estimator.n_iter_ < grown + chunk, estimator.n_iter_
        chunk = min(affordable, MOST_ITERATIONS - grown)
        if stalled:
            ended = f"validation had not improved for {STALLED} iterations"
        elif grown >= MOST_ITERATIONS:
            ended = f"{MOST_ITERATIONS} iterations are the most"
        elif affordable < LEAST_CHUNK:
            ended = "its seconds were over"
    # The scores begin with that of no iteration at all.
    best = max(1, int(np.argmax(estimator.validation_score_)))
    return Boosted(estimator, codes, len(encoding.classes), best, grown, now_s() - started_s, ended)


def unfitted(encoding: Encoding, seed: int) -> Any:
    """The estimator; scikit-learn is imported here."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    kind = HistGradientBoostingRegressor if encoding.task == "regression" else HistGradientBoostingClassifier
    return kind(
        warm_start=True,
        early_stopping=True,
        scoring="loss",
        n_iter_no_change=STALLED,
        categorical_features=[feature.kind == "categorical" for feature in encoding.features],
        random_state=seed,
    )


def _commonest(x: Floats, encoding: Encoding) -> dict[int, Floats]:
    """For each feature of too many codes: code -> its rank by how often train holds it; the rest share the last."""
    found: dict[int, Floats] = {}
    for place, feature in enumerate(encoding.features):
        if feature.cardinality > MOST_CODES:
            counts = np.bincount(x[:, place].astype(np.int64), minlength=feature.cardinality)
            ranks = np.empty(feature.cardinality)
            ranks[np.argsort(-counts, kind="stable")] = np.minimum(np.arange(feature.cardinality), MOST_CODES - 1)
            found[place] = ranks
    return found


def _merged(x: Floats, codes: dict[int, Floats]) -> Floats:
    if not codes:
        return x
    x = x.copy()
    for place, ranks in codes.items():
        x[:, place] = ranks[x[:, place].astype(np.int64)]
    return x


def _last(stages: Any, count: int) -> Any:
    return next(islice(stages, count - 1, count))
