"""What the network for tables learns: its first weights and its loss.

Shape suffixes: B rows of a batch; N numeric features; P bins of a numeric feature; K outputs; R rows of a
sample.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from shoestring.data.loading.samples import Samples
from shoestring.training.families.table_net.predictor import TableNet, TableNetModel
from shoestring.training.frameworks.torch_.net_kind import Array
from shoestring.training.losses.scores import mean_metric, row_weights


class TableNetKind(TableNetModel):
    """The network for the tables of one data set. A `NetKind`."""

    def new(self, sample: Samples) -> TableNet:
        """Return the untrained network. The quantiles of the sample place the bins of the numbers."""
        return TableNet(self.encoding, self.settings, quantile_edges(sample["number"], self.settings.bins))

    def losses(self, out: Tensor, samples: Samples, reduction: str) -> Tensor:
        """Return the log loss in nats, with the weights of rows; for regression the squared error, or the
        quantile loss, of the standardised target."""
        y_B = samples["target"]
        if self.is_regression:
            losses_B = self._regression_losses(out[:, 0], y_B)
        else:
            class_B = torch.from_numpy(y_B.astype(np.int64))
            losses_B = (
                F.binary_cross_entropy_with_logits(out[:, 0], class_B.float(), reduction="none")
                if self.encoding.task == "binary"
                else F.cross_entropy(out, class_B, reduction="none")
            )
        weights_B = row_weights(self.encoding, y_B)
        if weights_B is not None:
            losses_B = losses_B * torch.from_numpy(weights_B.astype(np.float32))
        return losses_B.mean() if reduction == "mean" else losses_B.sum()

    def _regression_losses(self, out_B: Tensor, y_B: Array) -> Tensor:
        error_B = torch.from_numpy(((y_B - self.mean) / (self.sd or 1.0)).astype(np.float32)) - out_B
        quantile = self.encoding.loss.quantile
        if quantile is None:
            return error_B.square()
        return torch.maximum(quantile * error_B, (quantile - 1) * error_B)

    def weight(self, samples: Samples) -> int:
        return len(samples)

    def metric(self, loss: float) -> float:
        """Return the loss as its metric, of a regression in the unit of `y`."""
        return mean_metric(loss, self.encoding) * self.sd


def quantile_edges(numbers_RN: Array, bins: int) -> Tensor:
    """Return the strictly increasing bin edges, at quantiles of a sample of rows: float32[N, bins + 1]."""
    rows: list[Array] = []
    for column in numbers_RN.T:
        edges = np.unique(np.quantile(column, np.linspace(0, 1, bins + 1)).astype(np.float32))
        missing = bins + 1 - len(edges)
        rows.append(np.concatenate([edges, edges[-1] + 1.0 + np.arange(missing)]))
    return torch.tensor(np.array(rows).reshape(len(rows), bins + 1), dtype=torch.float32)
