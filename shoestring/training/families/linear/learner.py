"""The learner of a linear model: a step is scikit-learn's `partial_fit` on a batch, row by row."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.linear_model import SGDClassifier, SGDRegressor

from shoestring.core.datasets import Encoding
from shoestring.data.loading.gathering import gather_samples
from shoestring.data.loading.samples import Samples
from shoestring.training.contracts import Deferred, Feed, Progress, StepPlan, ValidationRows, Weights
from shoestring.training.curve import NO_READINGS, StepReadings
from shoestring.training.families.linear.predictor import (
    ROWS_AT_ONCE,
    Array,
    Inputs,
    LinearWeights,
    scores_of,
)
from shoestring.training.families.linear.settings import LinearSettings
from shoestring.training.losses.scores import (
    mean_metric,
    outputs,
    row_weights,
    sum_of_losses,
    total_weight,
    trained_shares,
)

AVERAGE_HALF_LIFE_EPOCHS = 0.25
"""Epochs after which a weight counts half in the average."""

MAX_WEIGHT = 2.0
"""The weight from which on a row is trained on as several with equal parts of it, one after the other: a step
as many times as long would go beyond its target."""


class LinearLearner:
    """A linear model, the exponential average of its recent weights, which is validated on the plateau, and
    its random numbers, which are a function of the seed and the samples so far. A `Learner`.

    The rate of a step is over the mean squared norm of a row: row by row, gradient descent on a squared error
    diverges from twice its inverse on.
    """

    by_rounds = queues_steps = measures_noise = False
    gather = staticmethod(gather_samples)

    def __init__(self, encoding: Encoding, settings: LinearSettings, seed: int, rows: int) -> None:
        """`rows`: the size of an epoch."""
        self._encoding, self._settings, self._seed, self._rows = encoding, settings, seed, rows
        self.batch_rows, self.samples = settings.batch_rows, 0
        self.inputs = Inputs(encoding)
        self._rate = settings.learning_rate / max(1, len(encoding.features) + 1)
        kind = SGDRegressor if encoding.task == "regression" else SGDClassifier
        self._model: Any = kind(
            loss=_loss(encoding),
            epsilon=0.0,
            alpha=settings.l2,
            learning_rate="constant",
            eta0=self._rate,
            shuffle=False,
        )
        weights = LinearWeights(np.zeros((outputs(encoding), self.inputs.count)), self._prior())
        self._allocate()
        self._use(weights)
        self._average = weights

    def advance(self, plan: StepPlan, feed: Feed) -> Progress:
        samples: Samples = feed.next_batch(plan.rows).samples
        self._model.eta0 = self._rate * plan.rate
        if self._model.eta0:
            target_B, weight_B = samples["target"], samples.weights
            inputs = self._matrix(samples)
            if weight_B is not None:
                copies_B = np.maximum(1, np.ceil(weight_B / MAX_WEIGHT)).astype(np.int64)
                rows = np.repeat(np.arange(len(samples)), copies_B)
                inputs, target_B, weight_B = inputs[rows], target_B[rows], (weight_B / copies_B)[rows]
            weights_B = self._row_weights(inputs, target_B, weight_B)
            self._model.partial_fit(inputs, self._target(target_B), sample_weight=weights_B)
        self.samples += len(samples)
        half_lives = len(samples) / (AVERAGE_HALF_LIFE_EPOCHS * self._rows)
        keep = min(0.5**half_lives, 1 - len(samples) / self.samples)
        now, before = self._weights(), self._average
        self._average = LinearWeights(
            keep * before.coef + (1 - keep) * now.coef,
            keep * before.intercept + (1 - keep) * now.intercept,
        )
        return Progress(len(samples), None)

    def validate(self, rows: ValidationRows, weights: Weights | bytes) -> float:
        total, weight = 0.0, 0.0
        read = LinearWeights.read(json.loads(weights)) if isinstance(weights, bytes) else self._named(weights)
        for samples in rows.batches(ROWS_AT_ONCE):
            scores_BK = scores_of(read, self.inputs, self._encoding, samples)
            total += sum_of_losses(scores_BK, samples["target"], self._encoding, samples.weights)
            weight += total_weight(len(samples), samples.weights)
        return self.metric(total / weight)

    def metric(self, loss: float) -> float:
        return mean_metric(loss, self._encoding)

    def export(self, weights: Weights) -> Deferred:
        return Deferred(partial(_json, self._named(weights).content()))

    def state(self) -> Deferred:
        content = {
            "weights": self._weights().content(),
            "average": self._average.content(),
            "samples": self.samples,
        }
        return Deferred(partial(_json, content))

    def restore(self, state: Deferred) -> None:
        saved = json.loads(state.data)
        self._use(LinearWeights.read(saved["weights"]))
        self._average, self.samples = LinearWeights.read(saved["average"]), saved["samples"]

    def mark(self) -> None:
        pass

    def go_back(self) -> None:
        pass

    def readings(self) -> StepReadings:
        return NO_READINGS

    def _prior(self) -> Array:
        """Return the intercepts with which the model predicts train's shares."""
        if self._encoding.task == "regression":
            return np.zeros(1)
        shares = trained_shares(self._encoding)
        logits = np.log(shares / (1 - shares))
        return np.asarray(logits[1:] if self._encoding.task == "binary" else logits)

    def _allocate(self) -> None:
        """Let scikit-learn make its arrays, by a row of zeros."""
        zeros = np.zeros((1, self.inputs.count))
        if self._encoding.task == "regression":
            self._model.partial_fit(zeros, np.zeros(1))
        else:
            self._model.partial_fit(zeros, np.zeros(1, int), classes=np.arange(len(self._encoding.classes)))

    def _use(self, weights: LinearWeights) -> None:
        is_regression = self._encoding.task == "regression"
        self._model.coef_ = weights.coef[0].copy() if is_regression else weights.coef.copy()
        self._model.intercept_ = weights.intercept.copy()

    def _weights(self) -> LinearWeights:
        return LinearWeights(np.atleast_2d(self._model.coef_).copy(), self._model.intercept_.copy())

    def _named(self, weights: Weights) -> LinearWeights:
        return self._average if weights == "averaged" else self._weights()

    def _target(self, target_B: Array) -> Array:
        if self._encoding.task != "regression":
            return target_B
        mean, sd = self._encoding.train_prior
        return np.asarray((target_B - mean) / (sd or 1.0), np.float64)

    def _row_weights(self, inputs: Any, target_B: Array, weight_B: Array | None) -> Array | None:
        """Return the weights of the rows of a batch. A quantile weights what lies above it and below it, by
        the model before the batch: the gradient of its loss is that of the absolute error with these."""
        quantile = self._encoding.loss.quantile
        if self._encoding.task != "regression" or quantile is None:
            return row_weights(self._encoding, target_B, weight_B)
        is_above_B = self._target(target_B) > self._model.predict(inputs)
        sides_B = np.where(is_above_B, 2 * quantile, 2 * (1 - quantile))
        return sides_B if weight_B is None else sides_B * weight_B

    def _matrix(self, samples: Samples) -> Any:
        """Return the inputs of a batch: float64[B, D], sparse where there are categories."""
        numbers_BF = self.inputs.bounded(samples)
        if not self.inputs.codes:
            return numbers_BF
        codes_BC = samples["code"]
        if self._settings.category_dropout:
            rng = np.random.default_rng([self._seed, self.samples])
            codes_BC = codes_BC * (rng.random(codes_BC.shape) >= self._settings.category_dropout)
        rows, numbers = numbers_BF.shape
        places = np.broadcast_to(self.inputs.codes + np.arange(numbers), (rows, numbers))
        at = np.concatenate([self.inputs.places(codes_BC), places], axis=1)
        values = np.concatenate([np.ones(codes_BC.shape), numbers_BF], axis=1)
        starts = np.arange(0, at.size + 1, at.shape[1])
        return csr_matrix((values.ravel(), at.ravel(), starts), shape=(rows, self.inputs.count))


def _loss(encoding: Encoding) -> str:
    """Return the loss as scikit-learn names it; that of a quantile is the absolute error with weights."""
    if encoding.task != "regression":
        return "log_loss"
    return "squared_error" if encoding.loss.quantile is None else "epsilon_insensitive"


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()
