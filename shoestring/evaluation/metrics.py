"""The evaluation metrics. Each is prepared once for a set of rows and then computed under many row weights.

Shapes: n rows, k classes. y: int[n] classes, or float[n]. p: float[n, k] probabilities, or float[n] in
the units of y. w: float[n] row weights, not all 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shoestring.data.recipe import METRICS, Task

Floats = np.ndarray[Any, np.dtype[np.floating[Any]]]
Targets = np.ndarray[Any, np.dtype[Any]]
Statistic = Callable[[Floats], float]
"""w -> the metric. Returns nan when the weights leave nothing to measure."""

MIN_PROBABILITY = 1e-7
"""Probabilities are clipped to this minimum, so that one confident mistake does not make the log loss
infinite."""

ECE_BINS = 15
"""The number of calibration bins of Guo, Pleiss, Sun and Weinberger 2017, section 5."""

BIASED_UNDER_RESAMPLING = frozenset({"ece"})
"""Metrics that get no interval. Noise within a bin adds to the calibration error, so resampled values
exceed the measured one and their quantiles are no confidence interval."""


def statistics(task: Task, y: Targets, p: Floats) -> dict[str, Statistic]:
    """Return the metrics of a task by name, each prepared for these rows."""
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
    """Return the mean of -ln p of the true class, in nats."""
    return _mean(-np.log(np.clip(p[np.arange(len(y)), y].astype(np.float64), MIN_PROBABILITY, 1.0)))


def accuracy(y: Targets, p: Floats) -> Statistic:
    """Return the share of rows whose most likely class is the true one."""
    return _mean((p.argmax(axis=1) == y).astype(np.float64))


def auc(y: Targets, p: Floats) -> Statistic:
    """Return the chance that a row of class 1 ranks above a row of class 0; ties count half (Mann and
    Whitney 1947)."""
    order = np.argsort(p[:, 1], kind="stable")
    ranked, positive = p[order, 1], (y[order] == 1).astype(np.float64)
    starts = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]])

    def weighted(w: Floats) -> float:
        w_ranked = w[order]
        ones = np.add.reduceat(w_ranked * positive, starts)
        zeros = np.add.reduceat(w_ranked * (1.0 - positive), starts)
        pairs = ones.sum() * zeros.sum()
        return float(ones @ (zeros.cumsum() - zeros / 2) / pairs) if pairs else float("nan")

    return weighted


def ece(y: Targets, p: Floats) -> Statistic:
    """Return the expected calibration error: the mean over rows of |mean confidence - accuracy| of their
    bin."""
    confidence, correct = confidences(y, p)
    bins = bin_indices(confidence)
    gaps = confidence - correct

    def weighted(w: Floats) -> float:
        return float(np.abs(np.bincount(bins, w * gaps, ECE_BINS)).sum() / w.sum())

    return weighted


def rmse(y: Targets, p: Floats) -> Statistic:
    """Return the root mean squared error, in the units of y."""
    squared = _mean((p.astype(np.float64) - y) ** 2)
    return lambda w: float(np.sqrt(squared(w)))


def mae(y: Targets, p: Floats) -> Statistic:
    """Return the mean absolute error, in the units of y."""
    return _mean(np.abs(p.astype(np.float64) - y))


def r2(y: Targets, p: Floats) -> Statistic:
    """Return the share of y's variance that the predictions explain; nan when y is constant."""
    known = y.astype(np.float64)
    residuals = (p.astype(np.float64) - known) ** 2

    def weighted(w: Floats) -> float:
        variance = w @ (known - w @ known / w.sum()) ** 2
        return float(1.0 - w @ residuals / variance) if variance > 0 else float("nan")

    return weighted


def confidences(y: Targets, p: Floats) -> tuple[Floats, Floats]:
    """Return the predicted probabilities and the outcomes that calibration compares, float[n] each.

    With two classes these are the probability of class 1 and whether the row is of class 1; with more,
    those of the most likely class.
    """
    p = p.astype(np.float64)
    if p.shape[1] == 2:
        return p[:, 1], (y == 1).astype(np.float64)
    return p.max(axis=1), (p.argmax(axis=1) == y).astype(np.float64)


def bin_indices(probability: Floats) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the calibration bin of each probability: int[n], `ECE_BINS` bins of equal width."""
    return np.minimum((probability * ECE_BINS).astype(np.int64), ECE_BINS - 1)


def _mean(values: Floats) -> Statistic:
    return lambda w: float(w @ values / w.sum())
