"""Claim: the interval of the gradient's noise scale holds the analytic value in 90 to 99% of the draws, from
10 to 100,000 rows; and a measured step, which has two batches, takes at most half a step longer than two.

The draws are of a gradient with normal noise, 60 measurements each. The steps are those of each network on
drawn rows, in turns: the median of the rounds counts. `phi` is what a few hundred steps of it measure.

python bench/noise_scale.py [--draws 500] [--rounds 40] [--quick]

--quick: 8 rounds; 1 minute.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch
from gpu_cases import Case, images, tables, texts
from machine import describe

from shoestring.training.control.noise import DENSE_EVERY, MEASURED_STEPS, NOT_MEASURED
from shoestring.training.curve import Halves, NoiseScale
from shoestring.training.families.table_net.settings import TableNetSettings
from shoestring.training.families.transformer.settings import TransformerSettings
from shoestring.training.frameworks.torch_.net_kind import NetRows
from shoestring.training.frameworks.torch_.net_learner import NetLearner

LOW, HIGH = 0.90, 0.99
MEASUREMENTS, DIMENSIONS = 60, 200
SCALES = ((10, 64), (100, 64), (1_000, 256), (10_000, 1_024), (100_000, 4_096))
"""The noise scale, and the rows of a half."""


def drawn_scale(rng: np.random.Generator, phi: float, rows: int) -> NoiseScale | None:
    """Return what a gradient with this noise scale is measured to have."""
    gradient_D = rng.normal(size=DIMENSIONS)
    gradient_D /= np.linalg.norm(gradient_D)
    noise_N2D = rng.normal(size=(MEASUREMENTS, 2, DIMENSIONS)) * math.sqrt(phi / DIMENSIONS / rows)
    first_ND, second_ND = (gradient_D + noise_N2D).swapaxes(0, 1)
    products, differences = (first_ND * second_ND).sum(1), np.square(first_ND - second_ND).sum(1)
    found = zip(products.tolist(), differences.tolist(), strict=True)
    return NOT_MEASURED.after(
        Halves(at * DENSE_EVERY * rows, rows, *each) for at, each in enumerate(found)
    ).scale


def interval_holds(phi: int, rows: int, draws: int) -> bool:
    rng = np.random.default_rng(phi)
    scales = [drawn_scale(rng, phi, rows) for _ in range(draws)]
    known = [each for each in scales if each is not None]
    held = np.mean([each.low <= phi and (each.high is None or phi <= each.high) for each in known])
    middle = median(each.rows for each in known)
    print(
        f"phi {phi:>7,}, halves of {rows:>5,} rows: held in {held:.1%} of {len(known)} draws; the median is "
        f"{middle:,.0f}",
        flush=True,
    )
    return bool(LOW <= held <= HIGH)


class Steps:
    """A network whose steps are timed."""

    def __init__(self, case: Case) -> None:
        reader = case.split()[0]
        torch.manual_seed(0)
        self.learner = NetLearner(case.kind, reader.take(np.arange(min(1_000, len(reader)))), len(reader))
        self.rows: NetRows = self.learner.prepare(reader.take(np.arange(len(reader))))
        self.batch_rows, self.at = self.learner.batch_rows, 0
        self.noise = NOT_MEASURED

    def seconds(self, rows: int, is_measured: bool = False) -> float:
        """Make a step over the next rows, and return what it takes."""
        if self.at + rows > len(self.rows):
            self.at = 0
        batch, self.at = self.rows.part(self.at, self.at + rows), self.at + rows
        self.learner.mark()
        began_s = time.perf_counter()
        self.learner.step(batch, self.learner.kind.settings.learning_rate, is_measured)
        took_s = time.perf_counter() - began_s
        self.noise = self.noise.after(self.learner.readings().halves)
        return took_s

    def cost(self, rounds: int) -> float:
        """Return how many steps longer a measured one takes than the two that it replaces."""
        rows = self.batch_rows
        for _ in range(5):
            self.seconds(rows)
        costs = []
        for _ in range(rounds):
            two_s = self.seconds(rows) + self.seconds(rows)
            costs.append((self.seconds(2 * rows, is_measured=True) - two_s) / (two_s / 2))
        return median(costs)


def main() -> None:
    parser = argparse.ArgumentParser(description=Path(__file__).name)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    print(describe(), flush=True)
    fails = [f"phi {phi}" for phi, rows in SCALES if not interval_holds(phi, rows, args.draws)]
    rng = np.random.default_rng(0)
    cases = [
        tables(rng, 60_000, TableNetSettings()),
        images(rng, 6_000),
        texts(rng, 600, TransformerSettings()),
    ]
    for case in cases:
        steps = Steps(case)
        cost = steps.cost(8 if args.quick else args.rounds)
        scale = steps.noise.scale
        found = "too few measurements" if scale is None else f"phi {scale.rows:,.0f} ({scale.low:,.0f} to "
        if scale is not None:
            found += f"{'any' if scale.high is None else f'{scale.high:,.0f}'})"
        print(f"{case.name}: a measured step takes {cost:+.2f} steps more than two; {found}", flush=True)
        if cost > MEASURED_STEPS:
            fails.append(case.name)
    print("holds" if not fails else f"does not hold: {', '.join(fails)}")
    raise SystemExit(bool(fails))


if __name__ == "__main__":
    main()
