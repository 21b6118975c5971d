"""The predicted seconds on cores, one GPU, several GPUs, and many pools at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoestring.core.types import Need, Pool
from shoestring.pricing import throughput
from shoestring.pricing.throughput import (
    GPU_EFFICIENCY,
    MEMORY_EFFICIENCY,
    PoolArrays,
    hardware_of,
    setup_seconds,
    uses_gpu,
)

GPU = Pool(name="gpu", cores=4, memory_gb=16, gpu_count=1, gpu_memory_gb=16, gpu_tflops=65)
EIGHT = Pool(
    name="eight",
    cores=96,
    memory_gb=600,
    gpu="NVIDIA A100-SXM4-40GB",
    gpu_count=8,
    gpu_memory_gb=40,
    gpu_tflops=312,
)
LARGE = Need(stage="s", gpu="must", gpu_flop_per_row=1e12, max_gpus=64, step_rows=10, sync_bytes=1e9)


def row_seconds(need: Need, pool: Pool) -> float:
    return float(throughput.row_seconds(need, PoolArrays.from_pools([pool]))[0])


def test_more_cores_speed_up_the_parallel_share_only() -> None:
    need = Need(stage="s", cpu_us_per_row=1000.0, parallel_fraction=0.75)
    assert row_seconds(need, Pool(name="p", cores=1, memory_gb=1)) == pytest.approx(1e-3)
    assert row_seconds(need, Pool(name="p", cores=3, memory_gb=1)) == pytest.approx(0.5e-3)
    assert row_seconds(need, Pool(name="p", cores=3, memory_gb=1, core_speed=2)) == pytest.approx(0.25e-3)
    machines = PoolArrays.from_pools([Pool(name="p", cores=4, memory_gb=1, core_speed=2)])
    assert setup_seconds(Need(stage="s", setup_s=6), machines).tolist() == [3]


def test_a_gpu_is_as_fast_as_its_arithmetic_or_as_its_host() -> None:
    need = Need(stage="s", cpu_us_per_row=1000.0, parallel_fraction=0.9, gpu="may", gpu_flop_per_row=1e10)
    assert row_seconds(need, GPU) == pytest.approx(1e10 / (65e12 * 0.3))
    assert row_seconds(need.model_copy(update={"gpu_flop_per_row": 1.0}), GPU) == pytest.approx(1e-4)


def test_a_gpu_is_limited_by_its_memory_bandwidth_if_known() -> None:
    need = Need(stage="s", gpu="must", gpu_flop_per_row=1e6, gpu_bytes_per_row=1e9)
    assert row_seconds(need, GPU) == pytest.approx(1e6 / (65e12 * GPU_EFFICIENCY))
    by_name = GPU.model_copy(update={"gpu": "Tesla-T4"})
    arithmetic_s = row_seconds(need, GPU)
    assert row_seconds(need, by_name) == pytest.approx(arithmetic_s + 1 / (320 * MEMORY_EFFICIENCY))
    declared = by_name.model_copy(update={"gpu_memory_gb_s": 160.0})
    assert row_seconds(need, declared) == pytest.approx(arithmetic_s + 1 / (160 * MEMORY_EFFICIENCY))


@pytest.mark.parametrize(
    ("fields", "used"),
    [
        ({"gpu": "no", "gpu_flop_per_row": 1.0}, False),
        ({"gpu": "may", "gpu_flop_per_row": 1.0}, True),
        ({"gpu": "may"}, False),
        ({"gpu": "must"}, True),
        ({"gpu": "must", "gpu_memory_gb": 24.0}, False),
    ],
)
def test_a_gpu_is_used_if_the_stage_can_and_it_is_large_enough(fields: dict[str, Any], used: bool) -> None:
    assert uses_gpu(Need(stage="s", **fields), GPU) is used


def test_a_stage_that_uses_one_gpu_is_priced_for_one() -> None:
    one = LARGE.model_copy(update={"max_gpus": 1})
    assert row_seconds(one, EIGHT) == pytest.approx(1e12 / (312e12 * GPU_EFFICIENCY))
    assert hardware_of(one, EIGHT).name == "1 x A100"
    assert hardware_of(LARGE, EIGHT).name == "8 x A100"


def test_several_gpus_synchronise() -> None:
    alone = 1e12 / (312e12 * GPU_EFFICIENCY)
    sync_s = 1e9 * 2 * 7 / 8 / (300e9 * MEMORY_EFFICIENCY)
    assert row_seconds(LARGE, EIGHT) == pytest.approx(((10 * alone) ** 2 + sync_s**2) ** 0.5 / 80)
    slow_links = EIGHT.model_copy(update={"gpu_link_gb_s": 1.0})
    assert row_seconds(LARGE, slow_links) > row_seconds(LARGE, EIGHT) > alone / 8


@given(st.integers(1, 16), st.floats(0, 1e10), st.integers(1, 1000))
def test_more_machines_never_speed_up_more_than_linearly(nodes: int, sync_bytes: float, rows: int) -> None:
    need = LARGE.model_copy(update={"max_gpus": 1024, "sync_bytes": sync_bytes, "step_rows": rows})
    one, several = (row_seconds(need, EIGHT.model_copy(update={"nodes": count})) for count in (1, nodes))
    assert several * nodes >= one * (1 - 1e-9)


@given(
    st.lists(
        st.sampled_from([GPU, EIGHT, Pool(name="p", cores=3, memory_gb=1, core_speed=2)]),
        min_size=1,
        max_size=5,
    )
)
def test_many_pools_take_as_long_as_each_alone(pools: list[Pool]) -> None:
    need = LARGE.model_copy(
        update={"gpu": "may", "cpu_us_per_row": 1000.0, "parallel_fraction": 0.5, "gpu_bytes_per_row": 1e8}
    )
    together = throughput.row_seconds(need, PoolArrays.from_pools(pools))
    assert np.all(np.isfinite(together)) and together.tolist() == [row_seconds(need, pool) for pool in pools]


def test_an_a100_is_identified_by_its_memory_and_cores_by_their_speed() -> None:
    large = EIGHT.model_copy(update={"gpu": "NVIDIA-A100-SXM4-80GB", "gpu_memory_gb": 85.9})
    assert (hardware_of(LARGE, large).type, hardware_of(LARGE, large).gb_s) == ("A100 80GB", 2039.0)
    assert hardware_of(Need(stage="s"), EIGHT).name == "96 x 1 Gop/s core"
    unnamed = hardware_of(LARGE, GPU)
    assert (unnamed.type, unnamed.gb_s) == ("GPU", 0.0)
