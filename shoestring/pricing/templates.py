"""Templates of world files: this machine, and an example cluster. Plain data, to be written as YAML and
edited.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from importlib import resources
from typing import Any

import yaml

from shoestring.core.record import SCHEMA_VERSION
from shoestring.pricing.gpus import peak_tflops

USD_PER_CORE_HOUR = Decimal("0.04")
USD_PER_GPU_HOUR = Decimal("0.50")


def laptop_world(
    cores: int, memory_gb: float, store: str, as_of: date, gpus: Sequence[tuple[str, float]] = ()
) -> dict[str, Any]:
    """Return a world of one machine: pools of 1, 2, 4, ... and all of its cores, priced by the core-hour.

    If the machine has GPUs, one more pool has its first GPU. `gpus` are (name from the driver, memory in GB).
    """
    sizes = [*(size for power in range(cores.bit_length()) if (size := 2**power) < cores), cores]
    pools: list[dict[str, Any]] = [
        {"name": f"cpu-{size}", "cores": size, "memory_gb": memory_gb} for size in sizes
    ]
    prices = [
        _assumed(f"cpu-{size}", size * USD_PER_CORE_HOUR, f"${USD_PER_CORE_HOUR} a core-hour", as_of)
        for size in sizes
    ]
    for name, gpu_memory_gb in gpus[:1]:
        gpu = {"gpu": name, "gpu_count": 1, "gpu_memory_gb": gpu_memory_gb, "gpu_tflops": peak_tflops(name)}
        pools.append({"name": "gpu-1", "cores": cores, "memory_gb": memory_gb} | gpu)
        what = f"${USD_PER_CORE_HOUR} a core-hour and ${USD_PER_GPU_HOUR} a GPU-hour"
        prices.append(_assumed("gpu-1", cores * USD_PER_CORE_HOUR + USD_PER_GPU_HOUR, what, as_of))
    # The machine's own disk is already paid for. Only a rented store has a price for storage.
    tariffs = {"storage_usd_per_gb_month": "0"}
    return {
        "schema_version": SCHEMA_VERSION,
        "name": "laptop",
        "purpose": "run",
        "store": store,
        "pools": pools,
        "prices": prices,
        "tariffs": tariffs,
    }


def _assumed(pool: str, usd_per_hour: Decimal, what: str, as_of: date) -> dict[str, Any]:
    source = f"assumption: {what}; put your own price here"
    return {
        "pool": pool,
        "market": "on-demand",
        "usd_per_hour": str(usd_per_hour),
        "as_of": as_of,
        "source": source,
    }


def cloud_world(store: str) -> dict[str, Any]:
    """Return an example cluster of CPU and GPU pools, spot and on-demand, at dated list prices.

    Its purpose is `plan`: nothing runs on it.
    """
    example: dict[str, Any] = yaml.safe_load(
        resources.files("shoestring.pricing").joinpath("cloud.yaml").read_text()
    )
    return example | {"store": store}
