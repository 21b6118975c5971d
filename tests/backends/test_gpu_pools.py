"""Pools with GPUs: their type by labels or declaration, and nodes whose device plugin has not started."""

from __future__ import annotations

import pytest
from api_objects import by_name, capacity_of, node, only

from shoestring.backends.kubernetes.pools import take_snapshot
from shoestring.backends.kubernetes.world_files import Machine, NodePool


@pytest.mark.parametrize(
    ("labels", "memory_gb", "tflops"),
    [
        ({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu.memory": "81920"}, 85.9, 312.0),
        ({"cloud.google.com/gke-accelerator": "nvidia-l4"}, 24.0, 121.0),
        ({"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}, 80.0, 989.0),
        ({"k8s.amazonaws.com/accelerator": "nvidia-tesla-t4"}, 16.0, 65.0),
        ({}, 0.0, 0.0),
    ],
)
def test_a_gpu_is_identified_by_its_nodes_labels(
    labels: dict[str, str], memory_gb: float, tflops: float
) -> None:
    pools = by_name(
        take_snapshot([node("a", cpu="8.4", memory="32Gi", labels={"pool": "gpu"} | labels, gpus=3)], [], [])
    )
    assert {name: (pool.cores, pool.gpu_count) for name, pool in pools.items()} == {
        "gpu/1gpu": (2, 1),
        "gpu/2gpu": (5, 2),
        "gpu/3gpu": (8, 3),
    }
    pool = pools["gpu/1gpu"]
    assert (round(pool.gpu_memory_gb, 1), pool.gpu_tflops) == (memory_gb, tflops)


def test_the_declaration_of_a_gpu_overrides_its_labels() -> None:
    machine = Machine(
        cores=2, memory_gb=8, gpu="own", gpu_count=2, gpu_memory_gb=12, gpu_tflops=50, core_speed=1.5
    )
    declared = NodePool(name="gpu", labels={"pool": "gpu"}, machine=machine)
    labelled = {"pool": "gpu", "nvidia.com/gpu.product": "NVIDIA-L4"}
    pool = by_name(take_snapshot([node("a", labels=labelled, gpus=2)], [], [declared]))["gpu/1gpu"]
    assert (pool.gpu, pool.gpu_memory_gb, pool.gpu_tflops, pool.core_speed) == ("own", 12, 50, 1.5)


def test_a_gpu_node_without_a_started_device_plugin_has_no_capacity() -> None:
    nodes = [node("a", labels={"pool": "gpu"}, gpus=1), node("b", labels={"pool": "gpu"})]
    pool = only(take_snapshot(nodes, [], []))
    assert (capacity_of(pool).nodes, capacity_of(pool).unschedulable, capacity_of(pool).free_shares) == (
        2,
        1,
        1,
    )
