"""The measured GPU usage of a stage: with two simulated GPUs, and without a driver."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from shoestring.backends.nvml import NvmlTelemetry, open_nvml
from shoestring.backends.processes import PsutilTelemetry
from shoestring.core.types import Pool
from shoestring.runtime.supervisor.attempt import GpuUsage
from shoestring.spending.energy import joules


class NotSupported(Exception):
    """The library's error for a value that a card does not report."""


class TwoGpus:
    """Two GPUs at 50% and 100% utilisation with 1 and 3 GB in use. Each reading adds 250 J to each GPU's
    energy.
    """

    NVMLError = NotSupported

    def __init__(self, reports_energy: bool = True) -> None:
        self.millijoules = 0
        self.reports_energy = reports_energy

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=16 * 10**9, used=(1, 3)[handle] * 10**9)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(gpu=(50, 100)[handle], memory=10)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        if handle and not self.reports_energy:
            raise NotSupported
        self.millijoules += 125_000
        return self.millijoules


def test_gpu_use_is_counted_from_the_first_reading() -> None:
    telemetry, use = NvmlTelemetry(PsutilTelemetry(), TwoGpus()), GpuUsage()
    for _ in range(3):
        use.add_sample(telemetry.usage(os.getpid()))
    assert (use.busy, use.peak_memory_bytes) == (0.75, 4 * 10**9)
    # 125 + 250 at first, then 375 + 500, then 625 + 750.
    assert use.joules == 1000.0
    pool = Pool(name="gpu", cores=4, memory_gb=16, gpu="T4", gpu_count=2, gpu_memory_gb=16, gpu_tflops=65)
    assert joules(pool, 10.0, 0.0, use.joules) == 1000.0
    assert joules(pool, 10.0, 0.0) == 2 * 70.0 * 10


def test_the_energy_is_unknown_if_one_gpu_reports_none() -> None:
    telemetry, use = NvmlTelemetry(PsutilTelemetry(), TwoGpus(reports_energy=False)), GpuUsage()
    use.add_sample(telemetry.usage(os.getpid()))
    assert (use.joules, use.busy) == (None, 0.75)


def test_without_a_driver_only_the_processs_use_is_reported() -> None:
    if open_nvml() is not None:
        pytest.skip("this machine has a GPU")
    use = GpuUsage()
    usage = NvmlTelemetry(PsutilTelemetry()).usage(os.getpid())
    use.add_sample(usage)
    assert usage.rss_bytes > 0 and (usage.gpu_joules, usage.gpu_busy, usage.gpu_memory_bytes) == (
        None,
        None,
        0,
    )
    assert (use.joules, use.busy, use.peak_memory_bytes) == (None, None, 0)
