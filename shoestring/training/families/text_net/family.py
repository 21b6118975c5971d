"""The family of networks for texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoestring.core.types import Need
from shoestring.training.contracts import Learner, Predictor
from shoestring.training.families.data_shape import DataShape, encoded_shape
from shoestring.training.families.gpu_needs import StepSize, on_gpu
from shoestring.training.families.registry import OneFile
from shoestring.training.families.text_needs import (
    EVALUATE_LOGIT_COPIES,
    TRAIN_LOGIT_COPIES,
    evaluated_on_gpu,
    micro_batch,
    text_memory_gb,
)
from shoestring.training.families.text_net.settings import TextNetSettings

if TYPE_CHECKING:
    from shoestring.core.datasets import Encoding
    from shoestring.training.task import TrainingTask

TRAIN_TOKEN_US, TRAIN_LOGIT_US = 9.0, 0.007
EVALUATE_TOKEN_US, EVALUATE_LOGIT_US = 4.0, 0.003
"""Microseconds of a reference core for a token of text, and for each token of the vocabulary, with
the default net, whose 4 layers have 64 units. `bench/family_cost.py` measures those of training."""

DEFAULT_WEIGHTS = 4 * 2 * 64 * 64
"""The weights of the layers of the default net."""

NGRAM_UNITS, VALUE_COPIES = 128, 8
"""The width of the n-grams of a token, and the copies of the units of a layer that are kept for the backward
pass."""

OPERATIONS, LAYER_OPERATIONS = 141, 32
"""Operations of a step: in any case, and for each layer."""


class TextNetFamily(OneFile[TextNetSettings]):
    """A causal network. A `Family`."""

    settings_type = TextNetSettings
    weights_file = "weights.safetensors"

    def train_need(self, need: Need, shape: DataShape) -> Need:
        logits = TRAIN_LOGIT_COPIES * micro_batch(self._step(shape))
        need = self._need(need, shape, TRAIN_TOKEN_US, TRAIN_LOGIT_US, logits)
        return need.model_copy(update=on_gpu(self._step(shape), 1))

    def _step(self, shape: DataShape) -> StepSize:
        units, layers = self.settings.hidden[0], len(self.settings.hidden)
        return StepSize(
            products=shape.row_tokens * units * (NGRAM_UNITS + 2 * layers * units + shape.vocabulary),
            values=shape.row_tokens * (VALUE_COPIES * layers * units + TRAIN_LOGIT_COPIES * shape.vocabulary),
            operations=OPERATIONS + LAYER_OPERATIONS * layers,
            row_bytes=2 * shape.row_tokens,
            batch_rows=self.settings.batch_rows,
        )

    def evaluate_need(self, need: Need, shape: DataShape) -> Need:
        need = self._need(need, shape, EVALUATE_TOKEN_US, EVALUATE_LOGIT_US, EVALUATE_LOGIT_COPIES)
        return need.model_copy(update=evaluated_on_gpu(self._step(shape), len(self.settings.hidden), shape))

    def learner(self, task: TrainingTask) -> Learner:
        from shoestring.training.families.text_net.learner import TextNetKind
        from shoestring.training.frameworks.torch_.net_learner import NetLearner

        rows = micro_batch(self._step(encoded_shape(task.encoding, len(task.train))))
        return NetLearner.of_task(task, TextNetKind(task.encoding, self.settings), rows)

    def predictor(self, encoding: Encoding, weights: bytes, device: str = "cpu") -> Predictor:
        from shoestring.training.families.text_net.learner import TextNetKind
        from shoestring.training.frameworks.torch_.net_predictor import NetPredictor

        return NetPredictor(TextNetKind(encoding, self.settings), weights, device)

    def _need(self, need: Need, shape: DataShape, token_us: float, logit_us: float, rows: int) -> Need:
        """Return a need per row of tokens. `rows`: those whose logits are in memory at once."""
        units = self.settings.hidden[0]
        layers = len(self.settings.hidden) * 2 * units * units / DEFAULT_WEIGHTS
        micros = token_us * (0.5 + 0.5 * layers) + logit_us * shape.vocabulary * units / 64
        return need.model_copy(
            update={
                "cpu_us_per_row": micros * shape.row_tokens,
                "memory_fixed_gb": text_memory_gb(shape, rows),
            }
        )
