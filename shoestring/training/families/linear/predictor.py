"""A linear model as it is stored, and its predictions.

Shape suffixes: B rows; C categorical features; F numbers; D inputs, one for each code of a category and each
number; K scores of a row.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from shoestring.core.datasets import Encoding
from shoestring.data.loading.samples import Samples
from shoestring.training.losses.scores import probabilities

Array = np.ndarray[Any, np.dtype[Any]]

MOST_DEVIATIONS = 5.0
"""Numbers are bounded to this many standard deviations: one outlier would outweigh all rows."""

ROWS_AT_ONCE = 1 << 16


class Inputs:
    """The inputs of a linear model: a category's codes, each as an input of its own, then the numbers."""

    def __init__(self, encoding: Encoding) -> None:
        sizes = [each.cardinality for each in encoding.features if each.kind == "categorical"]
        self.numbers = len(encoding.features) - len(sizes)
        self.first_code_C = np.array([0, *accumulate(sizes)][: len(sizes)], np.int64)
        self.codes = sum(sizes)
        self.count = self.codes + self.numbers

    def places(self, codes_BC: Array) -> Array:
        """Return the inputs that are 1: int64[B, C]."""
        return np.asarray(codes_BC + self.first_code_C)

    @staticmethod
    def bounded(samples: Samples) -> Array:
        """Return the numbers: float64[B, F]."""
        number_BF = samples["number"].astype(np.float64)
        return np.asarray(np.clip(number_BF, -MOST_DEVIATIONS, MOST_DEVIATIONS))


@dataclass(frozen=True, slots=True)
class LinearWeights:
    """The weights of the inputs, float64[K, D], and the intercepts, float64[K]. They are never changed."""

    coef: Array
    intercept: Array

    @classmethod
    def read(cls, content: dict[str, Any]) -> LinearWeights:
        return cls(np.array(content["coef"]), np.array(content["intercept"]))

    def content(self) -> dict[str, Any]:
        return {"coef": self.coef.tolist(), "intercept": self.intercept.tolist()}

    def scores(self, inputs: Inputs, samples: Samples) -> Array:
        """Return the scores in the unit of the model: float64[B, K]."""
        found = inputs.bounded(samples) @ self.coef[:, inputs.codes :].T + self.intercept
        by_code = self.coef[:, : inputs.codes].T
        for place_B in inputs.places(samples["code"]).T:
            found += by_code[place_B]
        return found


def one_against_rest(scores_BK: Array) -> Array:
    """Return log-probabilities of classes from scores that are each a logit of one class against the rest."""
    logs_BK = -np.logaddexp(0, -scores_BK)
    total_B = np.log(np.exp(logs_BK).sum(axis=1, keepdims=True))
    return np.asarray(logs_BK - total_B)


class LinearPredictor:
    """Predicts with stored weights. A `Predictor`."""

    rows_at_once = ROWS_AT_ONCE

    def __init__(self, encoding: Encoding, weights: bytes) -> None:
        self._encoding, self._inputs = encoding, Inputs(encoding)
        self._weights = LinearWeights.read(json.loads(weights))

    def predict(self, samples: Samples) -> Array:
        return probabilities(scores_of(self._weights, self._inputs, self._encoding, samples), self._encoding)


def scores_of(weights: LinearWeights, inputs: Inputs, encoding: Encoding, samples: Samples) -> Array:
    """Return logits float64[B, K], or the values in the unit of y, float64[B, 1]."""
    found = weights.scores(inputs, samples)
    if encoding.task == "regression":
        mean, sd = encoding.train_prior
        return found * (sd or 1.0) + mean
    return one_against_rest(found) if encoding.task == "multiclass" else found
