"""Energy and emissions of a stage: estimated from the machine and from how busy its cores were.

A GPU's own energy counter, where there is one, replaces the estimate. Plain numbers in, plain numbers out.
"""

from __future__ import annotations

from shoestring.core.receipt import ResourceUsage
from shoestring.core.types import Pool
from shoestring.pricing.gpus import find_gpu

JOULES_PER_KWH = 3_600_000
CORE_W = 3.5
"""Power of one busy vCPU: the mean over AWS machines in Cloud Carbon Footprint's methodology. An idle one, at
0.74 W, is not counted.
"""
BOARD_W = {
    "T4": 70.0,
    "L4": 72.0,
    "V100": 300.0,
    "A10G": 150.0,
    "A100": 400.0,
    "L40S": 350.0,
    "H100": 700.0,
    "H200": 700.0,
    "B200": 1000.0,
}
"""Power of one GPU at full load, by the first word of its name in `pricing/gpus.py` (NVIDIA data sheets)."""
UNKNOWN_BOARD_W = 300.0


def joules(pool: Pool, seconds: float, cpu_s: float, gpu_joules: float | None = None) -> float:
    """Return the energy of a stage that had a pool for `seconds` and used `cpu_s` seconds of its cores, in
    joules.

    `gpu_joules` is what its GPUs measured. When it is None, they count as busy all the time.
    """
    gpus_w = pool.gpu_count * board_w(pool.gpu) if pool.gpu else 0.0
    cores_w = max(0.0, pool.power_w - gpus_w) if pool.power_w else CORE_W * pool.cores
    by_gpus = gpus_w * seconds if gpu_joules is None else gpu_joules
    return by_gpus + cores_w / pool.cores * min(cpu_s, pool.cores * seconds)


def board_w(gpu: str) -> float:
    """Return the power of one GPU at full load, in watts."""
    spec = find_gpu(gpu)
    return BOARD_W.get(spec.name.split()[0], UNKNOWN_BOARD_W) if spec else UNKNOWN_BOARD_W


def resource_usage(
    pool: Pool, seconds: float, cpu_s: float, g_per_kwh: float | None, gpu_joules: float | None = None
) -> ResourceUsage:
    """Return what an attempt has used so far. `g_per_kwh`: grams of CO2 per kWh in its region, None if
    unknown.
    """
    spent_j = joules(pool, seconds, cpu_s, gpu_joules)
    return ResourceUsage(
        joules=round(spent_j, 3),
        core_minutes=round(cpu_s / 60, 6),
        co2_g=None if g_per_kwh is None else round(spent_j / JOULES_PER_KWH * g_per_kwh, 6),
    )
