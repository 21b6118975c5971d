"""A family of one file: it predicts the mean of the targets that it has seen."""

from __future__ import annotations

from functools import partial
from typing import Literal

import numpy as np

from shoestring.core.datasets import Encoding
from shoestring.core.types import Need
from shoestring.data.families import LearnerSettings
from shoestring.data.loading.gathering import gather_samples
from shoestring.data.loading.samples import Array, Samples
from shoestring.training.contracts import Deferred, Feed, Progress, StepPlan, ValidationRows, Weights
from shoestring.training.curve import NO_READINGS, StepReadings
from shoestring.training.families.data_shape import DataShape
from shoestring.training.families.registry import OneFile
from shoestring.training.task import TrainingTask


class MeanSettings(LearnerSettings):
    family: Literal["mean"] = "mean"
    learning_rate: float = 1.0
    batch_rows: int = 64


class MeanFamily(OneFile[MeanSettings]):
    settings_type = MeanSettings
    weights_file = "sums.txt"

    def train_need(self, need: Need, shape: DataShape) -> Need:
        return need.model_copy(update={"cpu_us_per_row": 0.5})

    def evaluate_need(self, need: Need, shape: DataShape) -> Need:
        return need

    def learner(self, task: TrainingTask) -> MeanLearner:
        return MeanLearner(self.settings.batch_rows)

    def predictor(self, encoding: Encoding, weights: bytes, device: str = "cpu") -> MeanPredictor:
        return MeanPredictor(weights)


class MeanLearner:
    by_rounds = queues_steps = measures_noise = False
    gather = staticmethod(gather_samples)

    def __init__(self, batch_rows: int) -> None:
        self.batch_rows, self.total, self.rows = batch_rows, 0.0, 0

    def advance(self, plan: StepPlan, feed: Feed) -> Progress:
        target = feed.next_batch(plan.rows).samples["target"]
        self.total, self.rows = self.total + float(target.sum()), self.rows + len(target)
        return Progress(len(target), None)

    def validate(self, rows: ValidationRows, weights: Weights | bytes) -> float:
        predictor = MeanPredictor(weights if isinstance(weights, bytes) else self.state().data)
        losses = [predictor.losses(samples) for samples in rows.batches(1000)]
        return float(np.concatenate(losses).mean())

    def metric(self, loss: float) -> float:
        return loss

    def mark(self) -> None:
        pass

    def go_back(self) -> None:
        pass

    def readings(self) -> StepReadings:
        return NO_READINGS

    def export(self, weights: Weights) -> Deferred:
        return self.state()

    def state(self) -> Deferred:
        return Deferred(partial(bytes, f"{self.total} {self.rows}".encode()))

    def restore(self, state: Deferred) -> None:
        total, rows = state.data.split()
        self.total, self.rows = float(total), int(rows)


class MeanPredictor:
    rows_at_once = 1000

    def __init__(self, weights: bytes) -> None:
        total, rows = map(float, weights.split())
        self.share = (total + 1) / (rows + 2)

    def predict(self, samples: Samples) -> Array:
        return np.tile([1 - self.share, self.share], (len(samples), 1))

    def losses(self, samples: Samples) -> Array:
        found: Array = -np.log(self.predict(samples)[np.arange(len(samples)), samples["target"]])
        return found
