"""A forest of LightGBM with the tables of its features, as it is stored, and what its scores mean.

Shape suffixes: B rows; K scores of a row: 1, or one a class.
"""

from __future__ import annotations

import json
from typing import Any

import lightgbm
import numpy as np

from shoestring.core.datasets import Encoding
from shoestring.data.loading.samples import Samples
from shoestring.training.families.boosted.features import CategoryTables

Array = np.ndarray[Any, np.dtype[Any]]

ROWS_AT_ONCE = 1 << 16


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


def scores(
    booster: Any, features_B: Array, encoding: Encoding, first: int = 0, rounds: int = -1, threads: int = 1
) -> Array:
    """Return the sums of the leaves of some rounds: float64[B, K]."""
    found = booster.predict(
        features_B, raw_score=True, start_iteration=first, num_iteration=rounds, num_threads=threads
    )
    return np.asarray(found, np.float64).reshape(len(features_B), outputs(encoding))


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


def forest_bytes(forest: str, tables: CategoryTables) -> bytes:
    """Return a forest as it is stored: JSON with LightGBM's text. `forest` "": no tree."""
    content = {"forest": forest, "categories": [each.tolist() for each in tables.tables]}
    return json.dumps(content, separators=(",", ":")).encode()


def read_forest(data: bytes) -> tuple[Any, CategoryTables]:
    """Return the booster, None without a tree, and the tables."""
    content = json.loads(data)
    tables = CategoryTables([np.array(each, np.float32) for each in content["categories"]])
    booster = lightgbm.Booster(model_str=content["forest"]) if content["forest"] else None
    return booster, tables


class BoostedPredictor:
    """Predicts with a stored forest. A `Predictor`."""

    rows_at_once = ROWS_AT_ONCE

    def __init__(self, encoding: Encoding, weights: bytes) -> None:
        self._encoding = encoding
        self._booster, self._tables = read_forest(weights)

    def scores(self, samples: Samples) -> Array:
        if self._booster is None:
            return prior_scores(self._encoding, len(samples))
        return scores(self._booster, self._tables.features(samples), self._encoding)

    def predict(self, samples: Samples) -> Array:
        return probabilities(self.scores(samples), self._encoding)
