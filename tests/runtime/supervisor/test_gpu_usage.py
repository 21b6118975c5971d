"""The use of an attempt's GPUs: energy from the first sample on, peak memory, and the mean busy share."""

from __future__ import annotations

from shoestring.core.interfaces import ProcessUsage
from shoestring.runtime.supervisor.attempt import GpuUsage


def test_samples_add_up_to_energy_peak_memory_and_a_busy_share_of_four_digits() -> None:
    usage = GpuUsage()
    for joules, memory, busy in ((100.0, 5, 1.0), (130.0, 9, 0.0), (160.0, 7, 1.0)):
        usage.add_sample(ProcessUsage(1.0, 1, gpu_joules=joules, gpu_memory_bytes=memory, gpu_busy=busy))
    assert (usage.joules, usage.peak_memory_bytes, usage.busy) == (60.0, 9, 0.6667)


def test_an_attempt_without_gpus_has_no_energy_and_no_busy_share() -> None:
    usage = GpuUsage()
    usage.add_sample(ProcessUsage(1.0, 1))
    assert usage.joules is None and usage.busy is None
