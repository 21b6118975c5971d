"""The family of linear models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoestring.core.types import Need
from shoestring.training.contracts import Learner, Predictor
from shoestring.training.families.data_shape import DataShape
from shoestring.training.families.linear.settings import LinearSettings
from shoestring.training.families.registry import OneFile

if TYPE_CHECKING:
    from shoestring.core.datasets import Encoding
    from shoestring.training.task import TrainingTask

SETUP_S = 3.0
ROW_US, NUMBER_US, CATEGORY_US = 0.5, 0.016, 0.17
OUTPUT_US, OUTPUT_NUMBER_US, OUTPUT_CATEGORY_US = 0.9, 0.021, 0.1
"""Microseconds of a reference core for a row, and for each of its scores: in any case, and for each number
and category. `bench/family_cost.py` measures them."""


class LinearFamily(OneFile[LinearSettings]):
    """A linear or logistic regression by scikit-learn. A `Family`."""

    settings_type = LinearSettings
    weights_file = "weights.json"
    onnx_converter = "shoestring.training.families.linear.onnx_linear:add_linear"

    def train_need(self, need: Need, shape: DataShape) -> Need:
        numbers, categories = shape.numbers, len(shape.cardinalities)
        row_us = ROW_US + NUMBER_US * numbers + CATEGORY_US * categories
        output_us = OUTPUT_US + OUTPUT_NUMBER_US * numbers + OUTPUT_CATEGORY_US * categories
        micros = row_us + shape.outputs * output_us
        return need.model_copy(update={"setup_s": SETUP_S, "cpu_us_per_row": round(micros, 4)})

    def evaluate_need(self, need: Need, shape: DataShape) -> Need:
        return need

    def learner(self, task: TrainingTask) -> Learner:
        from shoestring.training.families.linear.learner import LinearLearner

        return LinearLearner(task.encoding, self.settings, task.seed, len(task.train))

    def predictor(self, encoding: Encoding, weights: bytes, device: str = "cpu") -> Predictor:
        from shoestring.training.families.linear.predictor import LinearPredictor

        return LinearPredictor(encoding, weights)
