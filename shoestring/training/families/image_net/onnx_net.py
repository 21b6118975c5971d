"""The network for images as a graph of ONNX.

Shape suffixes as in `predictor`.
"""

from __future__ import annotations

import numpy as np
from safetensors.numpy import load

from shoestring.core.datasets import Encoding
from shoestring.training.families.image_net.layers import PADDING
from shoestring.training.families.image_net.predictor import plain_convolution
from shoestring.training.families.onnx_graph import CODE, IMAGE, NUMBER, OnnxGraph
from shoestring.training.losses.scores import Array


def add_net(graph: OnnxGraph, encoding: Encoding, weights: bytes) -> str:
    """Add the predictions of stored weights; return their name."""
    net = load(weights)
    scale = graph.constant(1 / 255, np.float32)
    h_BCHW = graph.add("Mul", graph.cast(IMAGE, "float32"), scale)
    for at, pool in enumerate(net["pools"].tolist()):
        if max(pool) > 1:
            h_BCHW = graph.add("MaxPool", h_BCHW, kernel_shape=pool, strides=pool)
        kernel, bias_O = plain_convolution(net, at)
        stride = 1 if at else kernel.shape[2] - 2
        constants = [graph.constant(each, np.float32) for each in (kernel, bias_O)]
        convolved = graph.add("Conv", h_BCHW, *constants, strides=[stride] * 2, pads=[PADDING] * 4)
        out_BOHW = graph.add("Relu", convolved)
        is_residual = at > 0 and kernel.shape[0] == kernel.shape[1]
        h_BCHW = graph.add("Add", out_BOHW, h_BCHW) if is_residual else out_BOHW
    h_BD = graph.add("ReduceMean", h_BCHW, axes=[2, 3], keepdims=0)
    if encoding.features:
        h_BD = graph.add("Concat", h_BD, *_features(graph, encoding, net), axis=1)
        h_BD = graph.add("Relu", graph.linear(h_BD, net, "mix"))
    scores_BS = graph.cast(graph.linear(h_BD, net, "output"), "float64")
    if encoding.task == "regression":
        mean, sd = encoding.train_prior
        scores_BS = graph.scaled(scores_BS, sd, mean)
    return graph.predictions(scores_BS, encoding)


def _features(graph: OnnxGraph, encoding: Encoding, net: dict[str, Array]) -> list[str]:
    """Add the features of a row that are read with the means of the channels."""
    codes = sum(each.kind == "categorical" for each in encoding.features)
    parts = [
        graph.add(
            "Gather",
            graph.constant(net[f"embeddings.{at}.weight"], np.float32),
            graph.column(CODE, at),
        )
        for at in range(codes)
    ]
    return [*parts, NUMBER] if len(encoding.features) > codes else parts
