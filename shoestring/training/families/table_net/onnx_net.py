"""The network for tables and images as a graph of ONNX.

Shape suffixes as in `predictor`.
"""

from __future__ import annotations

import numpy as np
from safetensors.numpy import load

from shoestring.core.datasets import Encoding
from shoestring.training.families.onnx_graph import CODE, IMAGE, NUMBER, OnnxGraph
from shoestring.training.families.table_net.predictor import NORM_EPSILON, layer_count
from shoestring.training.losses.scores import Array


def add_net(graph: OnnxGraph, encoding: Encoding, weights: bytes) -> str:
    """Add the predictions of stored weights; return their name."""
    net = load(weights)
    code_count = sum(each.kind == "categorical" for each in encoding.features)
    codes = [graph.column(CODE, at) for at in range(code_count)]
    h_BD = graph.add("Concat", *_inputs(graph, encoding, net, codes), axis=1)
    for layer in range(layer_count(net)):
        linear, norm = f"hidden.{4 * layer}", f"hidden.{4 * layer + 1}"
        h_BU = graph.linear(h_BD, net, linear)
        scale, term = (graph.constant(net[f"{norm}.{name}"], np.float32) for name in ("weight", "bias"))
        h_BU = graph.add("LayerNormalization", h_BU, scale, term, axis=-1, epsilon=float(NORM_EPSILON))
        h_BD = graph.add("Relu", h_BU)
    out_BK = graph.linear(h_BD, net, "output")
    for at, code_B in enumerate(codes):
        offsets = graph.constant(net[f"offsets.{at}.weight"], np.float32)
        out_BK = graph.add("Add", out_BK, graph.add("Gather", offsets, code_B))
    scores_BK = graph.cast(out_BK, "float64")
    if encoding.task == "regression":
        mean, sd = encoding.train_prior
        scores_BK = graph.scaled(scores_BK, sd, mean)
    return graph.predictions(scores_BK, encoding)


def _inputs(graph: OnnxGraph, encoding: Encoding, net: dict[str, Array], codes: list[str]) -> list[str]:
    """Add the inputs of the first layer."""
    parts = [
        graph.add("Gather", graph.constant(net[f"embeddings.{at}.weight"], np.float32), code_B)
        for at, code_B in enumerate(codes)
    ]
    if len(encoding.features) > len(codes):
        edges_NP1 = net["edges_NP1"]
        numbers_BN1 = graph.add("Unsqueeze", NUMBER, graph.constant([2], np.int64))
        bins_BNP = graph.add("Sub", numbers_BN1, graph.constant(edges_NP1[:, :-1], np.float32))
        bins_BNP = graph.add("Div", bins_BNP, graph.constant(np.diff(edges_NP1, axis=1), np.float32))
        bounds = graph.constant(0.0, np.float32), graph.constant(1.0, np.float32)
        parts += [graph.add("Flatten", graph.add("Clip", bins_BNP, *bounds), axis=1), NUMBER]
    if encoding.of_use("image"):
        pixels_BV = graph.cast(graph.add("Flatten", IMAGE, axis=1), "float32")
        parts.append(graph.add("Mul", pixels_BV, graph.constant(np.float32(1 / 255), np.float32)))
    return parts
