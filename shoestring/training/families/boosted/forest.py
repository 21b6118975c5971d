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
from shoestring.training.losses.scores import outputs, prior_scores, probabilities

Array = np.ndarray[Any, np.dtype[Any]]

ROWS_AT_ONCE = 1 << 16


def scores(
    booster: Any, features_B: Array, encoding: Encoding, first: int = 0, rounds: int = -1, threads: int = 1
) -> Array:
    """Return the sums of the leaves of some rounds: float64[B, K]."""
    found = booster.predict(
        features_B, raw_score=True, start_iteration=first, num_iteration=rounds, num_threads=threads
    )
    return np.asarray(found, np.float64).reshape(len(features_B), outputs(encoding))


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
