"""The scores of rows, whatever model makes them: logits, of which there are K a row, or the value itself.

Shape suffixes: B rows; K scores of a row: one a class of more than two, else 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shoestring.core.datasets import Encoding

Array = np.ndarray[Any, np.dtype[Any]]


def outputs(encoding: Encoding) -> int:
    return len(encoding.classes) if encoding.task == "multiclass" else 1


def prior_scores(encoding: Encoding, rows: int) -> Array:
    """Return the scores of a forest without trees, those of train's shares: float64[B, K]."""
    if encoding.task == "regression":
        return np.full((rows, 1), encoding.train_prior[0])
    shares_K = np.clip(np.array(encoding.train_prior), 1e-6, 1 - 1e-6)
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


def sum_of_losses(scores_BK: Array, target_B: Array, encoding: Encoding) -> float:
    """Return the nats of all rows; for a regression their squared errors."""
    if encoding.task == "regression":
        return float(((scores_BK[:, 0] - target_B) ** 2).sum())
    if encoding.task == "binary":
        return float(np.logaddexp(0, np.where(target_B == 1, -scores_BK[:, 0], scores_BK[:, 0])).sum())
    largest_B = scores_BK.max(axis=1)
    total_B = np.log(np.exp(scores_BK - largest_B[:, None]).sum(axis=1)) + largest_B
    return float((total_B - scores_BK[np.arange(len(target_B)), target_B]).sum())
