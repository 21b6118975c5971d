"""The predictions of a stored blend."""

from __future__ import annotations

import json

import numpy as np

from shoestring.core.datasets import Encoding
from shoestring.data.loading.samples import Samples
from shoestring.training.contracts import Predictor
from shoestring.training.families.blend.stored import taken_apart
from shoestring.training.families.registry import family_of
from shoestring.training.losses.combination import combine
from shoestring.training.losses.scores import Array


class BlendPredictor:
    """Predicts with a stored blend. A `Predictor`."""

    def __init__(self, encoding: Encoding, weights: bytes) -> None:
        line, members = taken_apart(weights)
        self._encoding, self._weights = encoding, np.array(json.loads(line)["weights"])
        self._members: list[Predictor] = [
            family_of(settings).predictor(encoding, own) for settings, own in members
        ]
        self.rows_at_once = min(each.rows_at_once for each in self._members)

    def predict(self, samples: Samples) -> Array:
        predictions = [each.predict(samples) for each in self._members]
        return combine(self._weights, predictions, self._encoding)
