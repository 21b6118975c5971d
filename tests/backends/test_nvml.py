"""The measured use of GPUs: by recorded readings, by readings that cannot be true, and by none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest

from shoestring.backends.nvml import MAX_BOARD_W, SILENT_S, GpuUsage, open_nvml
from shoestring.core.receipt import GpuUse
from shoestring.core.types import Pool
from shoestring.spending.energy import joules


class NotSupported(Exception):
    """The library's error for a value that a card does not report, and for a card that is gone."""


@dataclass(frozen=True)
class Card:
    """What a GPU reports. None: it does not."""

    busy_percent: int | None = 50
    used_gb: float = 1.0
    total_gb: float = 16.0
    received_kb_per_s: int | None = 2_000_000
    energy_j: float | None = 0.0
    watts: float | None = 100.0


@dataclass
class Gpus:
    """GPUs whose readings a test names. A NVML library, and a clock that a reading does not move."""

    cards: list[Card] = field(default_factory=lambda: [Card()])
    at_s: float = 100.0
    answers: Callable[[], None] = lambda: None
    NVMLError = NotSupported
    NVML_PCIE_UTIL_RX_BYTES = 1

    def nvmlDeviceGetCount(self) -> int:
        self.answers()
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Card:
        return self.cards[index]

    def nvmlDeviceGetMemoryInfo(self, card: Card) -> SimpleNamespace:
        return SimpleNamespace(total=round(card.total_gb * 1e9), used=round(card.used_gb * 1e9))

    def nvmlDeviceGetUtilizationRates(self, card: Card) -> SimpleNamespace:
        return SimpleNamespace(gpu=reported(card.busy_percent), memory=10)

    def nvmlDeviceGetPcieThroughput(self, card: Card, counter: int) -> int:
        assert counter == self.NVML_PCIE_UTIL_RX_BYTES
        return round(reported(card.received_kb_per_s))

    def nvmlDeviceGetTotalEnergyConsumption(self, card: Card) -> int:
        return round(1000 * reported(card.energy_j))

    def nvmlDeviceGetPowerUsage(self, card: Card) -> int:
        return round(1000 * reported(card.watts))


def reported(value: float | None) -> float:
    if value is None:
        raise NotSupported
    return value


def used(*readings: list[Card], every_s: float = 1.0) -> GpuUse:
    """Return the use after some readings."""
    gpus = Gpus()
    usage = GpuUsage(gpus, lambda: gpus.at_s)
    for gpus.cards in readings:
        usage.read()
        gpus.at_s += every_s
    assert usage.use is not None
    return usage.use


def test_use_is_counted_from_the_first_reading_over_all_gpus() -> None:
    first, second = Card(50, 1.0, energy_j=7000), Card(100, 3.0, energy_j=100)
    found = used(
        [first, second],
        [replace(first, energy_j=7150), replace(second, used_gb=9.0, energy_j=350)],
        [replace(first, energy_j=7400, busy_percent=0), replace(second, energy_j=600)],
    )
    assert found == GpuUse(
        busy=0.6667,
        memory_bytes=32 * 10**9,
        peak_memory_bytes=10 * 10**9,
        received_bytes=8 * 10**9,
        joules=900.0,
        watts=450.0,
        energy_from="counter",
    )
    pool = Pool(name="gpu", cores=4, memory_gb=16, gpu="T4", gpu_count=2, gpu_memory_gb=16, gpu_tflops=65)
    assert joules(pool, 10.0, 0.0, found.joules) == 900.0
    assert joules(pool, 10.0, 0.0) == 2 * 70.0 * 10


def test_energy_is_the_sum_of_the_power_where_a_gpu_has_no_counter() -> None:
    old = Card(energy_j=None, watts=60.0)
    found = used([old], [replace(old, watts=100.0)], [old], every_s=10)
    assert (found.joules, found.watts, found.energy_from) == (1600.0, 80.0, "power")
    mixed = used([old, Card(energy_j=0)], [old, Card(energy_j=50)])
    assert (mixed.joules, mixed.energy_from) == (110.0, "power")


@pytest.mark.parametrize("counter_j", [40.0, 100.0 + 2.5 * MAX_BOARD_W])
def test_a_counter_that_falls_or_rises_too_fast_is_not_believed_any_more(counter_j: float) -> None:
    cards = [Card(energy_j=each, watts=80.0) for each in (100.0, 150.0, counter_j, counter_j + 50)]
    found = used(*([each] for each in cards))
    assert (found.joules, found.energy_from) == (50.0 + 80.0 + 80.0, "power")
    silent = used(*([replace(each, watts=None)] for each in cards))
    assert (silent.joules, silent.watts, silent.energy_from) == (None, None, None)


def test_what_one_gpu_does_not_report_is_unknown_for_all() -> None:
    slice_of_a_gpu = Card(busy_percent=None, energy_j=None, watts=None, received_kb_per_s=None)
    found = used([Card(), slice_of_a_gpu], [Card(), slice_of_a_gpu])
    assert (found.busy, found.received_bytes, found.joules, found.watts) == (None, None, None, None)
    assert found.peak_memory_bytes == 2 * 10**9


def test_values_that_cannot_be_true_are_left_out() -> None:
    odd = Card(busy_percent=255, used_gb=99.0, energy_j=-5.0, watts=MAX_BOARD_W + 1)
    found = used([odd], [odd])
    assert (found.busy, found.memory_bytes, found.peak_memory_bytes, found.joules) == (None, 0, 0, None)


def test_a_gpu_more_or_less_makes_the_energy_unknown() -> None:
    found = used([Card(), Card()], [Card()])
    assert found.joules is None


def until(is_so: Callable[[], bool]) -> None:
    due_s = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < due_s
        time.sleep(0.005)


def test_a_library_that_hangs_keeps_nobody_waiting_and_its_sums_become_unknown() -> None:
    gpus, hangs, goes_on = Gpus([Card(energy_j=10.0)]), threading.Event(), threading.Event()

    def answer() -> None:
        if hangs.is_set():
            goes_on.wait(10)

    gpus.answers = answer
    usage = GpuUsage(gpus, lambda: gpus.at_s)
    usage.sample()
    until(lambda: usage.use is not None)
    hangs.set()
    began_s = time.monotonic()
    for _ in range(40):
        gpus.at_s += 1
        usage.sample()
    assert time.monotonic() - began_s < 5
    assert usage.use is not None and usage.joules is None and usage.use.busy is None
    assert gpus.at_s - 100 > SILENT_S and usage.use.peak_memory_bytes == 10**9
    # Its counter has gone on meanwhile.
    hangs.clear()
    gpus.cards = [Card(energy_j=4010.0)]
    goes_on.set()
    usage.sample()
    until(lambda: usage.joules is not None)
    assert usage.joules == 4000.0


def test_a_gpu_that_is_gone_leaves_its_sums_unknown() -> None:
    gpus = Gpus()
    usage = GpuUsage(gpus, lambda: gpus.at_s)
    usage.sample()
    until(lambda: usage.use is not None)

    def gone() -> None:
        raise NotSupported

    gpus.answers = gone
    gpus.at_s += SILENT_S + 1
    usage.sample()
    assert usage.use is not None and usage.use.busy is None and usage.joules is None


def test_without_a_driver_nothing_is_reported() -> None:
    if open_nvml() is not None:
        pytest.skip("this machine has a GPU")
    usage = GpuUsage()
    usage.read()
    assert (usage.use, usage.joules) == (None, None)
