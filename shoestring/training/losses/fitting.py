"""The weights of a combination, fitted on validation rows.

The weights minimise the mean loss and a penalty for their distance from first weights, which counts like
`RIDGE_UNITS` independent units of rows: days, where a split keeps days together. The first weights are like
those of a Bayesian average, exp(-nats / 4) for the nats of all units: a member that is clearly worse has
none.

A training imports this module, and scipy with it, at its start: predictions need neither, and at its end no
time is left for an import. Shape suffixes are those of `combination`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize

from shoestring.core.datasets import Encoding
from shoestring.training.losses.combination import equal_weights, inputs_of, softmax
from shoestring.training.losses.scores import Array, quantile_losses, row_weights, total_weight

RIDGE_UNITS, NATS_SCALE = 10.0, 4.0
"""Chosen on tables such as those of `bench/tuning_tables.txt`, among 1 to 100 rows and scales from 1 to 8."""

FIT_S = 0.2
"""Seconds to fit the weights."""

SMOOTH = 0.05
"""Standard deviations of the target over which the quantile loss is rounded, so that it has a gradient."""


def fit_weights(
    predictions: Sequence[Array],
    target_B: Array,
    encoding: Encoding,
    units: int,
    weight_B: Array | None = None,
) -> Array:
    """Return the weights: float64[M], none below 0. `units`: the independent units of the rows. `weight_B`:
    what the rows count; None: all are 1."""
    rows = len(target_B)
    if weight_B is not None:
        weight_B = weight_B * (rows / total_weight(rows, weight_B))
    inputs_BKM = inputs_of(predictions, encoding)
    if encoding.task == "regression":
        mean, sd = encoding.train_prior
        target_B = (target_B - mean) / (sd or 1.0)
    first_M = _first_weights(inputs_BKM, target_B, encoding, units, weight_B)
    ridge = RIDGE_UNITS / units

    def loss(weights_M: Array) -> tuple[float, Array]:
        value, slope_M = _loss(weights_M, inputs_BKM, target_B, encoding, weight_B)
        distance_M = weights_M - first_M
        return value + ridge / 2 * float(distance_M @ distance_M), slope_M + ridge * distance_M

    found = minimize(loss, first_M, jac=True, bounds=[(0, None)] * len(first_M), method="L-BFGS-B")
    return np.asarray(found.x, np.float64)


def _first_weights(
    inputs_BKM: Array, target_B: Array, encoding: Encoding, units: int, weight_B: Array | None
) -> Array:
    rows, members = len(target_B), inputs_BKM.shape[2]
    if encoding.task == "regression":
        quantile = encoding.loss.quantile
        if quantile is None:
            squares_M = _mean((inputs_BKM[:, 0] - target_B[:, None]) ** 2, weight_B)
            nats_M = rows / 2 * np.log(np.maximum(squares_M, 1e-300))
        else:
            # Of an asymmetric Laplace distribution (Yu and Moyeed 2001, "Bayesian quantile regression").
            losses_M = _mean(quantile_losses(target_B[:, None], inputs_BKM[:, 0], quantile), weight_B)
            nats_M = rows * np.log(np.maximum(losses_M, 1e-300))
    else:
        nats_BM = -inputs_BKM[np.arange(rows), target_B.astype(np.int64)]
        nats_M = rows * _mean(nats_BM, row_weights(encoding, target_B, weight_B))
    shares_M = np.exp(-(nats_M - nats_M.min()) * (units / rows) / NATS_SCALE)
    return np.asarray(shares_M / shares_M.sum()) if members else equal_weights(members)


def _mean(values_BM: Array, weights_B: Array | None) -> Array:
    """Return the means of columns, with weights whose mean over all rows is 1, or was before a balance."""
    return np.asarray((values_BM if weights_B is None else weights_B[:, None] * values_BM).mean(axis=0))


def _loss(
    weights_M: Array, inputs_BKM: Array, target_B: Array, encoding: Encoding, weight_B: Array | None
) -> tuple[float, Array]:
    """Return the mean loss and its gradient: half a squared error, a smooth quantile loss, or nats."""
    weights_B = row_weights(encoding, target_B, weight_B)
    if encoding.task == "regression":
        error_B = inputs_BKM[:, 0] @ weights_M - target_B
        if (quantile := encoding.loss.quantile) is not None:
            # Zheng 2011, "Gradient descent algorithms for quantile regression with smooth
            # approximation", eq. 4.
            value_B = SMOOTH * np.logaddexp(0, error_B / SMOOTH) - quantile * error_B
            slope_B = 1 / (1 + np.exp(-error_B / SMOOTH)) - quantile
        else:
            value_B, slope_B = error_B**2 / 2, error_B
        return _value_and_slope(value_B, slope_B[:, None] * inputs_BKM[:, 0], weights_B)
    chosen = np.arange(len(target_B)), target_B.astype(np.int64)
    p_BK = softmax(inputs_BKM @ weights_M)
    nats_B = -np.log(np.maximum(p_BK[chosen], 1e-300))
    slope_BM = np.einsum("bk,bkm->bm", p_BK, inputs_BKM) - inputs_BKM[chosen]
    return _value_and_slope(nats_B, slope_BM, weights_B)


def _value_and_slope(value_B: Array, slope_BM: Array, weights_B: Array | None) -> tuple[float, Array]:
    return float(_mean(value_B[:, None], weights_B)[0]), _mean(slope_BM, weights_B)
