"""A small training script in PyTorch, on a clock that only its steps advance."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from clocks import StillClock
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset

from shoestring.budget import Budget, budgeted
from shoestring.training.own_loop.checkpoints.saved_state import checkpoint_files

STEP_S, PEAK = 1.0, 0.5


class CountedRows(Dataset[Tensor]):
    """Rows of a number each, its index. `loaded`: the indices that were read, in order."""

    def __init__(self, rows: int) -> None:
        self.rows, self.loaded = rows, list[int]()

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> Tensor:
        self.loaded.append(index)
        return torch.tensor([float(index)])


@dataclass
class SmallTraining:
    """The objects of a script, and a log of its steps. `steps_s`: how long each step takes, by its number."""

    clock: StillClock = field(default_factory=StillClock)
    rows: CountedRows = field(default_factory=lambda: CountedRows(40))
    model: nn.Module = field(default_factory=lambda: seeded(lambda: nn.Linear(1, 1)))
    rates: list[float] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    seen: list[list[int]] = field(default_factory=list)
    validation_s: float = 0.0
    step_s: Callable[[int], float] = lambda step: STEP_S
    optimizer: Optimizer | None = None
    loader: Any = None
    after_step: Callable[[int], None] = lambda step: None

    def __post_init__(self) -> None:
        self.optimizer = self.optimizer or torch.optim.SGD(self.model.parameters(), lr=PEAK, momentum=0.9)
        if self.loader is None:
            self.loader = DataLoader(self.rows, batch_size=4, shuffle=True)

    def run(self, budget: Budget, epochs: int | None = None, steps: int | None = None) -> None:
        """The script: five of its lines are Shoestring's."""
        assert self.optimizer is not None
        for epoch in budget.epochs(epochs):
            self.epochs.append(epoch)
            self.seen.append([])
            for batch in budgeted(self.loader, self.model, self.optimizer, budget, steps=steps):
                self.seen[-1] += batch.flatten().int().tolist()
                self.optimizer.zero_grad()
                # Dropout draws from PyTorch's generator, which a checkpoint has to restore.
                loss = self.model(nn.functional.dropout(batch / 40)).pow(2).mean()
                loss.backward()
                self.optimizer.step()
                self.rates.append(float(self.optimizer.param_groups[0]["lr"]))
                self.clock.sleep(self.step_s(len(self.rates)))
                self.after_step(len(self.rates))
            self.clock.sleep(self.validation_s)
            budget.report(loss=1 / (1 + budget.loop.position.batches))

    def weights(self) -> list[float]:
        return [
            float(each) for each in torch.cat([each.detach().flatten() for each in self.model.parameters()])
        ]


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(7)
    return make()


def survives_sigterm() -> bool:
    """Return whether this process survives a SIGTERM, which it gets unless that would end it."""
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        return False
    os.kill(os.getpid(), signal.SIGTERM)
    return True


class Killed(Exception):
    """The attempt ends here, as by SIGKILL."""


def kill_at(step: int) -> Callable[[int], None]:
    def check(done: int) -> None:
        if done == step:
            raise Killed

    return check


def budget_of(training: SmallTraining, seconds: float, folder: Path | None = None) -> Budget:
    """A budget on the clock of a training, which saves often."""
    made = Budget(seconds=seconds, checkpoints=folder, monotonic_s=training.clock.monotonic_s)
    made.loop.checkpoint_interval_s = 3.0
    return made


def saved_steps(folder: Path) -> int:
    """The steps of the newest checkpoint."""
    return int(files[0].stem.split("-")[1]) if (files := checkpoint_files(folder)) else 0
