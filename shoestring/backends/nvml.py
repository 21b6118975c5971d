"""The GPUs of this machine, as NVML sees them: what they are, and what they do."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from shoestring.core.interfaces import ProcessUsage, Telemetry


@dataclass(frozen=True, slots=True)
class FoundGpu:
    name: str
    memory_gb: float


def opened() -> Any:
    """The library (`pynvml`), initialised; None where there is no NVIDIA driver or its Python bindings are not installed."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def handles(nvml: Any) -> list[Any]:
    return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]


def found_gpus() -> list[FoundGpu]:
    """The GPUs of this machine; none where NVML is not there."""
    nvml = opened()
    if nvml is None:
        return []
    try:
        return [
            FoundGpu(str(nvml.nvmlDeviceGetName(handle)), nvml.nvmlDeviceGetMemoryInfo(handle).total / 1e9)
            for handle in handles(nvml)
        ]
    finally:
        nvml.nvmlShutdown()


class NvmlTelemetry:
    """What a process uses, with what the GPUs that its pod can see do beside it: a container is shown its own GPUs alone.

    NVML is opened at the first question, so that a pod that asks none pays nothing for it. `nvml`: an opened library; None: this
    machine's, if there is one.
    """

    def __init__(self, processes: Telemetry, nvml: Any = None) -> None:
        self._processes, self._nvml, self._is_open = processes, nvml, nvml is not None

    def usage(self, pid: int) -> ProcessUsage:
        if not self._is_open:
            self._nvml, self._is_open = opened(), True
        usage, nvml = self._processes.usage(pid), self._nvml
        if nvml is None:
            return usage
        # Cards before Volta count no energy, and a slice of one tells no use: a sum without one of them would be no sum.
        gpus, busy, joules, memory_bytes = handles(nvml), [], [], 0
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
