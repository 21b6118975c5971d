"""How long a stage should take on a pool, before anything was learned: a roofline of its need and the pool's speeds.

seconds        = setup_s / core_speed + samples x row seconds                     (reading and writing are priced by routing)
on cores       = cpu_us_per_row / 1e6 / (core_speed x speed-up(cores, f)),  speed-up = 1 / ((1 - f) + f / cores)          (Amdahl 1967)
on a GPU       = max((1 - f) x cpu_us_per_row / 1e6 / core_speed,  FLOPs / FLOP/s + bytes / byte/s):
                 the share that more cores would not help stays with the host, beside the GPU. Its kernels follow each other, and each
                 is under one of the two roofs (Williams 2009, "Roofline"): the need names the arithmetic of those under the one,
                 and the bytes of those under the other.
on K GPUs      = a step of B rows each: (T_grad^g + T_sync^g)^(1/g) / (K x B), g = OVERLAP       (Qiao 2021, "Pollux", eq. 11)
                 T_grad = B x a row on one GPU;  T_sync = a ring's 2 (n - 1) / n x sync_bytes / bytes/s, among the n GPUs of a machine,
                 and the same among machines; K is what the stage can use at most, however many the pool has.

What receipts teach about it: pricing/learning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shoestring.core.types import Hardware, Need, Pool
from shoestring.pricing.gpus import gpu_type, link_gb_s, memory_gb_s

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

GPU_EFFICIENCY = 0.3
"""Share of a GPU's peak that training reaches; published runs lie between 0.2 and 0.5, and receipts correct it."""

MEMORY_EFFICIENCY = 0.7
"""Share of the bandwidth of its memory, and of its links, that a GPU reaches; receipts correct it."""

SYNC_OVERLAP = 2.0
"""How far computing hides synchronising: 1 = not at all; Pollux' fits lie between 1 and 10."""


@dataclass(frozen=True, slots=True)
class PoolArrays:
    """Pools as arrays of one length, so that any number is priced at once. Fields that a Pool has too are called the same."""

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
    def of(cls, pools: Sequence[Pool]) -> PoolArrays:
        """What a pool leaves to be known by the name of its GPU is looked up; 0: nobody knows, and it limits nothing."""
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
    """Whether the stage would do its per-row work on this pool's GPUs."""
    return bool(gpu_mask(need, pool))


def gpu_mask(need: Need, machines: PoolArrays | Pool) -> Flags | bool:
    """The same of many."""
    able = (
        (machines.gpu_count > 0) & (machines.gpu_tflops > 0) & (machines.gpu_memory_gb >= need.gpu_memory_gb)
    )
    return able & (need.gpu == "must" or (need.gpu == "may" and need.gpu_flop_per_row > 0))


def setup_seconds(need: Need, machines: PoolArrays) -> Floats:
    """Prior seconds before the first row."""
    return need.setup_s / machines.core_speed


def row_seconds(need: Need, machines: PoolArrays) -> Floats:
    """Prior seconds of computing for one row, once."""
    core_s = need.cpu_us_per_row / 1e6 / machines.core_speed
    serial = 1.0 - need.parallel_fraction
    on_cores = core_s * (serial + need.parallel_fraction / machines.cores)
    users = gpu_mask(need, machines)
    if not np.any(users):
        return on_cores
    return np.where(
        users, np.maximum(serial * core_s / machines.nodes, _gpu_row_seconds(need, machines)), on_cores
    )


def _gpu_row_seconds(need: Need, machines: PoolArrays) -> Floats:
    """Infinite where there is no GPU."""
    arithmetic_s = _seconds_at(need.gpu_flop_per_row, machines.gpu_tflops * 1e12 * GPU_EFFICIENCY, np.inf)
    row_s = arithmetic_s + _seconds_at(
        need.gpu_bytes_per_row, machines.gpu_memory_gb_s * 1e9 * MEMORY_EFFICIENCY, 0.0
    )
    gpus = np.maximum(np.minimum(need.max_gpus, machines.gpu_count * machines.nodes), 1.0)
    here = np.maximum(np.minimum(gpus, machines.gpu_count), 1.0)
    nodes = np.ceil(gpus / here)
    sync_s = need.sync_bytes * (
        _seconds_at(2 * (here - 1) / here, machines.gpu_link_gb_s * 1e9 * MEMORY_EFFICIENCY, 0.0)
        + 2 * (nodes - 1) / nodes / (machines.network_gb_s * 1e9 * MEMORY_EFFICIENCY)
    )
    step_s = ((need.step_rows * row_s) ** SYNC_OVERLAP + sync_s**SYNC_OVERLAP) ** (1 / SYNC_OVERLAP)
    seconds: Floats = step_s / (need.step_rows * gpus)
    return seconds


def _seconds_at(amount: float | Floats, speed: Floats, unknown: float) -> Floats:
    """Seconds of an amount at a speed; `unknown` where the speed is."""
    return np.divide(amount, speed, out=np.full_like(speed, unknown), where=speed > 0)


def hardware_of(need: Need, pool: Pool) -> Hardware:
    """What would do the stage's per-row work on this pool."""
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
