"""The family of gradient boosting."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from shoestring.core.types import Need
from shoestring.training.contracts import Learner, Predictor
from shoestring.training.families.boosted.settings import BoostedSettings, category_features
from shoestring.training.families.data_shape import DataShape

if TYPE_CHECKING:
    from shoestring.core.datasets import Encoding
    from shoestring.training.task import TrainingTask

SETUP_S, SETUP_VALUE_US = 3.0, 0.2
"""Seconds of a reference core before the first round, and microseconds to read a value and find its bin."""

ROUND_US, ROUND_FEATURE_US = 0.1, 0.0105
"""Microseconds of a round for a row, and for each feature, with trees of `LEAVES` leaves and the validation.
`bench/family_cost.py` measures them."""

LEAVES, LEAVES_POWER, TREES_POWER = 31, 0.4, 0.75
"""More leaves, and the trees of more classes, take less than proportionally more: both are fitted."""

MIN_ROUNDS = 1.0
VALUE_BYTES = 12.0
"""Bytes of memory for a value: of 4 bytes, and twice in a bin while a data set is made."""

FOREST_FILE, CATEGORIES_FILE = "forest.txt", "categories.json"
"""In a model's folder: the forest as LightGBM reads it, and the value of each code of each category."""


class BoostedFamily:
    """Gradient boosting by LightGBM. A `Family`."""

    settings_type = BoostedSettings
    onnx_converter = "shoestring.training.families.boosted.onnx_forest:add_forest"

    def __init__(self, settings: BoostedSettings) -> None:
        self.settings = settings

    def train_need(self, need: Need, shape: DataShape) -> Need:
        """Return the need: the rows are read once, and a pass is a round over them in memory."""
        features = shape.numbers + sum(
            category_features(each, shape.outputs, shape.rows) for each in shape.cardinalities
        )
        trees = shape.outputs**TREES_POWER * (self.settings.leaves / LEAVES) ** LEAVES_POWER
        micros = trees * (ROUND_US + ROUND_FEATURE_US * features)
        return need.model_copy(
            update={
                "setup_s": round(SETUP_S + SETUP_VALUE_US * 1e-6 * features * shape.rows, 3),
                "cpu_us_per_row": round(float(micros), 4),
                "min_passes": MIN_ROUNDS,
                "reads": "scan",
                "memory_bytes_per_row": VALUE_BYTES * features + 16.0 * shape.outputs,
            }
        )

    def evaluate_need(self, need: Need, shape: DataShape) -> Need:
        return need

    def learner(self, task: TrainingTask) -> Learner:
        from shoestring.training.families.boosted.learner import BoostedLearner

        return BoostedLearner(task.encoding, self.settings, task.train, task.seed, task.cores)

    def predictor(self, encoding: Encoding, weights: bytes, device: str = "cpu") -> Predictor:
        from shoestring.training.families.boosted.forest import BoostedPredictor

        return BoostedPredictor(encoding, weights)

    def files(self, weights: bytes) -> Mapping[str, bytes]:
        content = json.loads(weights)
        return {
            FOREST_FILE: content["forest"].encode(),
            CATEGORIES_FILE: json.dumps(content["categories"]).encode(),
        }

    def from_files(self, files: Mapping[str, bytes]) -> bytes:
        content = {"forest": files[FOREST_FILE].decode(), "categories": json.loads(files[CATEGORIES_FILE])}
        return json.dumps(content, separators=(",", ":")).encode()
