"""What GPUs do while a stage runs: of a recording of two, and where there is none."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from shoestring.backends.local import PsutilTelemetry
from shoestring.backends.nvml import NvmlTelemetry, opened
from shoestring.core.types import Pool
from shoestring.runtime.supervisor.gpu_use import GpuUsage
from shoestring.spending.energy import joules


class NotSupported(Exception):
    """As the library says of what a card does not tell."""


class TwoGpus:
    """Busy for 50% and 100%, with 1 and 3 GB in use; each question on energy finds 250 J more on each."""

    NVMLError = NotSupported

    def __init__(self, tells_energy: bool = True) -> None:
        self.millijoules = 0
        self.tells_energy = tells_energy

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=16 * 10**9, used=(1, 3)[handle] * 10**9)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(gpu=(50, 100)[handle], memory=10)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        if handle and not self.tells_energy:
            raise NotSupported
        self.millijoules += 125_000
        return self.millijoules


def test_what_gpus_did_is_counted_from_the_first_look() -> None:
    telemetry, use = NvmlTelemetry(PsutilTelemetry(), TwoGpus()), GpuUsage()
    for _ in range(3):
        use.look(telemetry.usage(os.getpid()))
    assert (use.busy, use.peak_memory_bytes) == (0.75, 4 * 10**9)
    # 125 + 250 at first, then 375 + 500, then 625 + 750.
    assert use.joules == 1000.0
    pool = Pool(name="gpu", cores=4, memory_gb=16, gpu="T4", gpu_count=2, gpu_memory_gb=16, gpu_tflops=65)
    assert joules(pool, 10.0, 0.0, use.joules) == 1000.0
    assert joules(pool, 10.0, 0.0) == 2 * 70.0 * 10


def test_a_sum_without_a_gpu_that_counts_no_energy_is_no_sum() -> None:
    telemetry, use = NvmlTelemetry(PsutilTelemetry(), TwoGpus(tells_energy=False)), GpuUsage()
    use.look(telemetry.usage(os.getpid()))
    assert (use.joules, use.busy) == (None, 0.75)


def test_without_a_driver_a_process_is_all_that_is_told() -> None:
    if opened() is not None:
        pytest.skip("this machine has a GPU")
    use = GpuUsage()
    usage = NvmlTelemetry(PsutilTelemetry()).usage(os.getpid())
    use.look(usage)
    assert usage.rss_bytes > 0 and (usage.gpu_joules, usage.gpu_busy, usage.gpu_memory_bytes) == (
        None,
        None,
        0,
    )
    assert (use.joules, use.busy, use.peak_memory_bytes) == (None, None, 0)
