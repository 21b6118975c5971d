"""Claim: reservations cover 95% +- 1.5% of runs out of sample, at a median of at most 1.5 times the true P95.

python bench/p95.py [--seeds 12] [--runs 150]

Each seed is a history of runs. Each run reserves by the model learned from the receipts before it (as many
as a store keeps), and then takes its actual time. The `first 20` runs start without receipts; the claim is
about the runs after them. Coverage has a 95% bootstrap interval over histories. `normal` is the same model
with 1.645 standard deviations instead of the conformal quantile. `flat` is a separate log-normal for each
stage and pool, with its mean shrunk by one run and its variance by two.

Synthetic histories: the true P95 is that of the distribution from which the next run is drawn. Recorded
histories: runs are drawn at random, with their settings, from the measurements of a network on a GPU; the
true P95 is that of all these measurements.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import numpy as np
from machine import describe
from traces import trace

from shoestring.core.receipt import Receipt
from shoestring.core.types import Market, Need, Pool
from shoestring.pricing.learned.calibration import Z95
from shoestring.pricing.learned.learning import learn
from shoestring.pricing.learned.runtime_factors import runtime_factor
from shoestring.pricing.throughput import PoolArrays, hardware_of, row_seconds
from shoestring.runtime.records.receipt_history import history_key

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
POOL = Pool(name="cpu", cores=1, memory_gb=8)
EARLY = 20


@dataclass(frozen=True, slots=True)
class Run:
    """The next run: its actual seconds, the seconds of the prior, and the true P95."""

    need: Need
    pool: Pool
    seconds: float
    prior_s: float
    true_p95_s: float


History = Callable[[np.random.Generator, int], Iterator[Run]]


def drawn(
    log_sd: float, tail: float = 0.0, alpha: float = 2.0, drift: float = 0.0, works: int = 1
) -> History:
    """Return a synthetic history.

    Actual / prior = unknown factor of the work x exp(drift x run) x log-normal; with probability `tail`
    also x Pareto.
    """

    def noise(random: np.random.Generator, size: int) -> np.ndarray:
        slow = np.where(random.random(size) < tail, random.pareto(alpha, size) + 1, 1.0)
        return np.exp(log_sd * random.standard_normal(size)) * slow

    def history(random: np.random.Generator, runs: int) -> Iterator[Run]:
        p95 = float(np.quantile(noise(np.random.default_rng(0), 200_000), 0.95))
        factors, turns = np.exp(0.5 * random.standard_normal(works)), random.integers(works, size=runs)
        for run, (work, factor) in enumerate(zip(turns.tolist(), noise(random, runs).tolist(), strict=True)):
            level = 100 * factors[work] * math.exp(drift * run)
            yield Run(Need(stage="train", work=f"work-{work}"), POOL, level * factor, 100.0, level * p95)

    return history


def recorded(
    groups: dict[tuple[str, str], list[tuple[float, float]]],
    pools: dict[str, Pool],
    need: Callable[[str], Need],
) -> History:
    """Return a recorded history. `groups` holds measured and prior seconds of each (network, GPU)."""
    true = {
        key: float(np.quantile([took / prior for took, prior in measured], 0.95))
        for key, measured in groups.items()
    }

    def history(random: np.random.Generator, runs: int) -> Iterator[Run]:
        keys = sorted(groups)
        for _ in range(runs):
            key = keys[random.integers(len(keys))]
            took, prior = groups[key][random.integers(len(groups[key]))]
            yield Run(need(key[0]), pools[key[1]], took, prior, true[key] * prior)

    return history


def zeus() -> History:
    """Return the history of seconds per epoch, over all recorded batch sizes, optimizers and power limits."""
    peaks = {
        "v100": ("V100", 16.0, 125.0),
        "p100": ("P100", 16.0, 21.0),
        "rtx6000": ("RTX 6000", 24.0, 130.0),
    }
    pools = {
        name: Pool(
            name=name, cores=8, memory_gb=64, gpu=gpu, gpu_count=1, gpu_memory_gb=gb, gpu_tflops=tflops
        )
        for name, (gpu, gb, tflops) in peaks.items()
    }
    groups: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    with gzip.open(trace("throughput/zeus_power.csv.gz"), "rt") as file:
        for row in csv.DictReader(file):
            groups[row["network"], row["gpu"]].append(
                (float(row["seconds_per_epoch"]), 2e6 / pools[row["gpu"]].gpu_tflops / 1e3)
            )
    return recorded(groups, pools, lambda network: Need(stage="train", work=network, gpu="must"))


FLOP_AND_BYTES = {
    "bert": (1.2e11, 4.4e8),
    "cifar10": (1.7e9, 4.5e7),
    "deepspeech2": (3e11, 3.5e8),
    "imagenet": (1.2e10, 1.0e8),
    "ncf": (4e6, 1.3e7),
    "yolov3": (2e11, 2.5e8),
}
"""Rough FLOPs of a training sample and bytes of its gradients, as an author would estimate them."""


def adaptdl() -> History:
    """Return the history of seconds per step at any local batch, on 1 to 16 T4 GPUs of 1 to 4 machines.

    The prior predicts each step with its synchronisation.
    """
    pools: dict[str, Pool] = {}
    groups: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    with gzip.open(trace("throughput/adaptdl_t4_steps.csv.gz"), "rt") as file:
        for row in csv.DictReader(file):
            nodes, gpus, batch = int(row["nodes"]), int(row["gpus"]), int(row["local_batch"])
            if gpus % nodes or nodes > 4 or gpus > 4 * nodes:
                continue
            name = f"{nodes}x{gpus // nodes}"
            gpu = {
                "gpu": "T4",
                "gpu_count": gpus // nodes,
                "gpu_memory_gb": 16.0,
                "gpu_tflops": 65.0,
                "nodes": nodes,
            }
            pools[name] = Pool.model_validate(
                {"name": name, "cores": 48, "memory_gb": 192, "network_gb_s": 6.25} | gpu
            )
            need = adaptdl_need(row["model"]).model_copy(update={"step_rows": batch})
            prior_s = float(row_seconds(need, PoolArrays.from_pools([pools[name]]))[0]) * batch * gpus
            groups[row["model"], name].append((float(row["step_seconds"]), prior_s))
    return recorded(groups, pools, adaptdl_need)


def adaptdl_need(model: str) -> Need:
    flop, sync_bytes = FLOP_AND_BYTES[model]
    return Need(
        stage="train", work=model, gpu="must", gpu_flop_per_row=flop, sync_bytes=sync_bytes, max_gpus=64
    )


def receipt(number: int, run: Run) -> Receipt:
    at, nothing = NOON + timedelta(minutes=number), Decimal(0)
    return Receipt.model_construct(
        run_id=f"run-{number}",
        stage=run.need.stage,
        attempt=1,
        status="done",
        pool=run.pool.name,
        market=Market.ON_DEMAND,
        cache_hit=False,
        spent_usd=nothing,
        prior_s=run.prior_s,
        seconds=run.seconds,
        work=run.need.work,
        hardware=hardware_of(run.need, run.pool),
        finished_at=at,
    )


def flat(past: Sequence[float]) -> float:
    """The P95 of a log-normal with a normal-inverse-gamma prior: mean 0 worth a run, standard deviation 0.5
    worth two.
    """
    n, mean = len(past), statistics.fmean(past) if past else 0.0
    scatter = math.fsum((x - mean) ** 2 for x in past) + n / (1 + n) * mean**2
    return math.exp(n * mean / (1 + n) + Z95 * math.sqrt((2 * 0.25 + scatter) / (2 + n)))


def simulate_history(history: History, seed: int, runs: int) -> np.ndarray:
    """Return, with shape (runs, 3 models, 2): whether the run was covered, and reservation / true P95."""
    kept: dict[str, Receipt] = {}
    past: dict[tuple[str, str], list[float]] = defaultdict(list)
    found = np.empty((runs, 3, 2))
    for number, run in enumerate(history(np.random.default_rng(seed), runs)):
        learned = learn(kept.values(), [run.need], [run.pool])
        without = [each.model_copy(update={"log_p95": None}) for each in learned]
        learned_p95, normal = (runtime_factor(run.need, run.pool, each).p95 for each in (learned, without))
        for way, times in enumerate((learned_p95, normal, flat(past[run.need.stage, run.pool.name]))):
            reserved_s = times * run.prior_s
            found[number, way] = run.seconds <= reserved_s, reserved_s / run.true_p95_s
        done = receipt(number, run)
        kept[history_key(done)] = done
        past[run.need.stage, run.pool.name].append(math.log(run.seconds / run.prior_s))
    return found


def shown(found: np.ndarray) -> str:
    """Return one line of the table. `found` has shape (seeds, runs, 3, 2)."""
    late, early = found[:, EARLY:], found[:, :EARLY]
    by_seed = late[:, :, 0, 0].mean(axis=1)
    random = np.random.default_rng(0)
    again = by_seed[random.integers(len(by_seed), size=(2000, len(by_seed)))].mean(axis=1)
    low, high = np.quantile(again, [0.025, 0.975]) * 100
    others = "  ".join(
        f"{late[:, :, way, 0].mean() * 100:6.1f} {np.median(late[:, :, way, 1]):6.2f}" for way in (1, 2)
    )
    ratio, first = np.median(late[:, :, 0, 1]), early[:, :, 0, 0].mean() * 100
    return f"{by_seed.mean() * 100:8.1f} [{low:5.1f}, {high:5.1f}] {ratio:7.2f} {first:8.1f}   {others}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--runs", type=int, default=150)
    options = parser.parse_args()
    histories: dict[str, History] = {
        "log-normal 0.1": drawn(0.1),
        "log-normal 0.5": drawn(0.5),
        "Pareto, 10% of runs": drawn(0.1, tail=0.1, alpha=1.5),
        "Pareto, all runs": drawn(0.05, tail=1.0, alpha=1.5),
        "drift 1% a run": drawn(0.15, drift=0.01),
        "6 works, Pareto": drawn(0.2, tail=0.1, works=6),
        "zeus epochs": zeus(),
        "adaptdl steps": adaptdl(),
    }
    print(describe())
    print(
        f"{options.seeds} histories of {options.runs} runs; coverage % after the first {EARLY}, "
        "median reservation / true P95"
    )
    print(
        f"{'':<20} {'covered':>8} {'interval':>14} {'median':>7} {'first 20':>8}   "
        f"{'normal':>13}  {'flat':>13}"
    )
    for name, history in histories.items():
        found = np.stack([simulate_history(history, seed, options.runs) for seed in range(options.seeds)])
        print(f"{name:<20} {shown(found)}", flush=True)


if __name__ == "__main__":
    main()
