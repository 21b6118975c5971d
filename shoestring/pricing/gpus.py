"""What GPUs are, by the names that drivers, labels and price lists give them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """`part`: of its name. `memory_gb`: of the smallest that is sold, where the name holds no size.

    `tflops`: dense bf16/fp16 peak. `memory_gb_s`: 1e9 bytes a second between it and its memory. `link_gb_s`: the same to the next GPU of
    its machine, one way: NVLink where the clouds' machines have it, else PCIe.
    """

    part: str
    memory_gb: float
    tflops: float
    memory_gb_s: float
    link_gb_s: float


# Peaks: Lightning's throughput.py (T4, V100, A10, A10G), Composer's speed_monitor.py (the others); the rest: NVIDIA's data sheets.
GPUS = (
    GpuSpec("T4", 16.0, 65.0, 320.0, 16.0),
    GpuSpec("V100", 16.0, 125.0, 900.0, 150.0),
    GpuSpec("A10", 24.0, 125.0, 600.0, 32.0),
    GpuSpec("A10G", 24.0, 125.0, 600.0, 32.0),
    GpuSpec("L4", 24.0, 121.0, 300.0, 32.0),
    GpuSpec("L40S", 48.0, 362.0, 864.0, 32.0),
    GpuSpec("A100", 40.0, 312.0, 1555.0, 300.0),
    GpuSpec("A100 80GB", 80.0, 312.0, 2039.0, 300.0),
    GpuSpec("H100 PCIe", 80.0, 756.0, 2000.0, 64.0),
    GpuSpec("H100 NVL", 94.0, 835.0, 3900.0, 300.0),
    GpuSpec("H100", 80.0, 989.0, 3350.0, 450.0),
    GpuSpec("H200", 141.0, 989.0, 4800.0, 450.0),
    GpuSpec("B200", 180.0, 2250.0, 8000.0, 900.0),
)

A100_40GB_LIMIT_GB = 48.0

UNKNOWN_PEAK_TFLOPS = 20.0
"""An entry-level card; receipts correct it."""


def peak_tflops(gpu: str) -> float:
    """Peak of one GPU in TFLOP/s, by its name; an entry-level card's when the name says nothing."""
    known = find_gpu(gpu)
    return known.tflops if known else UNKNOWN_PEAK_TFLOPS


def gpu_memory_gb(gpu: str) -> float:
    """Memory of one GPU in GB, by its name; 0 when the name says nothing."""
    said, known = re.search(r"(\d+)\s?GB", gpu, re.IGNORECASE), find_gpu(gpu)
    return float(said.group(1)) if said else known.memory_gb if known else 0.0


def gpu_type(gpu: str, memory_gb: float) -> str:
    """What a GPU is, whatever a driver, a label or a person calls it; its own name where that says nothing."""
    known = _find_by_size(gpu, memory_gb)
    return known.part if known else gpu


def memory_gb_s(gpu: str, memory_gb: float) -> float:
    """1e9 bytes a second between one GPU and its memory, by its name and size; 0 when they say nothing."""
    known = _find_by_size(gpu, memory_gb)
    return known.memory_gb_s if known else 0.0


def link_gb_s(gpu: str, memory_gb: float) -> float:
    """1e9 bytes a second from one GPU to the next of its machine; 0 when its name says nothing."""
    known = _find_by_size(gpu, memory_gb)
    return known.link_gb_s if known else 0.0


def _find_by_size(gpu: str, memory_gb: float) -> GpuSpec | None:
    """An A100 is two: its name may not say which."""
    known = find_gpu(gpu)
    return (
        find_gpu("A100 80GB")
        if known and known.part == "A100" and memory_gb > A100_40GB_LIMIT_GB
        else known
    )


@cache
def find_gpu(gpu: str) -> GpuSpec | None:
    """Of the parts that fit, the longest one's. Labels have hyphens where a driver has spaces; an A100 is no A10."""
    name = gpu.lower().replace("-", " ")
    fitting = [each for each in GPUS if re.search(rf"(?<![a-z0-9]){each.part.lower()}(?![0-9])", name)]
    return max(fitting, key=lambda each: len(each.part), default=None)
