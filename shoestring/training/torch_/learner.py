"""The net, its optimiser, and the average of its weights: what a step changes and a checkpoint holds."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shoestring.core.datasets import Encoding
from shoestring.data.formats.readers import EncodedRows
from shoestring.data.loading.shuffle import sample_indices
from shoestring.data.recipe import TrainSettings
from shoestring.training.torch_.net import Array, NetInputs, TableNet, compute_loss, quantile_edges

# Epochs over which a weight's share in the average halves: long enough to stand in for the end of an annealing.
AVERAGE_HALF_LIFE_EPOCHS = 0.1
EVALUATION_ROWS = 8192
MAX_GRADIENT_NORM = 1.0


def validation_batches(rows: EncodedRows, seed: int, share: float) -> Iterator[Array]:
    """Batches of all rows, or of a share of them, always the same ones."""
    if share == 1:
        yield from rows.scan(EVALUATION_ROWS)
        return
    chosen = np.sort(sample_indices(len(rows), seed, 0, 0, max(1, int(share * len(rows)))))
    for first in range(0, len(chosen), EVALUATION_ROWS):
        yield rows.take(chosen[first : first + EVALUATION_ROWS])


class Learner:
    """Weights that are trained by AdamW, and their exponential average, which is what validation looks at on the plateau."""

    def __init__(self, encoding: Encoding, settings: TrainSettings, sample: Array, rows: int) -> None:
        """`sample`: records that say where the pieces of each number's encoding lie. `rows`: an epoch."""
        self.encoding, self.settings, self.rows = encoding, settings, rows
        self.columns = NetInputs(encoding)
        _, numbers_RN = self.columns.inputs(sample)
        self.net = TableNet(encoding, settings, quantile_edges(numbers_RN.numpy(), settings.bins))
        self.average = copy.deepcopy(self.net).requires_grad_(False).eval()
        self.steps = 0
        decayed = [weight for weight in self.net.parameters() if weight.ndim == 2]
        plain = [weight for weight in self.net.parameters() if weight.ndim != 2]
        groups = [
            {"params": decayed, "weight_decay": settings.weight_decay},
            {"params": plain, "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate, betas=(0.9, 0.99))

    def step(self, records: Array, learning_rate: float) -> float:
        """One step on a batch; returns its loss. A gradient longer than `LARGEST_NORM` is cut to it."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        out_BK = self.net(*self.columns.inputs(records))
        loss = compute_loss(out_BK, self.columns.target(records), self.encoding.task)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), MAX_GRADIENT_NORM)
        self.optimizer.step()
        self.steps += 1
        self._fold_in(len(records))
        return float(loss.detach())

    def _fold_in(self, batch_rows: int) -> None:
        """The average forgets by samples, not steps; at first it is the plain mean of what there is."""
        keep = min(
            0.5 ** (batch_rows / (AVERAGE_HALF_LIFE_EPOCHS * self.rows)), self.steps / (self.steps + 1)
        )
        for average, weight in zip(self.average.parameters(), self.net.parameters(), strict=True):
            average.lerp_(weight.detach(), 1 - keep)

    @torch.no_grad()
    def loss(self, batches: Iterable[Array], net: TableNet) -> float:
        """Mean loss over all records of the batches, without dropout: nats, or the root mean squared error in the unit of `y`."""
        training = net.training
        net.eval()
        total, rows = 0.0, 0
        for records in batches:
            total += float(
                compute_loss(
                    net(*self.columns.inputs(records)),
                    self.columns.target(records),
                    self.encoding.task,
                    "sum",
                )
            )
            rows += len(records)
        net.train(training)
        return self.to_metric(total / rows)

    def to_metric(self, loss: float) -> float:
        """A mean of what `loss_of` gives, in the metric: nats as they are; a squared error as its root, in the unit of `y`."""
        return math.sqrt(loss) * self.columns.sd if self.columns.is_regression else loss

    def state(self) -> dict[str, Any]:
        return {
            "net": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": self.average.state_dict(),
            "steps": self.steps,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.average.load_state_dict(state["average"])
        self.steps = state["steps"]


def copy_state(state: dict[str, Any]) -> dict[str, Any]:
    """A copy that later steps do not touch."""
    return copy.deepcopy(state)


def copy_weights(net: TableNet) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in net.state_dict().items()}
