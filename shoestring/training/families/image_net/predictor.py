"""A convolutional network for images as it is stored, and its predictions by NumPy.

Nothing but the training needs torch. The normalisation of a layer is part of its weights here.

Shape suffixes: B rows of a batch; H height and W width of a map; C its channels; K values of a window; O
outputs of a layer; D pooled channels and features; S scores; F categorical features; N numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from safetensors.numpy import load

from shoestring.core.datasets import Encoding
from shoestring.data.loading.samples import Samples
from shoestring.training.families.image_net.layers import PADDING, Layer, layers_of
from shoestring.training.families.image_net.settings import ImageNetSettings
from shoestring.training.losses.scores import Array, predictions

MOST_ROWS, MOST_VALUES = 8192, 1 << 22
"""At most this many windows' values, 16 MB, are in memory at once."""

NORM_EPSILON = 1e-5
"""What is added to a variance."""


def image_inputs(samples: Samples) -> tuple[Array, ...]:
    """Return the pixels from 0 to 1, float32[B, C, H, W], and the samples' own codes int32[B, F] and numbers
    float32[B, N]."""
    pixels_BCHW = np.multiply(samples["image"], np.float32(1 / 255), dtype=np.float32)
    return pixels_BCHW, samples["code"], samples["number"]


def rows_at_once(layers: tuple[Layer, ...]) -> int:
    """Return the rows that are computed at once outside a training step."""
    return max(1, min(MOST_ROWS, MOST_VALUES // max(each.window_values for each in layers)))


def net_layers(encoding: Encoding, settings: ImageNetSettings) -> tuple[Layer, ...]:
    """Return the layers for the images of a data set."""
    (images,) = encoding.of_use("image")
    return layers_of(settings, images.shape)


def plain_convolution(net: Mapping[str, Array], at: int) -> tuple[Array, Array]:
    """Return a layer with its normalisation as a convolution, float32[O, C, rows, columns], and its bias."""
    name = f"convolutions.{at}"
    kernel = net[f"{name}.kernel.weight"]
    scale_O = net[f"{name}.norm.weight"] / np.sqrt(net[f"{name}.norm.variance"] + NORM_EPSILON)
    bias_O = net[f"{name}.norm.bias"] - net[f"{name}.norm.mean"] * scale_O
    return (kernel * scale_O[:, None, None, None]).astype(np.float32), bias_O.astype(np.float32)


class ImageNetPredictor:
    """Predicts with the stored weights of an `ImageNet`. A `Predictor`."""

    def __init__(self, encoding: Encoding, settings: ImageNetSettings, weights: bytes) -> None:
        self._encoding, self._net = encoding, load(weights)
        self._layers = net_layers(encoding, settings)
        self._convolutions = [plain_convolution(self._net, at) for at in range(len(self._layers))]
        self.rows_at_once = rows_at_once(self._layers)

    def predict(self, samples: Samples) -> Array:
        return predictions(self._scores(samples), self._encoding)

    def _scores(self, samples: Samples) -> Array:
        """Return logits, or standardised values for a regression: float32[B, S]."""
        net = self._net
        pixels_BCHW, codes_BF, numbers_BN = image_inputs(samples)
        h_BHWC = pixels_BCHW.transpose(0, 2, 3, 1)
        for layer, (kernel, bias_O) in zip(self._layers, self._convolutions, strict=True):
            h_BHWC = _pooled(h_BHWC, *layer.pool)
            out_BHWO = _convolved(h_BHWC, kernel, bias_O, layer.stride)
            h_BHWC = out_BHWO + h_BHWC if layer.is_residual else out_BHWO
        h_BD = h_BHWC.mean(axis=(1, 2))
        if "mix.weight" in net:
            parts = [net[f"embeddings.{at}.weight"][code_B] for at, code_B in enumerate(codes_BF.T)]
            h_BD = np.concatenate([h_BD, *parts, numbers_BN], axis=1)
            h_BD = np.maximum(h_BD @ net["mix.weight"].T + net["mix.bias"], 0)
        return np.asarray(h_BD @ net["output.weight"].T + net["output.bias"])


def _pooled(h_BHWC: Array, rows: int, columns: int) -> Array:
    """Return the maxima of areas that do not overlap."""
    batch, height, width, channels = h_BHWC.shape
    height, width = height // rows, width // columns
    areas = h_BHWC[:, : height * rows, : width * columns]
    return np.asarray(areas.reshape(batch, height, rows, width, columns, channels).max(axis=(2, 4)))


def _convolved(h_BHWC: Array, kernel: Array, bias_O: Array, stride: int) -> Array:
    """Return the convolution without its negative values: float32[B, H, W, O]."""
    batch, height, width, channels = h_BHWC.shape
    outputs, _, rows, columns = kernel.shape
    height, width = ((size + 2 * PADDING - rows) // stride + 1 for size in (height, width))
    side = (PADDING, PADDING)
    padded = np.pad(h_BHWC, ((0, 0), side, side, (0, 0)))
    windows = np.empty((batch, height, width, rows, columns, channels), np.float32)
    for row, column in np.ndindex(rows, columns):
        below, right = row + stride * height, column + stride * width
        windows[:, :, :, row, column] = padded[:, row:below:stride, column:right:stride]
    weights_KO = kernel.transpose(2, 3, 1, 0).reshape(-1, outputs)
    out_BHWO: Array = windows.reshape(batch, height, width, -1) @ weights_KO
    out_BHWO += bias_O
    return np.maximum(out_BHWO, 0, out=out_BHWO)
