"""The combination of predictions with one weight for each member of a blend; of one model alone it is the
inverse of its temperature.

Of classes, the log-probabilities of the members are added with their weights and normalised. The sum of the
weights is the inverse of a temperature. Of a regression, the deviations from the mean are added.

Shape suffixes: B rows; K classes; M members.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shoestring.core.datasets import Encoding
from shoestring.training.losses.scores import SMALLEST, Array, mean_metric, sum_of_losses, total_weight


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
    return softmax(scores_BK)


def mean_loss(predicted: Array, target_B: Array, encoding: Encoding, weight_B: Array | None = None) -> float:
    """Return the loss of predictions as its metric, of a regression in the unit of y. `weight_B`: of the
    rows; None: all are 1."""
    scores_BK = predicted[:, None]
    if encoding.task != "regression":
        scores_BK = np.log(np.maximum(predicted, 1e-300))
    if encoding.task == "binary":
        scores_BK = scores_BK[:, 1:] - scores_BK[:, :1]
    total = sum_of_losses(scores_BK, target_B, encoding, weight_B)
    return mean_metric(total / total_weight(len(target_B), weight_B), encoding)


def equal_weights(members: int) -> Array:
    return np.full(members, 1 / members)


def softmax(scores_BK: Array) -> Array:
    """Return probabilities of classes from their scores: float64[B, K]."""
    exp_BK = np.exp(scores_BK - scores_BK.max(axis=1, keepdims=True))
    return np.asarray(exp_BK / exp_BK.sum(axis=1, keepdims=True))
