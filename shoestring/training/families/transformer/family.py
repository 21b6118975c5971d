"""The family of transformers for texts."""

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
from shoestring.training.families.transformer.settings import TransformerSettings

if TYPE_CHECKING:
    from shoestring.core.datasets import Encoding
    from shoestring.training.task import TrainingTask

TRAIN_TOKEN_US, TRAIN_UNIT_US, TRAIN_PRODUCT_US, TRAIN_LOGIT_US = 6.0, 0.04, 1.0e-4, 0.012
"""Microseconds of a reference core for a token in training: in any case, for each unit of a layer, for each
product of a weight or of attention, and for each token of the vocabulary, with validations and checkpoints.
`bench/family_cost.py` measures them."""

EVALUATE_SHARE = 0.3
"""The share of it that a prediction takes, which has no backward pass."""

UNIT_COPIES = 20
"""Copies of the units of a token that a layer keeps for the backward pass, with its feed-forward net."""

OPERATIONS, LAYER_OPERATIONS = 160, 142
"""Operations of a step: in any case, and for each layer."""


class TransformerFamily(OneFile[TransformerSettings]):
    """A decoder-only transformer. A `Family`."""

    settings_type = TransformerSettings
    weights_file = "weights.safetensors"

    def train_need(self, need: Need, shape: DataShape) -> Need:
        rows = micro_batch(self._step(shape))
        memory_gb = text_memory_gb(shape, TRAIN_LOGIT_COPIES * rows)
        memory_gb += 4 * rows * shape.row_tokens * self._values(shape) / 1e9
        need = self._with(need, self._token_us(shape) * shape.row_tokens, memory_gb)
        return need.model_copy(update=on_gpu(self._step(shape), 1))

    def evaluate_need(self, need: Need, shape: DataShape) -> Need:
        micros = EVALUATE_SHARE * self._token_us(shape) * shape.row_tokens
        need = self._with(need, micros, text_memory_gb(shape, EVALUATE_LOGIT_COPIES))
        return need.model_copy(update=evaluated_on_gpu(self._step(shape), self.settings.layers, shape))

    def learner(self, task: TrainingTask) -> Learner:
        from shoestring.training.families.transformer.learner import TransformerKind
        from shoestring.training.frameworks.torch_.net_learner import NetLearner

        rows = micro_batch(self._step(encoded_shape(task.encoding, len(task.train))))
        return NetLearner.of_task(task, TransformerKind(task.encoding, self.settings), rows)

    def predictor(self, encoding: Encoding, weights: bytes, device: str = "cpu") -> Predictor:
        from shoestring.training.families.transformer.learner import TransformerKind
        from shoestring.training.frameworks.torch_.net_predictor import NetPredictor

        return NetPredictor(TransformerKind(encoding, self.settings), weights, device)

    def _step(self, shape: DataShape) -> StepSize:
        logits = shape.vocabulary * self.settings.width
        return StepSize(
            products=shape.row_tokens * (self._products(shape) + logits),
            values=shape.row_tokens * (self._values(shape) + TRAIN_LOGIT_COPIES * shape.vocabulary),
            operations=OPERATIONS + LAYER_OPERATIONS * self.settings.layers,
            row_bytes=2 * shape.row_tokens,
            batch_rows=self.settings.batch_rows,
        )

    def _values(self, shape: DataShape) -> int:
        """Return the values of the layers that a token has in memory until the backward pass."""
        pairs = self.settings.heads * self._attended(shape)
        return self.settings.layers * (UNIT_COPIES * self.settings.width + 2 * pairs)

    def _attended(self, shape: DataShape) -> int:
        """Return the tokens that a token is compared with: two blocks, or the row."""
        window = self.settings.window
        return shape.row_tokens if window is None else min(2 * window, shape.row_tokens)

    def _products(self, shape: DataShape) -> int:
        """Return the products of weights and of attention for a token, without its logits."""
        settings, width = self.settings, self.settings.width
        weights = (4 + 2 * settings.feed_forward) * width * width
        return settings.layers * (weights + 2 * width * self._attended(shape))

    def _token_us(self, shape: DataShape) -> float:
        """Return the microseconds of a token in training."""
        settings, width = self.settings, self.settings.width
        micros = TRAIN_TOKEN_US + TRAIN_UNIT_US * settings.layers * width
        micros += TRAIN_PRODUCT_US * self._products(shape)
        return micros + TRAIN_LOGIT_US * shape.vocabulary * width / 64

    def _with(self, need: Need, micros: float, memory_gb: float) -> Need:
        return need.model_copy(
            update={"cpu_us_per_row": round(micros, 3), "memory_fixed_gb": round(memory_gb, 3)}
        )
