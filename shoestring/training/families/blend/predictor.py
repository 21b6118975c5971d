"""A blend as it is stored, and its predictions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from shoestring.core.datasets import Encoding
from shoestring.data.families import FamilySettings, settings_of
from shoestring.data.loading.samples import Samples
from shoestring.training.contracts import Predictor
from shoestring.training.families.registry import family_of
from shoestring.training.losses.combination import combine
from shoestring.training.losses.scores import Array


def blend_bytes(settings: Sequence[FamilySettings], members: Sequence[bytes], weights: Array) -> bytes:
    """Return a blend as it is stored: a line of JSON, and the weights of each member as its family stores
    them."""
    content = {
        "weights": weights.tolist(),
        "members": [each.model_dump(mode="json") for each in settings],
        "bytes": [len(each) for each in members],
    }
    return json.dumps(content, separators=(",", ":")).encode() + b"\n" + b"".join(members)


class BlendPredictor:
    """Predicts with a stored blend. A `Predictor`."""

    def __init__(self, encoding: Encoding, weights: bytes) -> None:
        line, _, rest = weights.partition(b"\n")
        content: dict[str, Any] = json.loads(line)
        self._encoding, self._weights = encoding, np.array(content["weights"])
        self._members, start = list[Predictor](), 0
        for section, size in zip(content["members"], content["bytes"], strict=True):
            own = rest[start : start + size]
            self._members.append(family_of(settings_of(section)).predictor(encoding, own))
            start += size
        self.rows_at_once = min(each.rows_at_once for each in self._members)

    def predict(self, samples: Samples) -> Array:
        predictions = [each.predict(samples) for each in self._members]
        return combine(self._weights, predictions, self._encoding)
