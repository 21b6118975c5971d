"""`ranks_script.py RANK RENDEZVOUS SECONDS FOLDER`: one of two processes that train a model together.

The second one is slower, its own clock would end it at another step, and its losses alone improve.
"""

from __future__ import annotations

import atexit
import sys
import time
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def gloo_threads() -> int:
    names = [each.joinpath("comm").read_text() for each in Path("/proc/self/task").iterdir()]
    return names.count("pt_gloo_runloop\n")


# Called after what the import of shoestring.budget registers.
atexit.register(lambda: print(gloo_threads(), flush=True))

from shoestring.budget import Budget, budgeted  # noqa: E402


def main(rank: int, rendezvous: str, seconds: float, folder: str) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    torch.manual_seed(rank)
    data = TensorDataset(torch.arange(64.0).reshape(64, 1) / 64)
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(data, 2, rank)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    model = DistributedDataParallel(nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    budget = Budget(seconds=seconds if rank == 0 else 10 * seconds, checkpoints=folder)
    rates, epochs = [], []
    for epoch in budget.epochs():
        sampler.set_epoch(epoch)
        epochs.append(epoch)
        for (batch,) in budgeted(loader, model, optimizer, budget):
            optimizer.zero_grad()
            model(batch).pow(2).mean().backward()
            optimizer.step()
            rates.append(round(optimizer.param_groups[0]["lr"], 12))
            time.sleep(0.005 * (1 + rank))
        budget.report(loss=0.5 if rank == 0 else 1 / (1 + epoch))
    weight = float(next(model.parameters()).detach().flatten()[0])
    last, decay_start = rates[-1] if rates else 0.0, budget.loop.decay_start.share
    print(len(rates), epochs[0], epochs[-1], hash(tuple(rates)), last, weight, decay_start, flush=True)
    print(gloo_threads(), flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4])
