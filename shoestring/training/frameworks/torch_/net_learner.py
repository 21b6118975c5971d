"""The learner of networks: the network, its optimizer and the average of its weights."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterable
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from shoestring.core.errors import StageFailed
from shoestring.data.loading.gathering import GatheredSamples, GatherSeconds, gather_samples
from shoestring.data.loading.samples import Positions, SampleReader, Samples
from shoestring.training.changes import PlanChange
from shoestring.training.contracts import Deferred, Feed, Progress, StepPlan, ValidationRows, Weights
from shoestring.training.curve import StepReadings
from shoestring.training.frameworks.torch_.batch_norm import BatchNorm
from shoestring.training.frameworks.torch_.device import Device
from shoestring.training.frameworks.torch_.gradients.comparison import Comparison
from shoestring.training.frameworks.torch_.gradients.halves import HalfGradients
from shoestring.training.frameworks.torch_.gradients.norm_limit import NormLimit
from shoestring.training.frameworks.torch_.held_rows import HeldRows, HeldValidation, WeighedRows
from shoestring.training.frameworks.torch_.net_kind import (
    ANY_ROWS,
    NetKind,
    NetRows,
    RecomputingNet,
    from_bytes,
    load_weights,
    weight_bytes,
)
from shoestring.training.frameworks.torch_.net_state import MarkedTensors, NetState
from shoestring.training.frameworks.torch_.precision import Precision

if TYPE_CHECKING:
    from shoestring.training.task import TrainingTask

EDGE_SAMPLE_ROWS, TEXT_SAMPLE_ROWS = 50_000, 1_000
# Steps of the first batch after which a weight counts half in the average: long enough to approximate an
# annealed model.
AVERAGE_HALF_LIFE_STEPS = 32


class NetLearner:
    """A network trained by AdamW, and the exponential average of its weights, which is validated on the
    plateau. A `Learner`."""

    by_rounds, measures_noise = False, True

    def __init__(
        self,
        kind: NetKind,
        sample: Samples,
        rows: int,
        device: Device | None = None,
        core_micro_rows: int = ANY_ROWS,
    ) -> None:
        """`sample`: samples of train, for `NetKind.new`. `rows`: the size of an epoch. `device`: None: the
        cores, with seed 0. `core_micro_rows`: the rows of a step for which cores have the memory."""
        self.kind, self.rows, settings = kind, rows, kind.settings
        self.device = device or Device("cpu", 0)
        self.queues_steps = self.device.queues_steps
        self.net = kind.new(sample).to(self.device.torch)
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
        fused = self.device.updates_at_once
        self.optimizer = torch.optim.AdamW(
            groups, lr=settings.learning_rate, betas=(0.9, 0.99), fused=fused, foreach=not fused
        )
        own_rows = ANY_ROWS if self.queues_steps else core_micro_rows
        self.most_micro_rows = self.micro_rows = min(kind.most_micro_rows, own_rows)
        self.precision = Precision(self.device)
        self._changes = list[PlanChange]()
        self._norms = [each for each in self.net.modules() if isinstance(each, BatchNorm)]
        self._norm_limit = NormLimit(self.device.torch)
        self._halves = HalfGradients(self._weights, self.optimizer)
        self._compared = list[Comparison]()
        self._marked, self._marked_at = MarkedTensors(), (0, 0, self._norm_limit.state())
        self._held, self._held_validation = HeldRows(self.device, rows), HeldValidation(self.device)

    @classmethod
    def of_task(cls, task: TrainingTask, kind: NetKind, core_micro_rows: int = ANY_ROWS) -> Self:
        """Return the learner of a training, with all random numbers from its seed."""
        torch.set_num_threads(task.cores)
        torch.manual_seed(task.seed)
        rows = len(task.train)
        others = TEXT_SAMPLE_ROWS if task.encoding.vocabulary else 1
        sample_rows = min(rows, EDGE_SAMPLE_ROWS if task.encoding.features else others)
        sample = task.train.positions(task.first_cursor(), 0, 0, sample_rows)
        return cls(kind, task.train.take(sample), rows, Device(task.device, task.seed), core_micro_rows)

    def gather(self, rows: SampleReader, samples: Positions) -> GatheredSamples:
        began_s = time.perf_counter()
        if (held := self._held.take(samples)) is not None:
            return GatheredSamples(held, GatherSeconds(0.0, 0.0, time.perf_counter() - began_s))
        found = gather_samples(rows, samples, self._as_tensors)
        if not self.queues_steps:
            return found
        began_s = time.perf_counter()
        moved = self.device.rows(found.samples)
        self._held.add(samples, moved)
        return GatheredSamples(moved, found.seconds._replace(transfer=time.perf_counter() - began_s))

    def prepare(self, samples: Samples) -> NetRows:
        """Return samples as rows on the device."""
        return self.device.rows(self._as_tensors(samples))

    def _as_tensors(self, samples: Samples) -> NetRows:
        return NetRows(self.kind.inputs(samples), self.kind.targets(samples))

    def advance(self, plan: StepPlan, feed: Feed) -> Progress:
        rows: NetRows = feed.next_batch(plan.rows).samples
        rate = self.kind.settings.learning_rate * plan.step_rate
        loss = self.step(rows, rate, plan.is_measured, plan.size)
        changes, self._changes = (*self._changes, *self.precision.taken_changes()), []
        return Progress(len(rows), loss, changes)

    def readings(self) -> StepReadings:
        return StepReadings(*self._norm_limit.read(), tuple(each.read() for each in self._compared))

    def step(
        self, rows: NetRows, learning_rate: float, is_measured: bool = False, size: float = 1.0
    ) -> Tensor:
        """Take one step on a batch and return its loss, float64, for which nothing has waited yet; of a
        gradient that is not finite NaN. `is_measured`: its halves are compared, where it has any. `size`: the
        batch as a multiple of the first one."""
        # A row takes as much off the weights, and counts as much in their average, whatever its batch: the
        # rate has grown with the square root of the size.
        decay = self.kind.settings.weight_decay * size / math.sqrt(max(1.0, size))
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.param_groups[0]["weight_decay"] = decay
        self.precision.begin_step(len(rows))
        has_halves = is_measured and len(rows) % 2 == 0 and self.steps > 0
        loss = self._gradients(rows, has_halves)
        if has_halves:
            self._compared.append(self._halves.compared(self.seen, len(rows) // 2, self.steps))
        norm = self._norm_limit.clip(self._weights)
        self.optimizer.step()
        self.steps += 1
        self.seen += len(rows)
        self._update_average(size)
        return torch.where(norm.isfinite(), loss, math.nan).double()

    def _gradients(self, rows: NetRows, has_halves: bool) -> Tensor:
        """Compute the gradients of a batch, in as many parts as the memory of the device makes necessary;
        return its loss. Raises StageFailed where one row does not fit."""
        while True:
            try:
                parts = -(-len(rows) // self.micro_rows)
                return self._gradients_of_parts(rows, parts + (has_halves and parts % 2), has_halves)
            except torch.OutOfMemoryError as error:
                # Its first two sentences; a table of all allocations may follow.
                found = ". ".join(str(error).split(". ")[:2])
            # Outside of `except`, whose traceback holds the tensors of the failed part.
            self.device.release()
            self._changes.append(self._less_memory(len(rows), f"{self.device.torch}: {found}"))

    def _less_memory(self, rows: int, found: str) -> PlanChange:
        """Compute a batch of rows from now on with less memory. Raises StageFailed where one row at a time
        does not fit."""
        before = min(self.micro_rows, rows)
        if before > 1:
            self.micro_rows = before // 2
            return PlanChange("micro-batch", f"{before:,} rows", f"{self.micro_rows:,} rows", found)
        net = self.net
        if not isinstance(net, RecomputingNet) or net.recomputes:
            raise StageFailed(f"one row does not fit into the memory of {found}")
        # Rows take much less now.
        net.recomputes, self.micro_rows = True, self.most_micro_rows
        reason = f"one row does not fit into the memory of {found}"
        return PlanChange("activations", "kept", "recomputed", reason)

    def _gradients_of_parts(self, rows: NetRows, parts: int, has_halves: bool) -> Tensor:
        """Compute the gradients of a batch, which are the sum of those of its parts."""
        self.device.begin_step(self.steps)
        self.optimizer.zero_grad(set_to_none=True)
        for norm in self._norms:
            norm.begin_step(parts, is_first=not self.steps)
        batch = NetRows(self.kind.augmented(rows.inputs, self.seen / self.rows), rows.targets)
        ends = [len(rows) * part // parts for part in range(parts + 1)]
        losses = list[Tensor]()
        for start, stop in pairwise(ends):
            part = batch.part(start, stop) if parts > 1 else batch
            with self.device.autocast(self.precision.is_bf16):
                out = self.net(*part.inputs)
            loss = self.kind.losses(out.float(), part.targets) / self.kind.divisor(len(rows))
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
            if has_halves and len(losses) == parts // 2:
                self._halves.end_first()
        for norm in self._norms:
            norm.end_step()
        return losses[0] if parts == 1 else torch.stack(losses).sum()

    def _update_average(self, size: float) -> None:
        """Add the weights to the average. At first it is the plain mean."""
        keep = min(0.5 ** (size / AVERAGE_HALF_LIFE_STEPS), self.steps / (self.steps + 1))
        add = get_ema_multi_avg_fn(keep)  # type: ignore[no-untyped-call]
        add(self._averages, self._weights, self.steps)

    def loss(self, batches: Iterable[Samples], net: nn.Module) -> float:
        """Return the loss over all samples of the batches in the run's metric, without dropout."""
        return self._mean_loss(map(self._weighed, batches), net)

    def _weighed(self, samples: Samples) -> WeighedRows:
        return WeighedRows(self.prepare(samples), self.kind.weight(samples))

    @torch.no_grad()
    def _mean_loss(self, batches: Iterable[WeighedRows], net: nn.Module) -> float:
        training = net.training
        net.eval()
        total, weights = torch.zeros((), dtype=torch.float64, device=self.device.torch), 0.0
        for rows, weight in batches:
            total += self.kind.losses(net(*rows.inputs), rows.targets)
            weights += weight
        net.train(training)
        return self.metric(float(total) / weights)

    def validate(self, rows: ValidationRows, weights: Weights | bytes) -> float:
        batches = self._held_validation.batches(rows, self.kind.rows_at_once, self._weighed)
        if isinstance(weights, bytes):
            net = copy.deepcopy(self.average)
            load_weights(net, weights)
            return self._mean_loss(batches, net)
        return self._mean_loss(batches, self._net(weights))

    def metric(self, loss: float) -> float:
        return self.kind.metric(loss)

    def export(self, weights: Weights) -> Deferred:
        # A copy of the tensors: the next step changes them in place.
        return Deferred(partial(bytes, weight_bytes(self._net(weights))))

    def _net(self, weights: Weights) -> nn.Module:
        return self.average if weights == "averaged" else self.net

    def state(self) -> NetState:
        # The next step changes the tensors in place.
        return NetState(copy.deepcopy(self._content()))

    def _content(self) -> dict[str, Any]:
        return {
            "net": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": self.average.state_dict(),
            "steps": self.steps,
            "seen": self.seen,
            "norms": self._norm_limit.state(),
        }

    def restore(self, state: Deferred) -> None:
        saved = state.content() if isinstance(state, NetState) else from_bytes(state.data)
        self.net.load_state_dict(saved["net"])
        # The optimizer keeps the tensors that it is given.
        self.optimizer.load_state_dict(copy.deepcopy(saved["optimizer"]))
        self.average.load_state_dict(saved["average"])
        self.steps = saved["steps"]
        # A checkpoint of an earlier version has not counted them.
        self.seen = saved.get("seen", self.steps * self.batch_rows)
        if "norms" in saved:
            self._norm_limit.restore(saved["norms"])

    def mark(self) -> None:
        self._marked.mark(self._changing())
        self._norm_limit.mark()
        self._compared = []
        self._marked_at = self.steps, self.seen, self._norm_limit.state()

    def go_back(self) -> None:
        self.steps, self.seen, norms = self._marked_at
        self._norm_limit.restore(norms)
        if not self.steps:
            self.optimizer.state.clear()
        self._marked.go_back(self._changing())
        # Modules read from their weights whether they are new.
        self.net.load_state_dict(self.net.state_dict())

    def _changing(self) -> list[Tensor]:
        """Return the tensors that a step changes."""
        of_optimizer = (tensor for state in self.optimizer.state.values() for tensor in state.values())
        return [*self._weights, *self._averages, *of_optimizer]
