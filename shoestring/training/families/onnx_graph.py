"""A graph of ONNX that grows operation by operation. Nothing but `shoestring export onnx` imports onnx.

Scores are computed as the family computes them, in float32 or float64. What follows them, probabilities and
their calibration, is in float64: a small probability of one class is 1 less the others.

Shape suffixes: B rows; K scores of a row, or classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pkgutil import resolve_name
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from shoestring.core.datasets import Encoding
from shoestring.core.errors import UsageError
from shoestring.data.families import FamilySettings
from shoestring.training.families.registry import family_of
from shoestring.training.losses.scores import SMALLEST

Array = np.ndarray[Any, np.dtype[Any]]

Converter = Callable[["OnnxGraph", Encoding, bytes], str]
"""Adds what the predictor of stored weights predicts to a graph, from the samples that it reads, and returns
its name: float64 probabilities [B, classes], or the values [B] of a regression."""

CODE, NUMBER, IMAGE = "code", "number", "image"
"""The inputs of a graph: int32[B, C], float32[B, F] and uint8[B, channels, height, width]. A model has those
that its data set has."""

OPSETS, IR = {"": 17, "ai.onnx.ml": 3}, 8
"""The first ones with the normalisation of a layer, and with trees of float32 thresholds: runtimes since 2022
read them."""


class OnnxGraph:
    """The nodes and constants of a graph so far. Its methods return the name of what they add."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def add(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add an operation with one output. `inputs`: the names of what it reads."""
        name = f"{kind}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, [*inputs], [name], name, domain=domain, **attributes))
        return name

    def constant(self, values: Any, dtype: Any) -> str:
        """Add values as a constant of a type of NumPy."""
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(values, dtype, order="C"), name))
        return name

    def cast(self, values: str, dtype: str) -> str:
        """Add the values in a type of NumPy."""
        return self.add("Cast", values, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def named(self, values: str, name: str) -> str:
        """Add the values under a name that is given, that of an output."""
        self._nodes.append(helper.make_node("Identity", [values], [name], name))
        return name

    def linear(self, inputs: str, net: Mapping[str, Array], name: str) -> str:
        """Add a linear layer of torch, whose weights have the name `name`, in float32."""
        product = self.add("MatMul", inputs, self.constant(net[f"{name}.weight"].T, np.float32))
        return self.add("Add", product, self.constant(net[f"{name}.bias"], np.float32))

    def scaled(self, values: str, factor: Any, term: Any = 0.0) -> str:
        """Add float64 `values` times a factor, plus a term."""
        product = self.add("Mul", values, self.constant(factor, np.float64))
        return self.add("Add", product, self.constant(term, np.float64))

    def column(self, values_BC: str, at: int) -> str:
        """Add one column: [B]."""
        return self.add("Gather", values_BC, self.constant(at, np.int64), axis=1)

    def repeated(self, values_K: Array, encoding: Encoding) -> str:
        """Add a row of float64 values for each row of the inputs: float64[B, K]."""
        shape = self.add("Shape", _inputs(encoding)[0].name, start=0, end=1)
        width = self.constant([len(values_K)], np.int64)
        return self.add(
            "Expand", self.constant(values_K, np.float64), self.add("Concat", shape, width, axis=0)
        )

    def logs(self, values: str) -> str:
        """Add the logarithms of float64 probabilities, none smaller than that of `SMALLEST`."""
        bounds = self.constant(SMALLEST, np.float64), self.constant(1.0, np.float64)
        return self.add("Log", self.add("Clip", values, *bounds))

    def softmax(self, scores_BK: str) -> str:
        return self.add("Softmax", scores_BK, axis=1)

    def predictions(self, scores_BK: str, encoding: Encoding) -> str:
        """Add what float64 scores predict: probabilities [B, classes], or the values [B] in their unit."""
        if encoding.task == "regression":
            return self.column(scores_BK, 0)
        if encoding.task == "binary":
            # The logits of two classes, half of the score each way: their softmax is its sigmoid.
            scores_BK = self.add("MatMul", scores_BK, self.constant([[-0.5, 0.5]], np.float64))
        return self.softmax(scores_BK)

    def add_model(self, settings: FamilySettings, encoding: Encoding, weights: bytes) -> str:
        """Add what a stored model predicts, as `Converter`. Raises UsageError: its family has none."""
        name = family_of(settings).onnx_converter
        if not name:
            raise UsageError(f"a model of the family {settings.family} cannot be written as ONNX")
        convert: Converter = resolve_name(name)
        return convert(self, encoding, weights)

    def model(
        self, encoding: Encoding, outputs: Mapping[str, tuple[str, tuple[int, ...]]], notes: dict[str, str]
    ) -> Any:
        """Return the model of ONNX, checked. `outputs`: the names of what was added, with NumPy's type and
        the shape of a row. `notes`: the properties of the model."""
        graph = helper.make_graph(
            self._nodes,
            "model",
            _inputs(encoding),
            [_described(name, *kind) for name, kind in outputs.items()],
            self._constants,
        )
        opsets = [helper.make_opsetid(*each) for each in OPSETS.items()]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR, producer_name="shoestring")
        helper.set_model_props(model, notes)
        onnx.checker.check_model(model, full_check=True)
        return model


def _inputs(encoding: Encoding) -> list[Any]:
    codes = sum(each.kind == "categorical" for each in encoding.features)
    numbers = len(encoding.features) - codes
    found: list[tuple[str, str, tuple[int, ...]]] = [(CODE, "int32", (codes,))] if codes else []
    if numbers:
        found.append((NUMBER, "float32", (numbers,)))
    found += [(IMAGE, "uint8", each.shape) for each in encoding.of_use("image")]
    return [_described(*each) for each in found]


def _described(name: str, dtype: str, shape: tuple[int, ...]) -> Any:
    """Return an input or output. `shape`: of a row."""
    type_ = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return helper.make_tensor_value_info(name, type_, ("rows", *shape))
