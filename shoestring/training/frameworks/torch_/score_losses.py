"""The losses of networks whose output are scores of rows, and the score of train's prior.

Shape suffixes: B rows of a batch; K outputs.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shoestring.core.datasets import Encoding
from shoestring.data.loading.samples import Samples
from shoestring.training.frameworks.torch_.net_kind import ANY_ROWS, Tensors
from shoestring.training.losses.scores import (
    Array,
    mean_metric,
    predictions,
    row_weights,
    total_weight,
    trained_shares,
)


class ScoreLosses:
    """What a `NetKind` needs whose network returns logits, or standardised values for a regression."""

    most_micro_rows = ANY_ROWS

    def __init__(self, encoding: Encoding) -> None:
        self.encoding = encoding
        self.is_regression = encoding.task == "regression"
        self.mean, self.sd = encoding.train_prior if self.is_regression else (0.0, 1.0)

    def targets(self, samples: Samples) -> Tensors:
        """Return the target of each row, and where rows have weights also these, float32[B]: the index of
        the class, int64[B], of two float32[B]; for a regression the standardised value, float32[B]."""
        y_B = samples["target"]
        if self.is_regression:
            target_B = ((y_B - self.mean) / (self.sd or 1.0)).astype(np.float32)
        else:
            target_B = y_B.astype(np.float32 if self.encoding.task == "binary" else np.int64)
        weights_B = row_weights(self.encoding, y_B, samples.weights)
        weights = () if weights_B is None else (torch.from_numpy(weights_B.astype(np.float32)),)
        return torch.from_numpy(target_B), *weights

    def losses(self, out: Tensor, targets: Tensors) -> Tensor:
        """Return the log loss in nats, with the weights of rows; for regression the squared error, or the
        quantile loss, of the standardised target."""
        target_B, *weights = targets
        if self.is_regression:
            losses_B = self._regression_losses(target_B - out[:, 0])
        elif self.encoding.task == "binary":
            losses_B = F.binary_cross_entropy_with_logits(out[:, 0], target_B, reduction="none")
        else:
            losses_B = F.cross_entropy(out, target_B, reduction="none")
        for weights_B in weights:
            losses_B = losses_B * weights_B
        return losses_B.sum()

    def divisor(self, rows: int) -> float:
        """Return the rows, not their weights, which are 1 in the mean over train: gradients are then
        unbiased, however the weights fall into batches."""
        return rows

    def _regression_losses(self, error_B: Tensor) -> Tensor:
        quantile = self.encoding.loss.quantile
        if quantile is None:
            return error_B.square()
        return torch.maximum(quantile * error_B, (quantile - 1) * error_B)

    def predicted(self, out: Tensor, samples: Samples) -> Array:
        """Return the probabilities of each row, or its value in the unit of `y`."""
        return predictions(np.asarray(out.cpu()), self.encoding)

    def weight(self, samples: Samples) -> float:
        return total_weight(len(samples), samples.weights)

    def metric(self, loss: float) -> float:
        """Return the loss as its metric, of a regression in the unit of `y`."""
        return mean_metric(loss, self.encoding) * self.sd


def start_as_prior(output: nn.Linear, encoding: Encoding) -> None:
    """Let the last layer predict the class shares of train, or the mean, of every row."""
    nn.init.zeros_(output.weight)
    nn.init.zeros_(output.bias)
    if encoding.task == "regression":
        return
    shares = trained_shares(encoding).tolist()
    start = (
        [math.log(shares[1] / shares[0])]
        if encoding.task == "binary"
        else [math.log(share) for share in shares]
    )
    with torch.no_grad():
        output.bias.copy_(torch.tensor(start))
