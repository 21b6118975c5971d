"""The learner of networks: the network, its optimizer and the average of its weights."""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self

import torch
from torch.optim.swa_utils import get_ema_multi_avg_fn

from shoestring.core.datasets import Encoding
from shoestring.data.loading.samples import Samples
from shoestring.training.contracts import Feed, Progress, StepPlan, Weights
from shoestring.training.families.net_settings import NetSettings
from shoestring.training.torch_.net import NetInputs, TableNet, compute_loss, make_net
from shoestring.training.torch_.text_net import TextNet, rows_at_once

if TYPE_CHECKING:
    from shoestring.training.task import TrainingTask

EDGE_SAMPLE_ROWS = 50_000
# Epochs in which the weight of an old value in the average halves: long enough to approximate an annealed
# model.
AVERAGE_HALF_LIFE_EPOCHS = 0.1
EVALUATION_ROWS = 8192
MAX_GRADIENT_NORM = 1.0
Net = TableNet | TextNet


class NetLearner:
    """A network trained by AdamW, and the exponential average of its weights, which is validated on the
    plateau. A `Learner`."""

    def __init__(self, encoding: Encoding, settings: NetSettings, sample: Samples, rows: int) -> None:
        """`sample`: samples whose quantiles place the bins of the numeric features. `rows`: the size of
        an epoch."""
        self.encoding, self.settings, self.rows = encoding, settings, rows
        self.inputs = NetInputs(encoding)
        self.net = make_net(encoding, settings, sample)
        self.batch_rows = settings.batch_rows
        self.validation_rows = rows_at_once(encoding, EVALUATION_ROWS)
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

    @classmethod
    def of_task(cls, task: TrainingTask) -> Self:
        """Return the learner of a training, with all random numbers from its seed."""
        torch.set_num_threads(task.cores)
        torch.manual_seed(task.seed)
        rows = len(task.train)
        sample_rows = min(rows, EDGE_SAMPLE_ROWS if task.encoding.features else 1)
        sample = task.train.positions(task.first_cursor(), 0, 0, sample_rows)
        assert isinstance(task.settings, NetSettings), task.settings.family
        return cls(task.encoding, task.settings, task.train.take(sample), rows)

    def advance(self, plan: StepPlan, feed: Feed) -> Progress:
        samples = feed.next_batch(plan.rows).samples
        return Progress(len(samples), self.step(samples, self.settings.learning_rate * plan.rate))

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
        return self.metric(total / weight)

    def validate(self, batches: Iterable[Samples], weights: Weights | bytes) -> float:
        if isinstance(weights, bytes):
            net = copy.deepcopy(self.average)
            net.load_state_dict(from_bytes(weights))
            return self.loss(batches, net)
        return self.loss(batches, self._net(weights))

    def metric(self, loss: float) -> float:
        """Convert a mean of `compute_loss` to the run's metric: nats, for regression its root in the unit
        of `y`, of texts bits."""
        if self.encoding.vocabulary is not None:
            return loss / math.log(2)
        return math.sqrt(loss) * self.inputs.sd if self.inputs.is_regression else loss

    def export(self, weights: Weights) -> bytes:
        return to_bytes(self._net(weights).state_dict())

    def _net(self, weights: Weights) -> Net:
        return self.average if weights == "averaged" else self.net

    def state(self) -> bytes:
        return to_bytes(
            {
                "net": self.net.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "average": self.average.state_dict(),
                "steps": self.steps,
                "random_state": torch.get_rng_state(),
            }
        )

    def restore(self, state: bytes) -> None:
        saved = from_bytes(state)
        self.net.load_state_dict(saved["net"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.average.load_state_dict(saved["average"])
        self.steps = saved["steps"]
        torch.set_rng_state(saved["random_state"])


def to_bytes(state: dict[str, Any]) -> bytes:
    """Return tensors and plain values as `from_bytes` reads them."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def from_bytes(data: bytes) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(io.BytesIO(data), weights_only=True)
    return state
