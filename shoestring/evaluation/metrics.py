"""Metrics, each made ready once for some rows and then asked again and again under other weights of those rows.

Shapes: n rows, k classes. y: int[n] classes, or float[n]. p: float[n, k] probabilities, or float[n] in y's units. w: float[n], not all 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shoestring.data.recipe import METRICS, Task

Floats = np.ndarray[Any, np.dtype[np.floating[Any]]]
Targets = np.ndarray[Any, np.dtype[Any]]
Statistic = Callable[[Floats], float]
"""w -> the metric; nan where the weights leave nothing to measure."""

MIN_PROBABILITY = 1e-7
"""Nothing is held for less likely, so that one surprise does not make the log loss of all rows infinite."""

ECE_BINS = 15
"""Guo, Pleiss, Sun and Weinberger 2017, section 5."""

BIASED_UNDER_RESAMPLING = frozenset({"ece"})
"""What resampling adds to: a bin's noise is a distance too, so the draws lie above the value and their quantiles are no interval of it."""


def statistics(task: Task, y: Targets, p: Floats) -> dict[str, Statistic]:
    """The metrics of a task, ready to be weighted."""
    made: dict[str, Callable[[Targets, Floats], Statistic]] = {
        "log_loss": log_loss,
        "accuracy": accuracy,
        "auc": auc,
        "ece": ece,
        "rmse": rmse,
        "mae": mae,
        "r2": r2,
    }
    return {name: made[name](y, p) for name in METRICS[task]}


def log_loss(y: Targets, p: Floats) -> Statistic:
    """Mean of -ln p of the class that came."""
    return _mean(-np.log(np.clip(p[np.arange(len(y)), y].astype(np.float64), MIN_PROBABILITY, 1.0)))


def accuracy(y: Targets, p: Floats) -> Statistic:
    """Share of rows whose most likely class came."""
    return _mean((p.argmax(axis=1) == y).astype(np.float64))


def auc(y: Targets, p: Floats) -> Statistic:
    """Chance that a row of class 1 is ranked above a row of class 0, ties counting half (Mann and Whitney 1947)."""
    order = np.argsort(p[:, 1], kind="stable")
    ranked, positive = p[order, 1], (y[order] == 1).astype(np.float64)
    starts = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]])

    def under(w: Floats) -> float:
        w_ranked = w[order]
        ones = np.add.reduceat(w_ranked * positive, starts)
        zeros = np.add.reduceat(w_ranked * (1.0 - positive), starts)
        pairs = ones.sum() * zeros.sum()
        return float(ones @ (zeros.cumsum() - zeros / 2) / pairs) if pairs else float("nan")

    return under


def ece(y: Targets, p: Floats) -> Statistic:
    """Expected calibration error: mean distance, over rows, of their bin's mean confidence from its accuracy."""
    confidence, right = confidences(y, p)
    bins = bin_indices(confidence)
    apart = confidence - right

    def under(w: Floats) -> float:
        return float(np.abs(np.bincount(bins, w * apart, ECE_BINS)).sum() / w.sum())

    return under


def rmse(y: Targets, p: Floats) -> Statistic:
    """Root of the mean squared error."""
    squared = _mean((p.astype(np.float64) - y) ** 2)
    return lambda w: float(np.sqrt(squared(w)))


def mae(y: Targets, p: Floats) -> Statistic:
    """Mean absolute error."""
    return _mean(np.abs(p.astype(np.float64) - y))


def r2(y: Targets, p: Floats) -> Statistic:
    """Share of y's variance among these rows that is explained; nan when y does not vary."""
    known = y.astype(np.float64)
    left = (p.astype(np.float64) - known) ** 2

    def under(w: Floats) -> float:
        spread = w @ (known - w @ known / w.sum()) ** 2
        return float(1.0 - w @ left / spread) if spread > 0 else float("nan")

    return under


def confidences(y: Targets, p: Floats) -> tuple[Floats, Floats]:
    """What calibration compares, float[n] each: the probability of class 1 with whether it came, when there are two classes; else
    that of the most likely class with whether that came."""
    p = p.astype(np.float64)
    if p.shape[1] == 2:
        return p[:, 1], (y == 1).astype(np.float64)
    return p.max(axis=1), (p.argmax(axis=1) == y).astype(np.float64)


def bin_indices(probability: Floats) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The bin of each probability: `ECE_BINS` of equal width, int[n]."""
    return np.minimum((probability * ECE_BINS).astype(np.int64), ECE_BINS - 1)


def _mean(values: Floats) -> Statistic:
    return lambda w: float(w @ values / w.sum())
