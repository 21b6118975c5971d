"""GPUs that NVML finds on this machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FoundGpu:
    name: str
    memory_gb: float


def found_gpus() -> list[FoundGpu]:
    """The GPUs of this machine; none where there is no NVIDIA driver or its Python bindings are not installed."""
    try:
        import pynvml
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return [FoundGpu(str(pynvml.nvmlDeviceGetName(handle)), pynvml.nvmlDeviceGetMemoryInfo(handle).total / 1e9) for handle in handles]
    finally:
        pynvml.nvmlShutdown()
