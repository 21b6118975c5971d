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
from shoestring.training.losses.scores import Array, quantile_losses, row_weights

RIDGE_UNITS, NATS_SCALE = 10.0, 4.0
"""Chosen on tables such as those of `bench/tuning_tables.txt`, among 1 to 100 rows and scales from 1 to 8."""

FIT_S = 0.2
"""Seconds to fit the weights."""

SMOOTH = 0.05
"""Standard deviations of the target over which the quantile loss is rounded, so that it has a gradient."""


def fit_weights(predictions: Sequence[Array], target_B: Array, encoding: Encoding, units: int) -> Array:
    """Return the weights: float64[M], none below 0. `units`: the independent units of the rows."""
    inputs_BKM = inputs_of(predictions, encoding)
    if encoding.task == "regression":
        mean, sd = encoding.train_prior
        target_B = (target_B - mean) / (sd or 1.0)
    first_M, ridge = _first_weights(inputs_BKM, target_B, encoding, units), RIDGE_UNITS / units

    def loss(weights_M: Array) -> tuple[float, Array]:
        value, slope_M = _loss(weights_M, inputs_BKM, target_B, encoding)
        distance_M = weights_M - first_M
        return value + ridge / 2 * float(distance_M @ distance_M), slope_M + ridge * distance_M

    found = minimize(loss, first_M, jac=True, bounds=[(0, None)] * len(first_M), method="L-BFGS-B")
    return np.asarray(found.x, np.float64)


def _first_weights(inputs_BKM: Array, target_B: Array, encoding: Encoding, units: int) -> Array:
    rows, members = len(target_B), inputs_BKM.shape[2]
    if encoding.task == "regression":
        quantile = encoding.loss.quantile
        if quantile is None:
            squares_M = ((inputs_BKM[:, 0] - target_B[:, None]) ** 2).mean(axis=0)
            nats_M = rows / 2 * np.log(np.maximum(squares_M, 1e-300))
        else:
            # Of an asymmetric Laplace distribution (Yu and Moyeed 2001, "Bayesian quantile regression").
            losses_M = quantile_losses(target_B[:, None], inputs_BKM[:, 0], quantile).mean(axis=0)
            nats_M = rows * np.log(np.maximum(losses_M, 1e-300))
    else:
        nats_BM = -inputs_BKM[np.arange(rows), target_B.astype(np.int64)]
        weights_B = row_weights(encoding, target_B)
        nats_M = nats_BM.sum(axis=0) if weights_B is None else weights_B @ nats_BM
    shares_M = np.exp(-(nats_M - nats_M.min()) * (units / rows) / NATS_SCALE)
    return np.asarray(shares_M / shares_M.sum()) if members else equal_weights(members)


def _loss(weights_M: Array, inputs_BKM: Array, target_B: Array, encoding: Encoding) -> tuple[float, Array]:
    """Return the mean loss and its gradient: half a squared error, a smooth quantile loss, or nats."""
    rows = len(target_B)
    if encoding.task == "regression":
        error_B = inputs_BKM[:, 0] @ weights_M - target_B
        if (quantile := encoding.loss.quantile) is not None:
            # Zheng 2011, "Gradient descent algorithms for quantile regression with smooth
            # approximation", eq. 4.
            value_B = SMOOTH * np.logaddexp(0, error_B / SMOOTH) - quantile * error_B
            slope_B = 1 / (1 + np.exp(-error_B / SMOOTH)) - quantile
            return float(value_B.mean()), inputs_BKM[:, 0].T @ slope_B / rows
        return float(error_B @ error_B) / (2 * rows), inputs_BKM[:, 0].T @ error_B / rows
    chosen = np.arange(rows), target_B.astype(np.int64)
    p_BK = softmax(inputs_BKM @ weights_M)
    nats_B = -np.log(np.maximum(p_BK[chosen], 1e-300))
    slope_BM = np.einsum("bk,bkm->bm", p_BK, inputs_BKM) - inputs_BKM[chosen]
    weights_B = row_weights(encoding, target_B)
    if weights_B is None:
        return float(nats_B.mean()), slope_BM.mean(axis=0)
    return float(weights_B @ nats_B) / rows, weights_B @ slope_BM / rows
