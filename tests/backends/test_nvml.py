"""The measured GPU usage of a stage: with two simulated GPUs, and without a driver."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from shoestring.backends.nvml import GpuUsage, open_nvml
from shoestring.core.types import Pool
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
        self.busy_percent, self.used_gb = (50, 100), (1, 3)
        self.reports_energy = reports_energy

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=16 * 10**9, used=self.used_gb[handle] * 10**9)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(gpu=self.busy_percent[handle], memory=10)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        if handle and not self.reports_energy:
            raise NotSupported
        self.millijoules += 125_000
        return self.millijoules


def test_gpu_use_is_counted_from_the_first_reading() -> None:
    use = GpuUsage(TwoGpus())
    for _ in range(3):
        use.sample()
    assert (use.busy, use.peak_memory_bytes) == (0.75, 4 * 10**9)
    # 125 + 250 at first, then 375 + 500, then 625 + 750.
    assert use.joules == 1000.0
    pool = Pool(name="gpu", cores=4, memory_gb=16, gpu="T4", gpu_count=2, gpu_memory_gb=16, gpu_tflops=65)
    assert joules(pool, 10.0, 0.0, use.joules) == 1000.0
    assert joules(pool, 10.0, 0.0) == 2 * 70.0 * 10


def test_the_busy_share_is_a_mean_of_four_digits_and_the_memory_is_the_highest() -> None:
    use = GpuUsage(gpus := TwoGpus())
    for gpus.busy_percent, gpus.used_gb in (((100, 100), (1, 8)), ((0, 0), (1, 3)), ((100, 100), (1, 3))):
        use.sample()
    assert (use.busy, use.peak_memory_bytes) == (0.6667, 9 * 10**9)


def test_the_energy_is_unknown_if_one_gpu_reports_none() -> None:
    use = GpuUsage(TwoGpus(reports_energy=False))
    use.sample()
    assert (use.joules, use.busy) == (None, 0.75)


def test_without_a_driver_nothing_is_reported() -> None:
    if open_nvml() is not None:
        pytest.skip("this machine has a GPU")
    use = GpuUsage()
    use.sample()
    assert (use.joules, use.busy, use.peak_memory_bytes) == (None, None, 0)
