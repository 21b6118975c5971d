"""Claim: a training step takes at most 1 / 1.2 of the CPU time of the same step with PyTorch's defaults.

The peer is the same network and data with `nn.Dropout`, the default AdamW, and an average that is updated one
parameter at a time. Both take turns in one process, on one thread.

python bench/training_speed.py [--seeds 5] [--steps 200]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch
from gpu_cases import tables
from machine import describe
from torch import nn

from shoestring.core.datasets import Encoding
from shoestring.data.loading.samples import Collator, Samples
from shoestring.training.families.table_net.learner import TableNetKind
from shoestring.training.families.table_net.settings import TableNetSettings
from shoestring.training.frameworks.torch_.byte_dropout import ByteDropout
from shoestring.training.frameworks.torch_.net_learner import NetLearner

BATCH_ROWS = TableNetSettings().batch_rows
EPOCH_ROWS = 262_144


class PlainLearner(NetLearner):
    """A learner with PyTorch's defaults."""

    def __init__(self, encoding: Encoding, sample: Samples) -> None:
        super().__init__(TableNetKind(encoding, TableNetSettings()), sample, EPOCH_ROWS)
        layers = [
            nn.Dropout(each.share) if isinstance(each, ByteDropout) else each for each in self.net.hidden
        ]
        self.net.hidden = nn.Sequential(*layers)
        groups = [{**group, "fused": False} for group in self.optimizer.param_groups]
        self.optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.99))

    def _update_average(self) -> None:
        for average, weight in zip(self.average.parameters(), self.net.parameters(), strict=True):
            average.lerp_(weight.detach(), 0.01)


def made_up_rows(rng: np.random.Generator) -> tuple[Encoding, Samples]:
    """Return rows with the shape of flights' encoded rows, and their encoding."""
    case = tables(rng, BATCH_ROWS * 16, TableNetSettings())
    return case.encoding, Collator(case.encoding, case.rows.dtype).collate(case.rows)


def cpu_s(learner: NetLearner, rows: Samples, steps: int) -> float:
    """Return the CPU seconds of `steps` steps."""
    prepared, started_s = learner.prepare(rows), time.process_time()
    for step in range(steps):
        first = step * BATCH_ROWS % len(rows)
        learner.step(prepared.part(first, first + BATCH_ROWS), 1e-3)
    return time.process_time() - started_s


def main() -> None:
    parser = argparse.ArgumentParser(description=Path(__file__).name)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    print(describe())
    torch.set_num_threads(1)
    ratios = []
    for seed in range(args.seeds):
        encoding, rows = made_up_rows(np.random.default_rng(seed))
        learners = [
            NetLearner(TableNetKind(encoding, TableNetSettings()), rows, EPOCH_ROWS),
            PlainLearner(encoding, rows),
        ]
        for learner in learners:
            cpu_s(learner, rows, 20)
        # Each takes half of its steps first and half of them last.
        takes = [cpu_s(learner, rows, args.steps) for learner in (*learners, *reversed(learners))]
        own_s, plain_s = takes[0] + takes[3], takes[1] + takes[2]
        trained = 2 * args.steps * BATCH_ROWS
        ratios.append(plain_s / own_s)
        print(
            f"seed {seed}: {trained / own_s:,.0f} rows per CPU-second, PyTorch's defaults "
            f"{trained / plain_s:,.0f}: {ratios[-1]:.2f} times"
        )
    print(f"median {median(ratios):.2f} times the rows per CPU-second")


if __name__ == "__main__":
    main()
