"""World files to begin with: this machine, and an example of a cluster. Plain data, to be written as YAML and edited by a person."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from importlib import resources
from typing import Any

import yaml

USD_PER_CORE_HOUR = Decimal("0.04")
USD_PER_GPU_HOUR = Decimal("0.50")

PEAK_TFLOPS = {
    "T4": 65.0,
    "V100": 125.0,
    "A10G": 125.0,
    "L40S": 362.0,
    "L4": 121.0,
    "A100": 312.0,
    "H100 PCIe": 756.0,
    "H100": 989.0,
    "H200": 989.0,
    "B200": 2250.0,
}
"""Dense fp16/bf16 peaks by a part of the name the driver gives; of several parts that fit, the longest (Lightning's throughput.py,
Composer's speed_monitor.py)."""

MEMORY_GB = {
    "T4": 16.0,
    "V100": 16.0,
    "A10G": 24.0,
    "L40S": 48.0,
    "L4": 24.0,
    "A100": 40.0,
    "H100": 80.0,
    "H200": 141.0,
    "B200": 180.0,
}
"""Of one GPU, by a part of its name, where the name itself holds no size: the smallest that is sold (NVIDIA's data sheets)."""

MEMORY_GB_S = {
    "T4": 320.0,
    "V100": 900.0,
    "A10G": 600.0,
    "L40S": 864.0,
    "L4": 300.0,
    "A100": 1555.0,
    "A100 80GB": 2039.0,
    "H100 PCIe": 2000.0,
    "H100": 3350.0,
    "H200": 4800.0,
    "B200": 8000.0,
}
"""1e9 bytes a second between one GPU and its memory, by the same names; an A100 with more than 48 GB is "A100 80GB" (data sheets)."""

LINK_GB_S = {
    "T4": 16.0,
    "V100": 150.0,
    "A10G": 32.0,
    "L40S": 32.0,
    "L4": 32.0,
    "A100": 300.0,
    "A100 80GB": 300.0,
    "H100 PCIe": 64.0,
    "H100": 450.0,
    "H200": 450.0,
    "B200": 900.0,
}
"""1e9 bytes a second from one GPU to another of its machine, one way: NVLink where the cloud's machines have it, else PCIe."""

LARGEST_SMALL_A100_GB = 48.0

UNKNOWN_PEAK_TFLOPS = 20.0
"""An entry-level card; receipts correct it."""


def laptop_world(cores: int, memory_gb: float, store: str, as_of: date, gpus: Sequence[tuple[str, float]] = ()) -> dict[str, Any]:
    """One machine as pools of 1, 2, 4, ... and all of its cores, priced by the core-hour; and a pool with its first GPU, if it has one.

    `gpus` are (name as the driver gives it, memory in GB).
    """
    sizes = [*(size for power in range(cores.bit_length()) if (size := 2**power) < cores), cores]
    pools: list[dict[str, Any]] = [{"name": f"cpu-{size}", "cores": size, "memory_gb": memory_gb} for size in sizes]
    prices = [_assumed(f"cpu-{size}", size * USD_PER_CORE_HOUR, f"${USD_PER_CORE_HOUR} a core-hour", as_of) for size in sizes]
    for name, gpu_memory_gb in gpus[:1]:
        gpu = {"gpu": name, "gpu_count": 1, "gpu_memory_gb": gpu_memory_gb, "gpu_tflops": peak_tflops(name)}
        pools.append({"name": "gpu-1", "cores": cores, "memory_gb": memory_gb} | gpu)
        what = f"${USD_PER_CORE_HOUR} a core-hour and ${USD_PER_GPU_HOUR} a GPU-hour"
        prices.append(_assumed("gpu-1", cores * USD_PER_CORE_HOUR + USD_PER_GPU_HOUR, what, as_of))
    # The machine's own disk is paid for already; only a store that is rented has a price for holding.
    tariffs = {"storage_usd_per_gb_month": "0"}
    return {"schema_version": 1, "name": "laptop", "purpose": "run", "store": store, "pools": pools, "prices": prices, "tariffs": tariffs}


def _assumed(pool: str, usd_per_hour: Decimal, what: str, as_of: date) -> dict[str, Any]:
    source = f"assumption: {what}; put your own price here"
    return {"pool": pool, "market": "on-demand", "usd_per_hour": str(usd_per_hour), "as_of": as_of, "source": source}


def peak_tflops(gpu: str) -> float:
    """Peak of one GPU in TFLOP/s, by its name; an entry-level card's when the name says nothing."""
    return _by_name(PEAK_TFLOPS, gpu) or UNKNOWN_PEAK_TFLOPS


def gpu_type(gpu: str, memory_gb: float) -> str:
    """What a GPU is, whatever a driver, a label or a person calls it; its own name where that says nothing."""
    part = _part(MEMORY_GB_S, gpu)
    return "A100 80GB" if part == "A100" and memory_gb > LARGEST_SMALL_A100_GB else part or gpu


def memory_gb_s(gpu: str, memory_gb: float) -> float:
    """1e9 bytes a second between one GPU and its memory, by its name and size; 0 when they say nothing."""
    return MEMORY_GB_S.get(gpu_type(gpu, memory_gb), 0.0)


def link_gb_s(gpu: str, memory_gb: float) -> float:
    """1e9 bytes a second from one GPU to the next of its machine; 0 when its name says nothing."""
    return LINK_GB_S.get(gpu_type(gpu, memory_gb), 0.0)


def gpu_memory_gb(gpu: str) -> float:
    """Memory of one GPU in GB, by its name; 0 when the name says nothing."""
    said = re.search(r"(\d+)\s?GB", gpu, re.IGNORECASE)
    return float(said.group(1)) if said else _by_name(MEMORY_GB, gpu)


def _by_name(table: Mapping[str, float], gpu: str) -> float:
    return table.get(_part(table, gpu), 0.0)


def _part(table: Mapping[str, float], gpu: str) -> str:
    """Of the parts that fit, the longest. Labels have hyphens where a driver has spaces."""
    return max((part for part in table if part.lower() in gpu.lower().replace("-", " ")), key=len, default="")


def cloud_world(store: str) -> dict[str, Any]:
    """An example cluster of CPU and GPU pools, spot and on-demand, at dated list prices. Its purpose is `plan`: nothing runs on it."""
    example: dict[str, Any] = yaml.safe_load(resources.files("shoestring.pricing").joinpath("cloud.yaml").read_text())
    return example | {"store": store}
