"""A small training with Hugging Face's Trainer, on a clock that only its batches advance."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from clocks import StillClock
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

from shoestring.budget import Budget, huggingface_callback

PEAK, ROWS, BATCH = 0.1, 64, 4


class NumberedRows(Dataset[dict[str, Tensor]]):
    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"x": torch.tensor([index / ROWS]), "labels": torch.tensor([0.0])}


class TimedModel(nn.Module):
    """A linear model, whose batches take a second in a training and `validation_s` in a validation."""

    def __init__(
        self, clock: StillClock, validation_s: float = 0.0, width: int = 1, lowest_loss: float = 0.0
    ) -> None:
        super().__init__()
        self.linear = nn.Linear(1, width)
        self.clock, self.validation_s, self.lowest_loss = clock, validation_s, lowest_loss

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        self.clock.sleep(1.0 if self.training else self.validation_s)
        found = self.linear(x)
        return {"loss": (found - labels).pow(2).mean().clamp(min=self.lowest_loss), "logits": found}


class StepLog(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """The rate of each step, and the clock at each evaluation and each checkpoint."""

    def __init__(self, clock: StillClock) -> None:
        self.clock, self.rates = clock, list[float]()
        self.evaluated_s, self.saved_at, self.stop_at = list[float](), list[int](), 0

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.rates.append(kwargs["optimizer"].param_groups[0]["lr"])

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.evaluated_s.append(self.clock.at_s)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.saved_at.append(state.global_step)


@dataclass
class SmallTrainer:
    folder: Path
    clock: StillClock = field(default_factory=StillClock)
    validation_s: float = 0.0
    width: int = 1
    lowest_loss: float = 0.0
    arguments: dict[str, Any] = field(default_factory=dict)
    callbacks: list[TrainerCallback] = field(default_factory=list)
    resumes: bool = False
    optimizers: tuple[Any, Any] = (None, None)

    def __post_init__(self) -> None:
        self.log = StepLog(self.clock)

    def run(self, budget: Budget) -> Trainer:
        torch.manual_seed(7)
        named: dict[str, Any] = {
            "output_dir": str(self.folder / "out"),
            "per_device_train_batch_size": BATCH,
            "per_device_eval_batch_size": ROWS,
            "learning_rate": PEAK,
            "num_train_epochs": 1000,
            "report_to": [],
            "disable_tqdm": True,
            "logging_steps": 500,
            "use_cpu": True,
        }
        trainer = Trainer(
            model=TimedModel(self.clock, self.validation_s, self.width, self.lowest_loss),
            args=TrainingArguments(**named | self.arguments),
            train_dataset=NumberedRows(),
            eval_dataset=NumberedRows(),
            callbacks=[huggingface_callback(budget), self.log, *self.callbacks],
            optimizers=self.optimizers,
        )
        trainer.train(resume_from_checkpoint=budget.checkpoint if self.resumes else None)
        return trainer
