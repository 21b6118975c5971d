"""A linear model as a graph of ONNX, in float64.

Shape suffixes as in `predictor`.
"""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np

from shoestring.core.datasets import Encoding
from shoestring.training.families.linear.predictor import MOST_DEVIATIONS, Inputs, LinearWeights
from shoestring.training.families.onnx_graph import CODE, NUMBER, OnnxGraph


def add_linear(graph: OnnxGraph, encoding: Encoding, weights: bytes) -> str:
    """Add the predictions of stored weights; return their name."""
    inputs, model = Inputs(encoding), LinearWeights.read(json.loads(weights))
    parts = [graph.repeated(model.intercept, encoding)]
    if inputs.numbers:
        bounds = [graph.constant(end, np.float64) for end in (-MOST_DEVIATIONS, MOST_DEVIATIONS)]
        bounded_BF = graph.add("Clip", graph.cast(NUMBER, "float64"), *bounds)
        coef_FK = graph.constant(model.coef[:, inputs.codes :].T, np.float64)
        parts.append(graph.add("MatMul", bounded_BF, coef_FK))
    ends = [*inputs.first_code_C, inputs.codes]
    for at, (start, end) in enumerate(pairwise(ends)):
        by_code = graph.constant(model.coef[:, start:end].T, np.float64)
        parts.append(graph.add("Gather", by_code, graph.column(CODE, at)))
    scores_BK = graph.add("Sum", *parts)
    if encoding.task == "regression":
        mean, sd = encoding.train_prior
        scores_BK = graph.scaled(scores_BK, sd or 1.0, mean)
    if encoding.task == "multiclass":
        scores_BK = _one_against_rest(graph, scores_BK)
    return graph.predictions(scores_BK, encoding)


def _one_against_rest(graph: OnnxGraph, scores_BK: str) -> str:
    """Add the log-probabilities of classes that are each a logit of its own, before they are normalised.

    log sigmoid(s) = min(s, 0) - log(1 + exp(-|s|)), where no exponential overflows.
    """
    decay_BK = graph.add("Exp", graph.add("Neg", graph.add("Abs", scores_BK)))
    tail_BK = graph.add("Log", graph.add("Add", decay_BK, graph.constant(1.0, np.float64)))
    bounded_BK = graph.add("Min", scores_BK, graph.constant(0.0, np.float64))
    return graph.add("Sub", bounded_BK, tail_BK)
