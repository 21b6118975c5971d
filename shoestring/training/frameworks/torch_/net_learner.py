"""The learner of networks: the network, its optimizer and the average of its weights."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Self

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from shoestring.data.loading.samples import Samples
from shoestring.training.contracts import Deferred, Feed, Progress, StepPlan, ValidationRows, Weights
from shoestring.training.frameworks.torch_.net_kind import (
    NetKind,
    from_bytes,
    load_weights,
    to_bytes,
    weight_bytes,
)

if TYPE_CHECKING:
    from shoestring.training.task import TrainingTask

EDGE_SAMPLE_ROWS = 50_000
# Steps after which a weight counts half in the average: long enough to approximate an annealed model.
AVERAGE_HALF_LIFE_STEPS = 32
MAX_GRADIENT_NORM = 1.0


class NetLearner:
    """A network trained by AdamW, and the exponential average of its weights, which is validated on the
    plateau. A `Learner`."""

    by_rounds = False

    def __init__(self, kind: NetKind, sample: Samples, rows: int) -> None:
        """`sample`: samples of train, for `NetKind.new`. `rows`: the size of an epoch."""
        self.kind, self.rows, settings = kind, rows, kind.settings
        self.net = kind.new(sample)
        self.batch_rows = settings.batch_rows
        self.average = copy.deepcopy(self.net).requires_grad_(False).eval()
        self.steps = self.seen = 0
        self._weights, self._averages = [*self.net.parameters()], [*self.average.parameters()]
        decayed = [weight for weight in self._weights if weight.ndim == 2]
        other = [weight for weight in self._weights if weight.ndim != 2]
        groups = [
            {"params": decayed, "weight_decay": settings.weight_decay},
            {"params": other, "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate, betas=(0.9, 0.99), fused=True)

    @classmethod
    def of_task(cls, task: TrainingTask, kind: NetKind) -> Self:
        """Return the learner of a training, with all random numbers from its seed."""
        torch.set_num_threads(task.cores)
        torch.manual_seed(task.seed)
        rows = len(task.train)
        sample_rows = min(rows, EDGE_SAMPLE_ROWS if task.encoding.features else 1)
        sample = task.train.positions(task.first_cursor(), 0, 0, sample_rows)
        return cls(kind, task.train.take(sample), rows)

    def advance(self, plan: StepPlan, feed: Feed) -> Progress:
        samples = feed.next_batch(plan.rows).samples
        return Progress(len(samples), self.step(samples, self.kind.settings.learning_rate * plan.rate))

    def step(self, samples: Samples, learning_rate: float) -> float:
        """Take one step on a batch and return its loss. Gradients are clipped to a norm of
        `MAX_GRADIENT_NORM`."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        inputs = self.kind.train_inputs(samples, self.seen / self.rows)
        loss = self.kind.losses(self.net(*inputs), samples, "mean")
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self._weights, MAX_GRADIENT_NORM)
        self.optimizer.step()
        self.steps += 1
        self.seen += len(samples)
        self._update_average()
        return float(loss.detach())

    def _update_average(self) -> None:
        """Add the weights to the average. At first it is the plain mean."""
        keep = min(0.5 ** (1 / AVERAGE_HALF_LIFE_STEPS), self.steps / (self.steps + 1))
        add = get_ema_multi_avg_fn(keep)  # type: ignore[no-untyped-call]
        add(self._averages, self._weights, self.steps)

    @torch.no_grad()
    def loss(self, batches: Iterable[Samples], net: nn.Module) -> float:
        """Return the loss over all samples of the batches in the run's metric, without dropout."""
        training = net.training
        net.eval()
        total, weight = 0.0, 0.0
        for samples in batches:
            total += float(self.kind.losses(net(*self.kind.inputs(samples)), samples, "sum"))
            weight += self.kind.weight(samples)
        net.train(training)
        return self.metric(total / weight)

    def validate(self, rows: ValidationRows, weights: Weights | bytes) -> float:
        batches = rows.batches(self.kind.rows_at_once)
        if isinstance(weights, bytes):
            net = copy.deepcopy(self.average)
            load_weights(net, weights)
            return self.loss(batches, net)
        return self.loss(batches, self._net(weights))

    def metric(self, loss: float) -> float:
        return self.kind.metric(loss)

    def export(self, weights: Weights) -> Deferred:
        # A copy of the tensors: the next step changes them in place.
        return Deferred(partial(bytes, weight_bytes(self._net(weights))))

    def _net(self, weights: Weights) -> nn.Module:
        return self.average if weights == "averaged" else self.net

    def state(self) -> Deferred:
        state = {
            "net": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": self.average.state_dict(),
            "steps": self.steps,
            "seen": self.seen,
            "random_state": torch.get_rng_state(),
        }
        return Deferred(partial(bytes, to_bytes(state)))

    def restore(self, state: bytes) -> None:
        saved = from_bytes(state)
        self.net.load_state_dict(saved["net"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.average.load_state_dict(saved["average"])
        self.steps = saved["steps"]
        # A checkpoint of an earlier version has not counted them.
        self.seen = saved.get("seen", self.steps * self.batch_rows)
        torch.set_rng_state(saved["random_state"])
