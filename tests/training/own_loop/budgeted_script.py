"""`budgeted_script.py SECONDS FOLDER LOG [WORKERS]`: a training script that writes what it sees to a file.

Each line of LOG is the epoch, the rate and the rows of a step. The processes end as those of a script do.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from shoestring.budget import Budget, budgeted

STEP_S = 0.01


def main(seconds: float, folder: str, log: Path, workers: int) -> None:
    torch.manual_seed(time.monotonic_ns())
    loader = DataLoader(
        TensorDataset(torch.arange(64.0).reshape(64, 1)), batch_size=4, shuffle=True, num_workers=workers
    )
    model = nn.Linear(1, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    budget = Budget(seconds=seconds, checkpoints=folder)
    with log.open("a") as file:
        for epoch in budget.epochs():
            for (batch,) in budgeted(loader, model, optimizer, budget):
                optimizer.zero_grad()
                model(batch / 64).pow(2).mean().backward()
                optimizer.step()
                rows = " ".join(str(int(each)) for each in batch.flatten())
                print(epoch, optimizer.param_groups[0]["lr"], rows, file=file, flush=True)
                time.sleep(STEP_S)
            budget.report(loss=0.5)


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), int((sys.argv[4:] or ["0"])[0]))
