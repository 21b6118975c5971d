"""The network, its optimizer and the average of its weights: what a step changes and a checkpoint holds."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

from shoestring.core.datasets import Encoding
from shoestring.data.loading.samples import SampleReader, Samples
from shoestring.data.loading.shuffle import sample_indices
from shoestring.data.recipe import TrainSettings
from shoestring.training.torch_.net import NetInputs, TableNet, compute_loss, make_net
from shoestring.training.torch_.text_net import TextNet, rows_at_once

# Epochs in which the weight of an old value in the average halves: long enough to approximate an annealed
# model.
AVERAGE_HALF_LIFE_EPOCHS = 0.1
EVALUATION_ROWS = 8192
MAX_GRADIENT_NORM = 1.0
Net = TableNet | TextNet


def validation_batches(
    rows: SampleReader, seed: int, share: float, batch_rows: int = EVALUATION_ROWS
) -> Iterator[Samples]:
    """Yield batches of all rows, or of a share of them that is always the same."""
    if share == 1:
        yield from rows.scan(batch_rows)
        return
    chosen = np.sort(sample_indices(len(rows), seed, 0, 0, max(1, int(share * len(rows)))))
    for start in range(0, len(chosen), batch_rows):
        yield rows.take(chosen[start : start + batch_rows])


class Learner:
    """A network trained by AdamW, and the exponential average of its weights, which is validated on the
    plateau."""

    def __init__(self, encoding: Encoding, settings: TrainSettings, sample: Samples, rows: int) -> None:
        """`sample`: samples whose quantiles place the bins of the numeric features. `rows`: the size of
        an epoch."""
        self.encoding, self.settings, self.rows = encoding, settings, rows
        self.inputs = NetInputs(encoding)
        self.net = make_net(encoding, settings, sample)
        self.evaluation_rows = rows_at_once(encoding, EVALUATION_ROWS)
        self.average = copy.deepcopy(self.net).requires_grad_(False).eval()
        self.steps = 0
        self._weights, self._averages = [*self.net.parameters()], [*self.average.parameters()]
        decayed = [weight for weight in self._weights if weight.ndim == 2]
        other = [weight for weight in self._weights if weight.ndim != 2]
        groups = [
            {"params": decayed, "weight_decay": settings.weight_decay},
            {"params": other, "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate, betas=(0.9, 0.99), fused=True)

    def step(self, samples: Samples, learning_rate: float) -> float:
        """Take one step on a batch and return its loss. Gradients are clipped to a norm of
        `MAX_GRADIENT_NORM`."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        out_BK = self.net(*self.inputs.features(samples))
        loss = compute_loss(out_BK, self.inputs.target(samples), self.encoding.task)
        if self.encoding.vocabulary is not None:
            loss = loss / self.inputs.weight(samples)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self._weights, MAX_GRADIENT_NORM)
        self.optimizer.step()
        self.steps += 1
        self._update_average(len(samples))
        return float(loss.detach())

    def _update_average(self, batch_rows: int) -> None:
        """Add the weights to the average. It decays by samples, not steps; at first it is the plain mean."""
        keep = min(
            0.5 ** (batch_rows / (AVERAGE_HALF_LIFE_EPOCHS * self.rows)), self.steps / (self.steps + 1)
        )
        add = get_ema_multi_avg_fn(keep)  # type: ignore[no-untyped-call]
        add(self._averages, self._weights, self.steps)

    @torch.no_grad()
    def loss(self, batches: Iterable[Samples], net: Net) -> float:
        """Return the mean loss over all samples of the batches, without dropout.

        Log loss in nats; for regression the root mean squared error, in the unit of `y`; of texts the bits
        per byte.
        """
        training = net.training
        net.eval()
        total, weight = 0.0, 0
        for samples in batches:
            out_BK = net(*self.inputs.features(samples))
            total += float(compute_loss(out_BK, self.inputs.target(samples), self.encoding.task, "sum"))
            weight += self.inputs.weight(samples)
        net.train(training)
        return self.to_metric(total / weight)

    def to_metric(self, loss: float) -> float:
        """Convert a mean of `compute_loss` to the run's metric: nats, for regression its root in the unit
        of `y`, of texts bits."""
        if self.encoding.vocabulary is not None:
            return loss / math.log(2)
        return math.sqrt(loss) * self.inputs.sd if self.inputs.is_regression else loss

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
    """Return a deep copy, which later steps do not change."""
    return copy.deepcopy(state)


def copy_weights(net: Net) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in net.state_dict().items()}
