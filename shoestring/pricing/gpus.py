"""Specifications of GPUs, by the names that drivers, labels and price lists give them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """The specification of a GPU.

    `name` is a part of the full name. `memory_gb` is the smallest size sold, for names that hold no size.
    `tflops` is the dense bf16/fp16 peak. `memory_gb_s` is the memory bandwidth in 1e9 bytes/s. `link_gb_s` is
    the bandwidth to the next GPU of the machine, one way: NVLink where cloud machines have it, else PCIe.
    """

    name: str
    memory_gb: float
    tflops: float
    memory_gb_s: float
    link_gb_s: float


# Peaks: Lightning's throughput.py (T4, V100, A10, A10G), Composer's speed_monitor.py (the others). The rest:
# NVIDIA's data sheets.
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
"""An A100 with more memory than this is the 80 GB model."""

UNKNOWN_PEAK_TFLOPS = 20.0
"""Peak of an unknown GPU: that of an entry-level card. Receipts correct it."""


def peak_tflops(gpu: str) -> float:
    """Return the peak of one GPU in TFLOP/s, by its name; `UNKNOWN_PEAK_TFLOPS` for an unknown name."""
    spec = find_gpu(gpu)
    return spec.tflops if spec else UNKNOWN_PEAK_TFLOPS


def gpu_memory_gb(gpu: str) -> float:
    """Return the memory of one GPU in GB, by its name; 0 for an unknown name."""
    size, spec = re.search(r"(\d+)\s?GB", gpu, re.IGNORECASE), find_gpu(gpu)
    return float(size.group(1)) if size else spec.memory_gb if spec else 0.0


def gpu_type(gpu: str, memory_gb: float) -> str:
    """Return the specification's name for a GPU, whatever a driver, a label or a person calls it; else its
    own name.
    """
    spec = _find_by_size(gpu, memory_gb)
    return spec.name if spec else gpu


def memory_gb_s(gpu: str, memory_gb: float) -> float:
    """Return the memory bandwidth of one GPU in 1e9 bytes/s, by its name and size; 0 if unknown."""
    spec = _find_by_size(gpu, memory_gb)
    return spec.memory_gb_s if spec else 0.0


def link_gb_s(gpu: str, memory_gb: float) -> float:
    """Return the bandwidth from one GPU to the next of its machine in 1e9 bytes/s; 0 if unknown."""
    spec = _find_by_size(gpu, memory_gb)
    return spec.link_gb_s if spec else 0.0


def _find_by_size(gpu: str, memory_gb: float) -> GpuSpec | None:
    """Return the specification. There are two A100 models, and the name may not include the size."""
    spec = find_gpu(gpu)
    is_large = spec is not None and spec.name == "A100" and memory_gb > A100_40GB_LIMIT_GB
    return find_gpu("A100 80GB") if is_large else spec


@cache
def find_gpu(gpu: str) -> GpuSpec | None:
    """Return the specification with the longest matching name, or None.

    Labels have hyphens where a driver has spaces. "A100" does not match an A10.
    """
    name = gpu.lower().replace("-", " ")
    matching = [spec for spec in GPUS if re.search(rf"(?<![a-z0-9]){spec.name.lower()}(?![0-9])", name)]
    return max(matching, key=lambda spec: len(spec.name), default=None)
