"""The family of networks for tables and images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoestring.core.types import Need
from shoestring.training.contracts import Learner, Predictor
from shoestring.training.families.data_shape import DataShape
from shoestring.training.families.gpu_needs import StepSize, on_gpu
from shoestring.training.families.registry import OneFile
from shoestring.training.families.table_net.settings import TableNetSettings

if TYPE_CHECKING:
    from shoestring.core.datasets import Encoding
    from shoestring.training.task import TrainingTask

BASE_US, CATEGORY_US, NUMBER_US, UNIT_US, WEIGHT_US = 4.0, 0.62, 0.04, 0.009, 8.5e-5
"""Microseconds of a reference core for a row: in any case, for each category, number, hidden unit and weight,
with validations and checkpoints. `bench/family_cost.py` measures them."""

OPERATIONS, CATEGORY_OPERATIONS, LAYER_OPERATIONS, VALUE_COPIES = 62, 9, 22, 10
"""Operations of a step: in any case, for each category and each hidden layer; and the copies of each value
that are kept for the backward pass."""


class TableNetFamily(OneFile[TableNetSettings]):
    """A multi-layer perceptron. A `Family`."""

    settings_type = TableNetSettings
    weights_file = "weights.safetensors"
    onnx_converter = "shoestring.training.families.table_net.onnx_net:add_net"

    def train_need(self, need: Need, shape: DataShape) -> Need:
        features = CATEGORY_US * len(shape.cardinalities) + NUMBER_US * shape.numbers
        layers = UNIT_US * sum(self.settings.hidden) + WEIGHT_US * self._weights(shape)
        micros = BASE_US + features + layers
        size = StepSize(
            products=self._weights(shape),
            values=shape.numbers * (self.settings.bins + 1) + shape.pixels + sum(self.settings.hidden),
            operations=OPERATIONS
            + CATEGORY_OPERATIONS * len(shape.cardinalities)
            + LAYER_OPERATIONS * len(self.settings.hidden),
            row_bytes=4 * (shape.numbers + len(shape.cardinalities)) + shape.pixels,
            batch_rows=self.settings.batch_rows,
        )
        return need.model_copy(update={"cpu_us_per_row": round(micros, 3), **on_gpu(size, VALUE_COPIES)})

    def evaluate_need(self, need: Need, shape: DataShape) -> Need:
        return need

    def learner(self, task: TrainingTask) -> Learner:
        from shoestring.training.families.table_net.learner import TableNetKind
        from shoestring.training.frameworks.torch_.net_learner import NetLearner

        return NetLearner.of_task(task, TableNetKind(task.encoding, self.settings))

    def predictor(self, encoding: Encoding, weights: bytes, device: str = "cpu") -> Predictor:
        if device == "cpu":
            from shoestring.training.families.table_net.predictor import TableNetPredictor

            return TableNetPredictor(encoding, weights)
        from shoestring.training.families.table_net.learner import TableNetKind
        from shoestring.training.frameworks.torch_.net_predictor import NetPredictor

        return NetPredictor(TableNetKind(encoding, self.settings), weights, device)

    def _weights(self, shape: DataShape) -> int:
        """Return the weights of the layers."""
        settings = self.settings
        widths = map(settings.embedding_width, shape.cardinalities)
        width, count = sum(widths) + shape.numbers * (settings.bins + 1) + shape.pixels, 0
        for units in settings.hidden:
            count += width * units
            width = units
        return count + width * shape.outputs
