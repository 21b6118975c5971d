"""Train a small convolutional network on Fashion-MNIST, in a loop like that of torchvision's examples."""

from __future__ import annotations

import argparse
import gzip
import math
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

Batches = Iterable[tuple[Tensor, Tensor]]
Scheduler = torch.optim.lr_scheduler.LRScheduler


def read_split(folder: Path, name: str) -> TensorDataset:
    pixels = np.frombuffer(gzip.decompress((folder / f"{name}-images-idx3-ubyte.gz").read_bytes())[16:], "u1")
    labels = np.frombuffer(gzip.decompress((folder / f"{name}-labels-idx1-ubyte.gz").read_bytes())[8:], "u1")
    images = torch.from_numpy(pixels.reshape(-1, 1, 28, 28).astype(np.float32) / 255)
    return TensorDataset(images, torch.from_numpy(labels.astype(np.int64)))


def network() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(32 * 7 * 7, 10)),
    )


def train_one_epoch(
    model: nn.Module,
    criterion: nn.Module,
    optimizer: torch.optim.Optimizer,
    scheduler: Scheduler,
    loader: Batches,
    log: TextIO,
) -> None:
    model.train()
    for image, target in loader:
        loss = criterion(model(image), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("rate", optimizer.param_groups[0]["lr"], file=log, flush=True)
        scheduler.step()


@torch.inference_mode()
def evaluate(model: nn.Module, criterion: nn.Module, loader: Batches, log: TextIO) -> float:
    model.eval()
    losses = [float(criterion(model(image), target)) for image, target in loader]
    print("loss", np.mean(losses), file=log, flush=True)
    return float(np.mean(losses))


def main() -> None:
    parser = argparse.ArgumentParser(description=Path(__file__).name)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, default=Path("log.txt"))
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    train, held_out = read_split(args.data, "train"), read_split(args.data, "t10k")
    loader = DataLoader(train, batch_size=64, sampler=RandomSampler(train, num_samples=12800))
    test_loader = DataLoader(held_out, batch_size=500)
    model, criterion = network(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    warmup = max(1, args.steps // 20)
    schedulers: list[Scheduler] = [
        torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, total_iters=warmup),
        torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps - warmup),
    ]
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, schedulers, [warmup])
    with args.log.open("a") as log:
        for epoch in range(math.ceil(args.steps / len(loader))):
            batches = islice(loader, args.steps - epoch * len(loader))
            train_one_epoch(model, criterion, optimizer, scheduler, batches, log)
            loss = evaluate(model, criterion, test_loader, log)
            print(f"epoch {epoch}: validation loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
