"""`accelerate_script.py SECONDS`: a training as accelerate's examples write it, under `accelerate launch`."""

from __future__ import annotations

import sys

import torch
from accelerate import Accelerator
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset

from shoestring.budget import Budget, budgeted


def main(seconds: float) -> None:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    torch.manual_seed(3)
    x = torch.randn(640, 8)
    rows = TensorDataset(x, x[:, :1] * 2)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    scheduler = OneCycleLR(optimizer, 0.05, total_steps=60)
    model, optimizer, loader, held_out, scheduler = accelerator.prepare(
        model,
        optimizer,
        DataLoader(rows, batch_size=16, shuffle=True, drop_last=True),
        DataLoader(TensorDataset(x[:50], x[:50, :1] * 2), batch_size=16),
        scheduler,
    )
    budget = Budget.here(seconds=seconds, checkpoints="checkpoints")
    budget.keep(scheduler)
    steps, epochs, loss = 0, 0, float("inf")
    for _ in budget.epochs():
        epochs += 1
        model.train()
        for inputs, targets in budgeted(loader, model, optimizer, budget):
            with accelerator.accumulate(model):
                accelerator.backward(nn.functional.mse_loss(model(inputs), targets))
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            steps += 1
        model.eval()
        with torch.no_grad():
            found = [accelerator.gather_for_metrics((model(inputs), targets)) for inputs, targets in held_out]
        out, wanted = (torch.cat(each) for each in zip(*found, strict=True))
        assert len(out) == 50
        loss = float(nn.functional.mse_loss(out, wanted))
        budget.report(loss=loss)
    weight = float(next(model.parameters()).detach().sum())
    momentum, _ = optimizer.param_groups[0]["betas"]
    found = f"{steps} {epochs} {weight:.9f} {loss:.9f} {momentum:.4f}"
    # In one write: that of print() may be two, with another process's between them.
    sys.stdout.write(f"found {accelerator.process_index} {found}\n")
    accelerator.end_training()


if __name__ == "__main__":
    main(float(sys.argv[1]))
