"""The evaluation metrics. Each is prepared once for the rows of a split, as sums over its sampling units, and
then computed under many weights of these units.

A metric of n rows under resampled weights then costs as much as there are units, not rows. Where rows have
weights of their own (`SamplingUnits.weights`), a row of weight k counts like k equal rows of one unit.

Shapes: n rows, k classes, u sampling units. y: int[n] classes, or float[n]. p: float[n, k] probabilities, or
float[n] in the units of y (of texts its nats; y is their bytes). w: float[..., u] unit weights, each row of
them not all 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoestring.core.datasets import MEDIAN
from shoestring.data.metrics import METRICS, WANTED_METRICS, Metric, Task
from shoestring.evaluation.units import Floats, SamplingUnits, make_units
from shoestring.training.losses.scores import quantile_losses

Targets = np.ndarray[Any, np.dtype[Any]]
Statistic = Callable[[Floats], Floats]
"""w float[..., u] -> the metric, float[...]. It is nan where the weights leave nothing to measure."""

MIN_PROBABILITY = 1e-7
"""Probabilities are clipped to this minimum, so that one confident mistake does not make the log loss
infinite."""

ECE_BINS = 15
"""The number of calibration bins of Guo, Pleiss, Sun and Weinberger 2017, section 5."""

BIASED_UNDER_RESAMPLING = frozenset({"ece"})
"""Metrics that get no interval. Noise within a bin adds to the calibration error, so resampled values
exceed the measured one and their quantiles are no confidence interval."""


MAX_PAIRED_UNITS = 256
"""Up to this many units, the AUC is prepared as the pairs of all units; with more, each draw counts rows."""

ROUNDING = 1e-12
"""A variance below this share of the mean square is rounding: all values are equal."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The requests of a recipe for its evaluation beyond the standard metrics: one more of them, the quantile
    of `quantile_loss`, and the weights of the classes when the predicted one is chosen."""

    metric: Metric | None = None
    quantile: float = MEDIAN
    class_weights: tuple[float, ...] = ()


STANDARD = Judgement()


def statistics(
    task: Task,
    y: Targets,
    p: Floats,
    units: SamplingUnits | None = None,
    judgement: Judgement = STANDARD,
) -> dict[str, Statistic]:
    """Return the metrics of a task by name, each prepared for these rows. `units` None: every row is one."""
    weighted = p * np.array(judgement.class_weights) if judgement.class_weights else p
    made: dict[str, Callable[[Targets, Floats, SamplingUnits], Statistic]] = {
        "log_loss": log_loss,
        "accuracy": lambda y, _, units: accuracy(y, weighted, units),
        "balanced_accuracy": lambda y, _, units: balanced_accuracy(y, weighted, units),
        "quantile_loss": lambda y, p, units: quantile_loss(y, p, units, judgement.quantile),
        "auc": auc,
        "ece": ece,
        "rmse": rmse,
        "mae": mae,
        "r2": r2,
        "bits_per_byte": bits_per_byte,
    }
    units = units or make_units(None, len(y))
    further = [each for each in WANTED_METRICS[task] if each == judgement.metric]
    return {name: made[name](y, p, units) for name in (*METRICS[task], *further)}


def log_loss(y: Targets, p: Floats, units: SamplingUnits) -> Statistic:
    """Return the mean of -ln p of the true class, in nats."""
    true = p[np.arange(len(y)), y].astype(np.float64)
    return mean(-np.log(np.clip(true, MIN_PROBABILITY, 1.0)), units)


def accuracy(y: Targets, p: Floats, units: SamplingUnits) -> Statistic:
    """Return the share of rows whose most likely class is the true one."""
    return mean((p.argmax(axis=1) == y).astype(np.float64), units)


def balanced_accuracy(y: Targets, p: Floats, units: SamplingUnits) -> Statistic:
    """Return the mean over the classes of the share of a class's rows that are predicted right (Brodersen et
    al. 2010, "The balanced accuracy and its posterior distribution"). Classes without rows are left out."""
    correct = (p.argmax(axis=1) == y).astype(np.float64)
    of_class = [(y == each).astype(np.float64) for each in np.unique(y)]
    recalls = [share(correct, each, units) for each in of_class]
    return lambda w: np.nanmean([recall(w) for recall in recalls], axis=0)


def auc(y: Targets, p: Floats, units: SamplingUnits) -> Statistic:
    """Return the chance that a row of class 1 ranks above a row of class 0; ties count half (Mann and
    Whitney 1947). A pair counts the product of its weights."""
    order = np.argsort(p[:, 1], kind="stable")
    ranked, positive = p[order, 1], (y[order] == 1).astype(np.float64)
    starts = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]])
    ranked_units = units.in_order(order)
    if units.count <= MAX_PAIRED_UNITS:
        return _auc_of_pairs(positive, starts, ranked_units)
    return _auc_of_rows(positive, starts, ranked_units)


def _auc_of_pairs(positive: Floats, starts: Targets, ranked_units: SamplingUnits) -> Statistic:
    """Return the AUC from the number of times that a row of one unit ranks above a row of another.

    `starts` are the first rows of each run of ties.
    """
    count, unit = ranked_units.count, ranked_units.unit_of_row
    run = np.repeat(np.arange(len(starts)), np.diff(np.r_[starts, len(positive)]))
    won: Floats = np.empty((count, count))
    for other in range(count):
        zeros = np.add.reduceat(ranked_units.weighted((1.0 - positive) * (unit == other)), starts)
        won[:, other] = ranked_units.sums(positive * (zeros.cumsum() - zeros / 2)[run])
    ones, zeros = ranked_units.sums(positive), ranked_units.sums(1.0 - positive)
    return lambda w: _ratio(((w @ won) * w).sum(axis=-1), (w @ ones) * (w @ zeros))


def _auc_of_rows(positive: Floats, starts: Targets, ranked_units: SamplingUnits) -> Statistic:
    def weighted(w: Floats) -> Floats:
        if w.ndim > 1:
            return np.array([weighted(each) for each in w])
        w_ranked = ranked_units.weighted(w[ranked_units.unit_of_row])
        ones = np.add.reduceat(w_ranked * positive, starts)
        zeros = np.add.reduceat(w_ranked * (1.0 - positive), starts)
        return _ratio(ones @ (zeros.cumsum() - zeros / 2), ones.sum() * zeros.sum())

    return weighted


def ece(y: Targets, p: Floats, units: SamplingUnits) -> Statistic:
    """Return the expected calibration error: the mean over rows of |mean confidence - accuracy| of their
    bin."""
    confidence, correct = confidences(y, p)
    cell = units.unit_of_row * ECE_BINS + bin_indices(confidence)
    gap = units.weighted(confidence - correct)
    gaps = np.bincount(cell, gap, units.count * ECE_BINS).reshape(units.count, ECE_BINS)
    sizes = units.sizes()
    return lambda w: np.abs(w @ gaps).sum(axis=-1) / (w @ sizes)


def rmse(y: Targets, p: Floats, units: SamplingUnits) -> Statistic:
    """Return the root mean squared error, in the units of y."""
    squared = mean((p.astype(np.float64) - y) ** 2, units)
    return lambda w: np.sqrt(squared(w))


def mae(y: Targets, p: Floats, units: SamplingUnits) -> Statistic:
    """Return the mean absolute error, in the units of y."""
    return mean(np.abs(p.astype(np.float64) - y), units)


def quantile_loss(y: Targets, p: Floats, units: SamplingUnits, quantile: float) -> Statistic:
    """Return the mean quantile loss (Koenker and Bassett 1978), in the units of y."""
    return mean(quantile_losses(y.astype(np.float64), p.astype(np.float64), quantile), units)


def r2(y: Targets, p: Floats, units: SamplingUnits) -> Statistic:
    """Return the share of y's variance that the predictions explain; nan when y is constant."""
    known = y.astype(np.float64)
    residuals = units.sums((p.astype(np.float64) - known) ** 2)
    # From its mean, so that the difference of squares below loses no digits.
    centred = known - known.mean()
    sums, squares, sizes = units.sums(centred), units.sums(centred**2), units.sizes()

    def weighted(w: Floats) -> Floats:
        square = w @ squares
        variance = square - (w @ sums) ** 2 / (w @ sizes)
        return 1.0 - _ratio(w @ residuals, np.where(variance > ROUNDING * square, variance, 0.0))

    return weighted


def bits_per_byte(y: Targets, p: Floats, units: SamplingUnits) -> Statistic:
    """Return the bits that a byte of text takes. y: bytes of each row; p: its nats, float[n]."""
    bits, size_bytes = units.sums(p.astype(np.float64)) / math.log(2), units.sums(y.astype(np.float64))
    return lambda w: _ratio(w @ bits, w @ size_bytes)


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


def mean(values: Floats, units: SamplingUnits) -> Statistic:
    """Return the mean of float[n]."""
    sums, sizes = units.sums(values), units.sizes()
    return lambda w: (w @ sums) / (w @ sizes)


def share(outcome: Floats, chosen: Floats, units: SamplingUnits) -> Statistic:
    """Return the mean of float[n] over the chosen rows, whose weight is 1.0 in float[n] and 0.0 elsewhere."""
    sums, sizes = units.sums(outcome * chosen), units.sums(chosen)
    return lambda w: _ratio(w @ sums, w @ sizes)


def _ratio(part: Floats, whole: Floats) -> Floats:
    """Return part / whole, and nan where the whole is 0."""
    return np.asarray(part / np.where(whole == 0, np.nan, whole))
