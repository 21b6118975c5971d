"""A small training with Lightning, on a clock that only its batches advance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning
import torch
from clocks import StillClock
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from shoestring.budget import Budget, lightning_callback

PEAK, ROWS, BATCH = 0.1, 64, 4


class TimedModule(lightning.LightningModule):  # type: ignore[misc,unused-ignore]
    """A linear model. A batch takes a second in a training, and `validation_s` in a validation."""

    def __init__(self, clock: StillClock, validation_s: float = 0.0, width: int = 1) -> None:
        super().__init__()
        self.linear = nn.Linear(1, width)
        self.clock, self.validation_s = clock, validation_s
        self.rates, self.validated_s = list[float](), list[float]()
        self.after_batch: Callable[[int], None] = lambda batches: None
        self.has_scheduler = False

    def loss(self, batch: list[Tensor]) -> Tensor:
        found: Tensor = self.linear(batch[0]).pow(2).mean()
        return found

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        self.clock.sleep(1.0)
        return self.loss(batch)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.rates.append(self.trainer.optimizers[0].param_groups[0]["lr"])
        self.after_batch(len(self.rates))

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.clock.sleep(self.validation_s)
        self.log("val_loss", self.loss(batch))

    def on_validation_end(self) -> None:
        self.validated_s.append(self.clock.at_s)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=PEAK)
        if not self.has_scheduler:
            return optimizer
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


class WithAdam(TimedModule):
    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=PEAK)


class TwoOptimizers(TimedModule):
    """Manual optimisation: one optimizer steps at each batch, the other at every second."""

    def __init__(self, clock: StillClock) -> None:
        super().__init__(clock)
        self.automatic_optimization = False
        self.other, self.other_rates = nn.Linear(1, 1), list[float]()

    def training_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.clock.sleep(1.0)
        first, second = self.optimizers()
        for optimizer, model in ((first, self.linear), (second, self.other)):
            if optimizer is second and batch_idx % 2:
                continue
            optimizer.zero_grad()
            self.manual_backward(model(batch[0]).pow(2).mean())
            optimizer.step()
        self.other_rates.append(second.param_groups[0]["lr"])

    def configure_optimizers(self) -> Any:
        return [
            torch.optim.SGD(self.linear.parameters(), lr=PEAK),
            torch.optim.Adam(self.other.parameters(), lr=PEAK / 10),
        ]


def loader(rows: int = ROWS, batch: int = BATCH) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(rows).reshape(rows, 1) / rows), batch_size=batch)


@dataclass
class LightningTraining:
    folder: Path
    clock: StillClock = field(default_factory=StillClock)
    module: TimedModule | None = None
    validates: bool = False
    arguments: dict[str, Any] = field(default_factory=dict)
    resumes: bool = False
    rows: DataLoader[Any] | None = None

    @property
    def made(self) -> TimedModule:
        if self.module is None:
            torch.manual_seed(7)
            self.module = TimedModule(self.clock)
        return self.module

    def run(self, budget: Budget) -> lightning.Trainer:
        named: dict[str, Any] = {
            "max_epochs": 1000,
            "accelerator": "cpu",
            "devices": 1,
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "num_sanity_val_steps": 0,
            "default_root_dir": self.folder,
        }
        trainer = lightning.Trainer(**named | self.arguments, callbacks=[lightning_callback(budget)])
        held_out = loader(ROWS, ROWS) if self.validates else None
        rows = loader() if self.rows is None else self.rows
        trainer.fit(self.made, rows, held_out, ckpt_path=budget.checkpoint if self.resumes else None)
        return trainer
