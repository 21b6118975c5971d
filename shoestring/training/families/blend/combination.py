"""The combination of predictions: one weight for each member of a blend, fitted on validation rows.

Of classes, the log-probabilities of the members are added with their weights and normalised. The sum of the
weights is the inverse of a temperature. Of a regression, the deviations from the mean are added.

The weights minimise the mean loss and a penalty for their distance from first weights, which counts like
`RIDGE_ROWS` rows. The first weights are like those of a Bayesian average, exp(-nats / 2) for the nats of all
rows: a member that is clearly worse has none.

Shape suffixes: B rows; K classes; M members.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize

from shoestring.core.datasets import Encoding
from shoestring.training.families.scores import Array

RIDGE_ROWS, NATS_SCALE = 10.0, 2.0
"""Chosen on fifteen small tables: with equal first weights, and with 0 or 100 rows, the loss is higher."""

SMALLEST = 1e-7
"""The smallest probability that counts: one member must not veto a class that it has never seen."""


def inputs_of(predictions: Sequence[Array], encoding: Encoding) -> Array:
    """Return what is added with weights: float64[B, K, M], and of a regression float64[B, 1, M]."""
    if encoding.task == "regression":
        mean, sd = encoding.train_prior
        return np.stack([(each - mean) / (sd or 1.0) for each in predictions], axis=1)[:, None, :]
    return np.stack([np.log(np.clip(each, SMALLEST, 1.0)) for each in predictions], axis=2)


def combine(weights: Array, predictions: Sequence[Array], encoding: Encoding) -> Array:
    """Return probabilities float64[B, K]; of a regression the values float64[B]."""
    scores_BK = inputs_of(predictions, encoding) @ weights
    if encoding.task == "regression":
        mean, sd = encoding.train_prior
        return np.asarray(scores_BK[:, 0] * (sd or 1.0) + mean)
    return _softmax(scores_BK)


def fit_weights(predictions: Sequence[Array], target_B: Array, encoding: Encoding) -> Array:
    """Return the weights: float64[M], none below 0."""
    inputs_BKM = inputs_of(predictions, encoding)
    if encoding.task == "regression":
        mean, sd = encoding.train_prior
        target_B = (target_B - mean) / (sd or 1.0)
    first_M, ridge = _first_weights(inputs_BKM, target_B, encoding), RIDGE_ROWS / len(target_B)

    def loss(weights_M: Array) -> tuple[float, Array]:
        value, slope_M = _loss(weights_M, inputs_BKM, target_B, encoding)
        distance_M = weights_M - first_M
        return value + ridge / 2 * float(distance_M @ distance_M), slope_M + ridge * distance_M

    found = minimize(loss, first_M, jac=True, bounds=[(0, None)] * len(first_M), method="L-BFGS-B")
    return np.asarray(found.x, np.float64)


def mean_loss(predicted: Array, target_B: Array, encoding: Encoding) -> float:
    """Return nats a row; of a regression the root of the squared error, in the unit of y."""
    if encoding.task == "regression":
        return float(np.sqrt(np.mean((predicted - target_B) ** 2)))
    chosen_B = predicted[np.arange(len(target_B)), target_B.astype(np.int64)]
    return float(-np.log(np.maximum(chosen_B, 1e-300)).mean())


def equal_weights(members: int) -> Array:
    return np.full(members, 1 / members)


def _first_weights(inputs_BKM: Array, target_B: Array, encoding: Encoding) -> Array:
    rows, members = len(target_B), inputs_BKM.shape[2]
    if encoding.task == "regression":
        squares_M = ((inputs_BKM[:, 0] - target_B[:, None]) ** 2).mean(axis=0)
        nats_M = rows / 2 * np.log(np.maximum(squares_M, 1e-300))
    else:
        nats_M = -inputs_BKM[np.arange(rows), target_B.astype(np.int64)].sum(axis=0)
    shares_M = np.exp(-(nats_M - nats_M.min()) / NATS_SCALE)
    return np.asarray(shares_M / shares_M.sum()) if members else equal_weights(members)


def _loss(weights_M: Array, inputs_BKM: Array, target_B: Array, encoding: Encoding) -> tuple[float, Array]:
    """Return the mean loss and its gradient: half a squared error, or nats."""
    rows = len(target_B)
    if encoding.task == "regression":
        error_B = inputs_BKM[:, 0] @ weights_M - target_B
        return float(error_B @ error_B) / (2 * rows), inputs_BKM[:, 0].T @ error_B / rows
    chosen = np.arange(rows), target_B.astype(np.int64)
    p_BK = _softmax(inputs_BKM @ weights_M)
    value = -np.log(np.maximum(p_BK[chosen], 1e-300)).mean()
    expected_BM = np.einsum("bk,bkm->bm", p_BK, inputs_BKM)
    return float(value), (expected_BM - inputs_BKM[chosen]).mean(axis=0)


def _softmax(scores_BK: Array) -> Array:
    exp_BK = np.exp(scores_BK - scores_BK.max(axis=1, keepdims=True))
    return np.asarray(exp_BK / exp_BK.sum(axis=1, keepdims=True))
