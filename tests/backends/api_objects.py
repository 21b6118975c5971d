"""Nodes and pods in the API's JSON, for tests of pools."""

from __future__ import annotations

from typing import Any

from shoestring.backends.kubernetes.node_info import NodeInfo, PodInfo, parse_node, parse_pod
from shoestring.backends.kubernetes.pools import ClusterSnapshot
from shoestring.core.types import NodeCapacity, Pool

Item = dict[str, Any]


def node_item(
    name: str, cpu: str = "4", memory: str = "16Gi", labels: dict[str, str] | None = None, **spec: Any
) -> Item:
    """A ready node. `gpus`, `ready` and `pods` are removed from `spec`."""
    gpus, ready, pods = spec.pop("gpus", 0), spec.pop("ready", True), spec.pop("pods", 110)
    resources = {"cpu": cpu, "memory": memory, "pods": str(pods)} | (
        {"nvidia.com/gpu": str(gpus)} if gpus else {}
    )
    return {
        "metadata": {"name": name, "labels": {"pool": "cpu"} if labels is None else labels},
        "spec": spec,
        "status": {
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}],
        },
    }


def node(
    name: str, cpu: str = "4", memory: str = "16Gi", labels: dict[str, str] | None = None, **spec: Any
) -> NodeInfo:
    return parse_node(node_item(name, cpu, memory, labels, **spec))


def pod_item(
    on: str = "", cpu: str = "0", memory: str = "0", gpus: int = 0, owner: str = "ReplicaSet", **spec: Any
) -> Item:
    """A pod on a node, or a pending pod. `phase` and `labels` are removed from `spec`."""
    labels = spec.pop("labels", {})
    phase = spec.pop("phase", "Running" if on else "Pending")
    requests = {"cpu": cpu, "memory": memory} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    containers = [{"name": "main", "resources": {"requests": requests}}]
    return {
        "metadata": {"name": "pod", "labels": labels, "ownerReferences": [{"kind": owner}]},
        "spec": {"nodeName": on, "containers": containers} | spec,
        "status": {"phase": phase},
    }


def pod(
    on: str = "", cpu: str = "0", memory: str = "0", gpus: int = 0, owner: str = "ReplicaSet", **spec: Any
) -> PodInfo:
    found = parse_pod(pod_item(on, cpu, memory, gpus, owner, **spec))
    assert found
    return found


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> Item:
    return {"key": key, "value": value, "effect": effect}


def capacity_of(pool: Pool) -> NodeCapacity:
    assert pool.capacity
    return pool.capacity


def by_name(seen: ClusterSnapshot) -> dict[str, Pool]:
    return {share.pool.name: share.pool for share in seen.shares}


def only(seen: ClusterSnapshot) -> Pool:
    assert len(seen.shares) == 1, [share.pool.name for share in seen.shares]
    return seen.shares[0].pool
