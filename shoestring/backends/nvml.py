"""The GPUs of this machine as NVML reports them: their types and their current use."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any


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


def pytorch_without_cuda() -> str:
    """Return why PyTorch as it is installed here trains on no GPU; "" if it can, or is not installed.

    It is not imported, which would take longer than most commands.
    """
    found = find_spec("torch")
    version = Path(found.origin).parent / "version.py" if found and found.origin else None
    if version is None or not version.is_file():
        return ""
    built = dict(re.findall(r"^(\w+)\b[^=\n]*= (.+)$", version.read_text(), re.MULTILINE))
    if (built.get("cuda"), built.get("hip", "None")) != ("None", "None"):
        return ""
    number = built.get("__version__", "").strip("'")
    return (
        f"networks are trained on the cores of this machine: its PyTorch, {number}, is built without CUDA. "
        "Install a build for CUDA to train them on its GPUs"
    )


@dataclass(slots=True)
class GpuUsage:
    """The use of all GPUs that an attempt can see, sampled once a second. A container sees only its own.

    `joules` counts from the first sample; None where a GPU counts no energy. `busy` is the mean share of the
    time in which the GPUs computed; None where a GPU does not report it. `nvml` is an initialised library;
    None: NVML is opened at the first sample.
    """

    nvml: Any = None
    joules: float | None = None
    peak_memory_bytes: int = 0
    _is_open: bool = False
    _first_joules: float | None = None
    _busy_sum: float = 0.0
    _busy_samples: int = 0

    def sample(self) -> None:
        if not self._is_open:
            self.nvml, self._is_open = self.nvml or open_nvml(), True
        nvml = self.nvml
        if nvml is None:
            return
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
        self.peak_memory_bytes = max(self.peak_memory_bytes, memory_bytes)
        if gpus and len(joules) == len(gpus):
            self._first_joules = sum(joules) if self._first_joules is None else self._first_joules
            self.joules = sum(joules) - self._first_joules
        if gpus and len(busy) == len(gpus):
            self._busy_sum, self._busy_samples = (
                self._busy_sum + sum(busy) / len(gpus),
                self._busy_samples + 1,
            )

    @property
    def busy(self) -> float | None:
        return round(self._busy_sum / self._busy_samples, 4) if self._busy_samples else None
