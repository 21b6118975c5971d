"""Predicts how long a stage takes on a pool before anything was learned, by a roofline of its need and the
pool's speeds.

seconds     = setup_s / core_speed + samples x row seconds           (routing adds reading and writing;
                                                                      on a GPU set-up has gpu_setup_s more)
on cores    = cpu_us_per_row / 1e6 / (core_speed x speed-up(cores, f)),
              speed-up = 1 / ((1 - f) + f / cores)                    (Amdahl 1967)
on a GPU    = max((1 - f) x cpu_us_per_row / 1e6 / core_speed,  FLOPs / FLOP/s + bytes / byte/s)
on K GPUs   = a step of B rows each: (T_grad^g + T_sync^g)^(1/g) / (K x B),  g = SYNC_OVERLAP
                                                                      (Qiao 2021, "Pollux", eq. 11)

On a GPU, the serial share (1 - f), or gpu_host_us_per_row, runs on the host, at the same time as the GPU.
Kernels run one after another, and each is limited by arithmetic or by memory bandwidth (Williams 2009,
"Roofline"): the need gives the FLOPs of the former and the bytes of the latter.

T_grad = B x the seconds of a row on one GPU.
T_sync = 2 (n - 1) / n x sync_bytes / (bytes/s) of a ring among the n GPUs of a machine, plus the same among
         machines.
K      = the number of GPUs of the pool, at most the number that the stage can use.

`learning.py` corrects the prediction from receipts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shoestring.core.receipt import Hardware
from shoestring.core.types import Need, Pool
from shoestring.pricing.gpus import gpu_type, link_gb_s, memory_gb_s

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

GPU_EFFICIENCY = 0.3
"""Share of a GPU's peak that training reaches. Published runs reach 0.2 to 0.5; receipts correct it."""

MEMORY_EFFICIENCY = 0.7
"""Share of its memory and link bandwidth that a GPU reaches. Receipts correct it."""

SYNC_OVERLAP = 2.0
"""How much computation hides synchronisation: 1 is not at all. Pollux's fits are between 1 and 10."""


@dataclass(frozen=True, slots=True)
class PoolArrays:
    """Pools as arrays of shape (pools,), to price any number of them at once. Fields are named as those of
    `Pool`.
    """

    cores: Floats
    core_speed: Floats
    gpu_count: Floats
    gpu_memory_gb: Floats
    gpu_tflops: Floats
    gpu_memory_gb_s: Floats
    gpu_link_gb_s: Floats
    nodes: Floats
    network_gb_s: Floats

    @classmethod
    def from_pools(cls, pools: Sequence[Pool]) -> PoolArrays:
        """Return the arrays. Bandwidths that a pool omits come from its GPU's name; an unknown one is 0, and
        sets no limit.
        """
        rows = [
            (
                pool.cores,
                pool.core_speed,
                pool.gpu_count,
                pool.gpu_memory_gb,
                pool.gpu_tflops,
                pool.gpu_memory_gb_s or (memory_gb_s(pool.gpu, pool.gpu_memory_gb) if pool.gpu else 0.0),
                pool.gpu_link_gb_s or (link_gb_s(pool.gpu, pool.gpu_memory_gb) if pool.gpu else 0.0),
                pool.nodes,
                pool.network_gb_s,
            )
            for pool in pools
        ]
        return cls(*np.array(rows, dtype=np.float64).reshape(-1, 9).T)


def uses_gpu(need: Need, pool: Pool) -> bool:
    """Return whether the stage does its per-row work on this pool's GPUs."""
    return bool(gpu_mask(need, pool))


def gpu_mask(need: Need, pools: PoolArrays | Pool) -> Flags | bool:
    """Return for each pool whether the stage does its per-row work on its GPUs."""
    able = (pools.gpu_count > 0) & (pools.gpu_tflops > 0) & (pools.gpu_memory_gb >= need.gpu_memory_gb)
    return able & (need.gpu == "must" or (need.gpu == "may" and need.gpu_flop_per_row > 0))


def setup_seconds(need: Need, pools: PoolArrays) -> Floats:
    """Return the predicted seconds before the first row, shape (pools,)."""
    seconds: Floats = (need.setup_s + need.gpu_setup_s * gpu_mask(need, pools)) / pools.core_speed
    return seconds


def row_seconds(need: Need, pools: PoolArrays) -> Floats:
    """Return the predicted seconds of computation for one row, shape (pools,)."""
    core_s = need.cpu_us_per_row / 1e6 / pools.core_speed
    serial = 1.0 - need.parallel_fraction
    on_cores = core_s * (serial + need.parallel_fraction / pools.cores)
    on_gpu = gpu_mask(need, pools)
    if not np.any(on_gpu):
        return on_cores
    host_s = serial * core_s
    if need.gpu_host_us_per_row:
        host_s = need.gpu_host_us_per_row / 1e6 / pools.core_speed
    gpu_s = np.maximum(host_s / pools.nodes, _gpu_row_seconds(need, pools))
    return np.where(on_gpu, gpu_s, on_cores)


def half_rows(need: Need, pool: Pool) -> int:
    """Return the rows of a training's step that takes twice its fixed time on a pool, as a power of two; 0:
    it has no such steps. The speed of a core has no part in it, and neither has a price."""
    if not need.step_us:
        return 0
    pools = PoolArrays.from_pools([pool])
    row_s = float((_gpu_row_seconds if uses_gpu(need, pool) else row_seconds)(need, pools)[0])
    return 1 << max(0, round(math.log2(need.step_us / 1e6 / pool.core_speed / row_s)))


def _gpu_row_seconds(need: Need, pools: PoolArrays) -> Floats:
    """Return the seconds of a row on the pool's GPUs; infinity for a pool without GPUs."""
    memory_bytes_s, link_bytes_s, network_bytes_s = (
        gb_s * 1e9 * MEMORY_EFFICIENCY
        for gb_s in (pools.gpu_memory_gb_s, pools.gpu_link_gb_s, pools.network_gb_s)
    )
    arithmetic_s = _seconds_at(need.gpu_flop_per_row, pools.gpu_tflops * 1e12 * GPU_EFFICIENCY, np.inf)
    row_s = arithmetic_s + _seconds_at(need.gpu_bytes_per_row, memory_bytes_s, 0.0)
    gpus = np.maximum(np.minimum(need.max_gpus, pools.gpu_count * pools.nodes), 1.0)
    per_node = np.maximum(np.minimum(gpus, pools.gpu_count), 1.0)
    nodes = np.ceil(gpus / per_node)
    sync_s = need.sync_bytes * (
        _seconds_at(2 * (per_node - 1) / per_node, link_bytes_s, 0.0)
        + 2 * (nodes - 1) / nodes / network_bytes_s
    )
    step_s = ((need.step_rows * row_s) ** SYNC_OVERLAP + sync_s**SYNC_OVERLAP) ** (1 / SYNC_OVERLAP)
    seconds: Floats = step_s / (need.step_rows * gpus)
    return seconds


def _seconds_at(amount: float | Floats, speed: Floats, unknown: float) -> Floats:
    """Return amount / speed, or `unknown` where the speed is 0."""
    return np.divide(amount, speed, out=np.full_like(speed, unknown), where=speed > 0)


def hardware_of(need: Need, pool: Pool) -> Hardware:
    """Return the hardware of this pool that does the stage's per-row work."""
    if not uses_gpu(need, pool):
        return Hardware(
            kind="cores", type=f"{pool.core_speed:g} Gop/s core", count=pool.cores, gflop_s=pool.core_speed
        )
    name = pool.gpu or "GPU"
    return Hardware(
        kind="gpu",
        type=gpu_type(name, pool.gpu_memory_gb),
        count=min(need.max_gpus, pool.gpu_count * pool.nodes),
        gflop_s=pool.gpu_tflops * 1e3,
        gb_s=pool.gpu_memory_gb_s or memory_gb_s(name, pool.gpu_memory_gb),
    )
