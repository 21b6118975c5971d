"""Nodes and pods as far as they bear on capacity, parsed once from the API's JSON into integers of the
smallest units.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from math import ceil, floor
from typing import Any

from shoestring.backends.kubernetes.world_files import Taint
from shoestring.routing.placement import GPU_RESOURCE, STAGE_LABEL, is_stage

# https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
QUANTITY = re.compile(r"([+-]?[0-9.]+)(?:([eE][+-]?[0-9]+)|([numkMGTPE]|[KMGTPE]i)?)")
SCALES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(1000),
    "": Decimal(1),
}
SCALES |= {prefix: Decimal(1000) ** power for power, prefix in enumerate("MGTPE", 2)}
SCALES |= {f"{prefix}i": Decimal(1024) ** power for power, prefix in enumerate("KMGTPE", 1)}

RESOURCE_SCALES = {"cpu": 1000, "memory": 1, GPU_RESOURCE: 1, "pods": 1}
"""Kubernetes' resources in the order of the fields of NodeResources, and the number of the field's units in
one of the resource's.
"""


@dataclass(frozen=True, slots=True)
class NodeResources:
    """Resources of a node: what it has, what pods request, or what is free."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    gpus: int = 0
    pods: int = 0

    def __add__(self, other: NodeResources) -> NodeResources:
        return NodeResources(*(one + another for one, another in zip(self.values, other.values, strict=True)))

    def __sub__(self, other: NodeResources) -> NodeResources:
        """Return the difference, at least 0 in each field: pods may request more than a node has."""
        return NodeResources(
            *(max(0, one - another) for one, another in zip(self.values, other.values, strict=True))
        )

    def minimum(self, other: NodeResources) -> NodeResources:
        return NodeResources(*map(min, self.values, other.values))

    def maximum(self, other: NodeResources) -> NodeResources:
        return NodeResources(*map(max, self.values, other.values))

    def count_fitting(self, request: NodeResources) -> int:
        """Return how many times `request` fits into these resources."""
        return min(has // asks for has, asks in zip(self.values, request.values, strict=True) if asks)

    @property
    def values(self) -> tuple[int, int, int, int]:
        return self.cpu_milli, self.memory_bytes, self.gpus, self.pods


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node. `is_schedulable`: it is ready, not cordoned and not being deleted."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    is_schedulable: bool
    allocatable: NodeResources


@dataclass(frozen=True, slots=True)
class PodInfo:
    """A pod that is not finished. `node` is empty while it is pending.

    `is_daemon`: it belongs to its node, as a pod of a daemonset or as a static pod.
    """

    node: str
    node_selector: Mapping[str, str]
    requests: NodeResources
    is_daemon: bool


@lru_cache(4096)
def parse_quantity(text: str) -> Decimal:
    """Return a Kubernetes quantity in its base unit. Raises ValueError."""
    found = QUANTITY.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is not a Kubernetes quantity")
    number, exponent, suffix = found.groups()
    return Decimal(number + (exponent or "")) * SCALES[suffix or ""]


def parse_node(item: Mapping[str, Any]) -> NodeInfo:
    meta, spec, status = item["metadata"], item.get("spec") or {}, item.get("status") or {}
    ready = any(
        each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or []
    )
    has = status.get("allocatable") or {}
    return NodeInfo(
        name=meta["name"],
        labels=meta.get("labels") or {},
        taints=tuple(
            Taint(key=each["key"], value=each.get("value") or "", effect=each["effect"])
            for each in spec.get("taints") or []
        ),
        is_schedulable=ready and not spec.get("unschedulable") and not meta.get("deletionTimestamp"),
        allocatable=NodeResources(
            *(floor(parse_quantity(str(has.get(name, 0))) * scale) for name, scale in RESOURCE_SCALES.items())
        ),
    )


def parse_pod(item: Mapping[str, Any]) -> PodInfo | None:
    """Return a pod; None if it is finished, held back from scheduling by a gate, or one of a route or exit
    step.

    Such a step lasts seconds, and each node keeps room for one. If they counted, the router's own pod would
    change its decision.
    """
    meta, spec = item["metadata"], item["spec"]
    if not is_stage((meta.get("labels") or {}).get(STAGE_LABEL, "")):
        return None
    node = spec.get("nodeName") or ""
    if (item.get("status") or {}).get("phase") in ("Succeeded", "Failed") or (
        not node and spec.get("schedulingGates")
    ):
        return None
    owners = {owner["kind"] for owner in meta.get("ownerReferences") or []}
    return PodInfo(
        node, spec.get("nodeSelector") or {}, pod_requests(spec), bool(owners & {"DaemonSet", "Node"})
    )


def pod_requests(spec: Mapping[str, Any]) -> NodeResources:
    """Return what the scheduler reserves for a pod: the larger of its running containers' sum and its init
    phase's peak.

    https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers
    """
    sidecars, init_peak = NodeResources(), NodeResources()
    for container in spec.get("initContainers") or []:
        asks = _requests(container)
        if container.get("restartPolicy") == "Always":
            sidecars += asks
            init_peak = init_peak.maximum(sidecars)
        else:
            init_peak = init_peak.maximum(sidecars + asks)
    running = sum(map(_requests, spec["containers"]), sidecars)
    pod_level = _requests(spec) if (spec.get("resources") or {}).get("requests") else NodeResources()
    overhead = as_resources(spec.get("overhead") or {})
    # Requests of the pod as a whole replace its containers' cpu and memory.
    counted = running.maximum(init_peak)
    counted = NodeResources(
        pod_level.cpu_milli or counted.cpu_milli, pod_level.memory_bytes or counted.memory_bytes, counted.gpus
    )
    return counted + overhead + NodeResources(pods=1)


def _requests(container: Mapping[str, Any]) -> NodeResources:
    return as_resources((container.get("resources") or {}).get("requests") or {})


def as_resources(requests: Mapping[str, Any]) -> NodeResources:
    """Return quantities by the names that Kubernetes has for them. Raises ValueError."""
    return NodeResources(
        *(ceil(parse_quantity(str(requests.get(name, 0))) * scale) for name, scale in RESOURCE_SCALES.items())
    )


def requests_by_node(pods: Iterable[PodInfo]) -> dict[str, NodeResources]:
    """Return the sum of the pods' requests on each node."""
    requested: dict[str, NodeResources] = {}
    for pod in pods:
        requested[pod.node] = requested.get(pod.node, NodeResources()) + pod.requests
    return requested


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Pause Python's search for reference cycles, which takes twice as long as reading 5,000 pods; JSON has
    no cycles.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
