"""A blend as one graph of ONNX."""

from __future__ import annotations

import json

import numpy as np

from shoestring.core.datasets import Encoding
from shoestring.training.families.blend.stored import taken_apart
from shoestring.training.families.onnx_graph import OnnxGraph


def add_blend(graph: OnnxGraph, encoding: Encoding, weights: bytes) -> str:
    """Add the members' predictions and their combination, as `losses.combination`; return its name."""
    line, members = taken_apart(weights)
    found = [graph.add_model(settings, encoding, own) for settings, own in members]
    is_number = encoding.task == "regression"
    mean, sd = encoding.train_prior if is_number else (0.0, 1.0)
    sd = sd or 1.0
    parts = list[str]()
    for weight, predicted in zip(json.loads(line)["weights"], found, strict=True):
        if is_number:
            # The deviations from the mean are added, in the unit of y.
            deviation = graph.scaled(predicted, 1.0, -mean)
            parts.append(graph.scaled(deviation, weight))
        else:
            parts.append(graph.scaled(graph.logs(predicted), weight))
    total = graph.add("Sum", *parts)
    return graph.add("Add", total, graph.constant(mean, np.float64)) if is_number else graph.softmax(total)
