"""The scores of rows, whatever model makes them: logits, of which there are K a row, or the value itself;
their losses; and the probabilities that a model predicts.

Shape suffixes: B rows; K scores of a row: one a class of more than two, else 1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shoestring.core.datasets import MEDIAN, Encoding

Array = np.ndarray[Any, np.dtype[Any]]


def outputs(encoding: Encoding) -> int:
    return len(encoding.classes) if encoding.task == "multiclass" else 1


SMALLEST = 1e-7
"""The smallest probability that counts: one prediction must not be infinitely sure."""


def trained_shares(encoding: Encoding) -> Array:
    """Return the shares of the classes as the loss weights them, none of them 0 or 1: float64[classes]."""
    shares = np.array(encoding.train_prior)
    if encoding.loss.balanced:
        shares = (shares > 0) / (shares > 0).sum()
    return np.asarray(np.clip(shares, 1e-6, 1 - 1e-6))


def row_weights(encoding: Encoding, target_B: Array, weight_B: Array | None) -> Array | None:
    """Return what rows count in the loss, their mean over train 1: their own weights `weight_B`, with a
    balanced loss times those with which each class of train has an equal sum. float[B]; None: all are 1."""
    if not encoding.loss.balanced or encoding.task == "regression":
        return weight_B
    class_weight_B = class_weights(encoding)[target_B.astype(np.int64)]
    return np.asarray(class_weight_B if weight_B is None else class_weight_B * weight_B)


def total_weight(rows: int, weight_B: Array | None) -> float:
    """Return the sum of the weights of rows: what a sum of losses is divided by. None: all are 1."""
    return rows if weight_B is None else float(weight_B.sum(dtype=np.float64))


def class_weights(encoding: Encoding) -> Array:
    """Return the weights with which all classes of train count the same, 1 in the mean over its rows, and 0
    for a class that it lacks: float64[classes]."""
    shares = np.array(encoding.train_prior)
    found: Array = np.divide(1 / (shares > 0).sum(), shares, out=np.zeros(len(shares)), where=shares > 0)
    return found


def quantile_losses(target_B: Array, predicted_B: Array | float, quantile: float) -> Array:
    """Return the quantile loss of each row: float64[B]."""
    error_B = target_B - predicted_B
    return np.asarray(np.maximum(quantile * error_B, (quantile - 1) * error_B))


def weighted_quantile(values_B: Array, quantile: float, weight_B: Array | None) -> float:
    """Return the smallest value up to which rows have at least this share of the weight: its quantile loss is
    the least that a constant has."""
    return float(np.quantile(values_B, quantile, method="inverted_cdf", weights=weight_B))


def mean_metric(loss: float, encoding: Encoding) -> float:
    """Return a mean loss as the metric that it is: of a squared error the root, of the median's twice."""
    if encoding.task != "regression":
        return loss
    if encoding.loss.quantile is None:
        return math.sqrt(loss)
    return 2 * loss if encoding.loss.quantile == MEDIAN else loss


def calibrated(predicted: Array, encoding: Encoding, inverse_temperature: float) -> Array:
    """Return predictions with their temperature, and as probabilities for classes as frequent as in train."""
    is_balanced = encoding.loss.balanced
    if encoding.task in ("regression", "next_token") or (inverse_temperature == 1 and not is_balanced):
        return predicted
    logs_BK = inverse_temperature * np.log(np.clip(predicted, SMALLEST, 1.0))
    if is_balanced:
        logs_BK += np.log(np.clip(encoding.train_prior, SMALLEST, 1.0))
    exp_BK = np.exp(logs_BK - logs_BK.max(axis=1, keepdims=True))
    return np.asarray(exp_BK / exp_BK.sum(axis=1, keepdims=True))


def prior_scores(encoding: Encoding, rows: int) -> Array:
    """Return the scores of a forest without trees, those of train's shares: float64[B, K]."""
    if encoding.task == "regression":
        return np.full((rows, 1), encoding.train_prior[0])
    shares_K = trained_shares(encoding)
    if encoding.task == "binary":
        return np.full((rows, 1), np.log(shares_K[1] / shares_K[0]))
    return np.tile(np.log(shares_K), (rows, 1))


def probabilities(scores_BK: Array, encoding: Encoding) -> Array:
    """Return probabilities float64[B, classes]; for a regression the values float64[B]."""
    if encoding.task == "regression":
        return scores_BK[:, 0]
    if encoding.task == "binary":
        positive_B = 1 / (1 + np.exp(-scores_BK[:, 0]))
        return np.stack([1 - positive_B, positive_B], axis=1)
    exp_BK = np.exp(scores_BK - scores_BK.max(axis=1, keepdims=True))
    found: Array = exp_BK / exp_BK.sum(axis=1, keepdims=True)
    return found


def predictions(scores_BK: Array, encoding: Encoding) -> Array:
    """Return what a network's scores predict, of a regression standardised values, as a `Predictor` does."""
    scores_BK = scores_BK.astype(np.float64)
    if encoding.task == "regression":
        mean, sd = encoding.train_prior
        return np.asarray(scores_BK[:, 0] * sd + mean)
    return probabilities(scores_BK, encoding)


def sum_of_losses(
    scores_BK: Array, target_B: Array, encoding: Encoding, weight_B: Array | None = None
) -> float:
    """Return the losses of all rows, with the weights of rows: nats; for a regression squared errors, or
    quantile losses."""
    if encoding.task == "regression" and encoding.loss.quantile is not None:
        losses_B = quantile_losses(target_B, scores_BK[:, 0], encoding.loss.quantile)
    elif encoding.task == "regression":
        losses_B = (scores_BK[:, 0] - target_B) ** 2
    elif encoding.task == "binary":
        losses_B = np.logaddexp(0, np.where(target_B == 1, -scores_BK[:, 0], scores_BK[:, 0]))
    else:
        largest_B = scores_BK.max(axis=1)
        total_B = np.log(np.exp(scores_BK - largest_B[:, None]).sum(axis=1)) + largest_B
        losses_B = total_B - scores_BK[np.arange(len(target_B)), target_B]
    weights_B = row_weights(encoding, target_B, weight_B)
    return float((losses_B if weights_B is None else losses_B * weights_B).sum())
