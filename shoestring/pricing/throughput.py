"""How long a stage takes on a pool: a prior from its need and the pool's speeds, and what receipts taught about that prior.

prior seconds  = setup_s / core_gops + samples x row seconds                     (reading and writing are priced by routing/offers)
row seconds    = op_per_row / 1e9 / (core_gops x speed-up(cores, f)),  speed-up = 1 / ((1 - f) + f / cores)          (Amdahl 1967)
on a GPU       = max((1 - f) x op_per_row / 1e9 / core_gops,  gpu_flop_per_row / (gpu_tflops x 1e12 x GPU_EFFICIENCY)):
                 the share that more cores would not help stays with the host, beside the arithmetic.

true / prior   ~ log-normal(m, s) with a normal-inverse-gamma prior: mean 0 worth K runs, variance S0^2 worth V runs
                 (Murphy 2007, "Conjugate Bayesian analysis of the Gaussian distribution", eq. 86-89). After n runs with logs x:
                 m   = n x_mean / (K + n)
                 s^2 = (V S0^2 + sum (x - x_mean)^2 + K n / (K + n) x_mean^2) / (V + n)
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shoestring.model import Learned, Need, Pool
from shoestring.receipt import Receipt

GPU_EFFICIENCY = 0.3
"""Share of a GPU's peak that training reaches; published runs lie between 0.2 and 0.5, and receipts correct it."""

PRIOR_LOG_SD = 0.5
PRIOR_MEAN_RUNS = 1.0
PRIOR_SD_RUNS = 2.0
Z95 = 1.6448536269514722
"""The standard normal's 95th percentile."""


@dataclass(frozen=True, slots=True)
class Spread:
    """What to multiply prior seconds with."""

    mean: float
    p95: float


def uses_gpu(need: Need, pool: Pool) -> bool:
    """Whether the stage would do its per-row work on this pool's GPU."""
    able = pool.gpu_count > 0 and pool.gpu_tflops > 0 and pool.gpu_memory_gb >= need.gpu_memory_gb
    return able and (need.gpu == "must" or (need.gpu == "may" and need.gpu_flop_per_row > 0))


def setup_seconds(need: Need, pool: Pool) -> float:
    """Prior seconds before the first row."""
    return need.setup_s / pool.core_gops


def row_seconds(need: Need, pool: Pool) -> float:
    """Prior seconds of computing for one row, once. One GPU is used, however many the machine has."""
    core_s = need.op_per_row / 1e9 / pool.core_gops
    serial = 1.0 - need.parallel_fraction
    if uses_gpu(need, pool):
        return max(serial * core_s, need.gpu_flop_per_row / (pool.gpu_tflops * 1e12 * GPU_EFFICIENCY))
    return core_s * (serial + need.parallel_fraction / pool.cores)


def learn(receipts: Iterable[Receipt]) -> tuple[Learned, ...]:
    """What finished attempts say about the prior, by stage and pool. The order of the receipts does not matter."""
    logs: dict[tuple[str, str], list[float]] = defaultdict(list)
    for receipt in receipts:
        if receipt.status == "done" and receipt.prior_s > 0 and receipt.seconds > 0 and not receipt.cache_hit:
            logs[receipt.stage, receipt.pool].append(math.log(receipt.seconds / receipt.prior_s))
    return tuple(_posterior(stage, pool, sorted(logs[stage, pool])) for stage, pool in sorted(logs))


def _posterior(stage: str, pool: str, logs: Sequence[float]) -> Learned:
    runs = len(logs)
    mean = math.fsum(logs) / runs
    scatter = math.fsum((x - mean) ** 2 for x in logs) + PRIOR_MEAN_RUNS * runs / (PRIOR_MEAN_RUNS + runs) * mean**2
    variance = (PRIOR_SD_RUNS * PRIOR_LOG_SD**2 + scatter) / (PRIOR_SD_RUNS + runs)
    return Learned(stage=stage, pool=pool, runs=runs, log_mean=runs * mean / (PRIOR_MEAN_RUNS + runs), log_sd=math.sqrt(variance))


def spread(stage: str, pool: str, learned: Iterable[Learned]) -> Spread:
    """Mean and 95th percentile of true over prior seconds; never seen: the prior's own. The P95 is never below the mean."""
    found = next((each for each in learned if (each.stage, each.pool) == (stage, pool)), None)
    log_mean, log_sd = (found.log_mean, found.log_sd) if found else (0.0, PRIOR_LOG_SD)
    mean = math.exp(log_mean + log_sd**2 / 2)
    return Spread(mean=mean, p95=max(mean, math.exp(log_mean + Z95 * log_sd)))
