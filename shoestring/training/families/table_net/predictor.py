"""A multi-layer perceptron for tables as it is stored, and its predictions by NumPy.

Nothing but the training needs torch, whose import takes longer than most predictions.

Shape suffixes: B rows of a batch; C categorical features; N numeric features; P bins of a numeric feature;
V values of the pixels of an image; D inputs of a layer; U its units; K outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

import numpy as np
from safetensors.numpy import load

from shoestring.core.datasets import Encoding
from shoestring.data.loading.samples import Samples
from shoestring.training.losses.scores import Array, predictions

ROWS_AT_ONCE = 8192
NORM_EPSILON = np.float32(1e-5)
"""What torch's LayerNorm adds to a variance."""


def table_inputs(samples: Samples) -> tuple[Array, ...]:
    """Return categorical codes int32[B, C] and numbers float32[B, N], which are the samples' own; of images
    also the pixels from 0 to 1, float32[B, V]."""
    tables = samples["code"], samples["number"]
    if "image" not in samples:
        return tables
    pixels_BV = samples["image"].reshape(len(samples), -1)
    return *tables, np.multiply(pixels_BV, np.float32(1 / 255), dtype=np.float32)


def layer_count(weights: Mapping[str, Array]) -> int:
    """Return the number of hidden layers. Each is four modules: linear, norm, ReLU, dropout."""
    return next(layer for layer in count() if f"hidden.{4 * layer}.weight" not in weights)


class TableNetPredictor:
    """Predicts with the stored weights of a `TableNet`. A `Predictor`."""

    rows_at_once = ROWS_AT_ONCE

    def __init__(self, encoding: Encoding, weights: bytes) -> None:
        self._encoding, self._weights = encoding, load(weights)
        self._layers = layer_count(self._weights)

    def predict(self, samples: Samples) -> Array:
        return predictions(self.scores(samples), self._encoding)

    def scores(self, samples: Samples) -> Array:
        """Return logits, or standardised values for a regression: float32[B, K]."""
        weights = self._weights
        codes_BC, numbers_BN, *pixels_BV = table_inputs(samples)
        parts = [weights[f"embeddings.{at}.weight"][code_B] for at, code_B in enumerate(codes_BC.T)]
        edges_NP1 = weights["edges_NP1"]
        low_NP, width_NP = edges_NP1[:, :-1], np.diff(edges_NP1, axis=1)
        bins_BNP = numbers_BN[:, :, None] - low_NP
        bins_BNP /= width_NP
        np.clip(bins_BNP, 0, 1, out=bins_BNP)
        h_BD = np.concatenate([*parts, bins_BNP.reshape(len(samples), -1), numbers_BN, *pixels_BV], axis=1)
        for layer in range(self._layers):
            linear, norm = f"hidden.{4 * layer}", f"hidden.{4 * layer + 1}"
            h_BU = h_BD @ weights[f"{linear}.weight"].T
            h_BU += weights[f"{linear}.bias"]
            h_BU -= h_BU.mean(axis=1, keepdims=True)
            variance_B = np.einsum("bu,bu->b", h_BU, h_BU) / np.float32(h_BU.shape[1])
            h_BU /= np.sqrt(variance_B + NORM_EPSILON)[:, None]
            h_BU *= weights[f"{norm}.weight"]
            h_BU += weights[f"{norm}.bias"]
            h_BD = np.maximum(h_BU, 0, out=h_BU)
        out_BK: Array = h_BD @ weights["output.weight"].T + weights["output.bias"]
        for at, code_B in enumerate(codes_BC.T):
            out_BK += weights[f"offsets.{at}.weight"][code_B]
        return out_BK
