"""The GPUs of this machine as NVML reports them: their types and their current use."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from shoestring.core.interfaces import ProcessUsage, Telemetry


@dataclass(frozen=True, slots=True)
class InstalledGpu:
    """A GPU of this machine."""

    name: str
    memory_gb: float


def open_nvml() -> Any:
    """Return the initialised library `pynvml`; None without an NVIDIA driver or its Python bindings."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def device_handles(nvml: Any) -> list[Any]:
    return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]


def list_gpus() -> list[InstalledGpu]:
    """Return the GPUs of this machine; an empty list without NVML."""
    nvml = open_nvml()
    if nvml is None:
        return []
    try:
        return [
            InstalledGpu(
                str(nvml.nvmlDeviceGetName(handle)), nvml.nvmlDeviceGetMemoryInfo(handle).total / 1e9
            )
            for handle in device_handles(nvml)
        ]
    finally:
        nvml.nvmlShutdown()


class NvmlTelemetry:
    """A process's use of CPU and memory, with that of all GPUs that its pod can see.

    A container sees only its own GPUs.

    `nvml` is an initialised library; None: NVML is opened at the first call of `usage`, so that a pod that
    never calls it pays nothing.
    """

    def __init__(self, processes: Telemetry, nvml: Any = None) -> None:
        self._processes, self._nvml, self._is_open = processes, nvml, nvml is not None

    def usage(self, pid: int) -> ProcessUsage:
        if not self._is_open:
            self._nvml, self._is_open = open_nvml(), True
        usage, nvml = self._processes.usage(pid), self._nvml
        if nvml is None:
            return usage
        # Cards older than Volta report no energy, and MIG slices report no utilisation. A sum that lacks a
        # card would be wrong, so it is None.
        gpus, busy, joules, memory_bytes = device_handles(nvml), [], [], 0
        for handle in gpus:
            with suppress(nvml.NVMLError):
                memory_bytes += nvml.nvmlDeviceGetMemoryInfo(handle).used
            with suppress(nvml.NVMLError):
                busy.append(nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100)
            with suppress(nvml.NVMLError):
                joules.append(nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000)
        return replace(
            usage,
            gpu_memory_bytes=memory_bytes,
            gpu_busy=sum(busy) / len(busy) if gpus and len(busy) == len(gpus) else None,
            gpu_joules=sum(joules) if gpus and len(joules) == len(gpus) else None,
        )
