"""`huggingface_ranks_script.py SECONDS FOLDER`: one of two processes that train a model with Trainer.

The second one is slower, and its own clock would end it at another step.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from clocks import StillClock
from huggingface_trainings import BATCH, NumberedRows, TimedModel
from transformers import Trainer, TrainerCallback, TrainingArguments

from shoestring.budget import Budget, huggingface_callback


class RankLog(TrainerCallback):  # type: ignore[misc,unused-ignore]
    def __init__(self, rank: int) -> None:
        self.rank, self.rates = rank, list[float]()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.rates.append(round(kwargs["optimizer"].param_groups[0]["lr"], 12))
        time.sleep(0.005 * (1 + self.rank))


def main(seconds: float, folder: str) -> None:
    rank = int(os.environ["RANK"])
    log = RankLog(rank)
    arguments = TrainingArguments(
        output_dir=f"{folder}/out",
        per_device_train_batch_size=BATCH,
        num_train_epochs=1000,
        learning_rate=0.1,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    budget = Budget(seconds=seconds if rank == 0 else 10 * seconds, checkpoints=f"{folder}/kept")
    trainer = Trainer(
        TimedModel(StillClock()),
        arguments,
        train_dataset=NumberedRows(),
        callbacks=[huggingface_callback(budget), log],
    )
    trainer.train(resume_from_checkpoint=budget.checkpoint)
    name = budget.checkpoint.name if budget.checkpoint else "none"
    last = log.rates[-1] if log.rates else 0.0
    print("found", trainer.state.global_step, len(log.rates), hash(tuple(log.rates)), last, name, flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2])
