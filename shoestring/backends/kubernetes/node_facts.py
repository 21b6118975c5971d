"""What of nodes and pods bears on room: parsed once from what the API says, whole numbers in the smallest units."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from math import ceil, floor
from typing import Any

from shoestring.backends.kubernetes.world_files import Taint
from shoestring.routing.placement import GPU_RESOURCE

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

RESOURCES = {"cpu": 1000, "memory": 1, GPU_RESOURCE: 1, "pods": 1}
"""What is counted of a node, in the order of an Amount's fields, and how many of those units one is."""


@dataclass(frozen=True, slots=True)
class Amount:
    """How much of a node: what it has, what pods ask for, or what is left."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    gpus: int = 0
    pods: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(*(one + another for one, another in zip(self.parts, other.parts, strict=True)))

    def __sub__(self, other: Amount) -> Amount:
        """Never less than nothing: what is asked of a node may be more than it has."""
        return Amount(*(max(0, one - another) for one, another in zip(self.parts, other.parts, strict=True)))

    def least(self, other: Amount) -> Amount:
        return Amount(*map(min, self.parts, other.parts))

    def most(self, other: Amount) -> Amount:
        return Amount(*map(max, self.parts, other.parts))

    def times(self, other: Amount) -> int:
        """How many of `other` this holds."""
        return min(has // asks for has, asks in zip(self.parts, other.parts, strict=True) if asks)

    @property
    def parts(self) -> tuple[int, int, int, int]:
        return self.cpu_milli, self.memory_bytes, self.gpus, self.pods


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node. `takes_pods`: neither cordoned, nor on its way out, and ready."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    takes_pods: bool
    allocatable: Amount


@dataclass(frozen=True, slots=True)
class PodFacts:
    """A pod that is not finished. `node` is empty while it waits; `stays`: it belongs to the node (a daemonset's, or the node's own)."""

    node: str
    node_selector: Mapping[str, str]
    requests: Amount
    stays: bool


@lru_cache(4096)
def quantity(text: str) -> Decimal:
    """A Kubernetes quantity in units. Raises ValueError."""
    found = QUANTITY.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is not a Kubernetes quantity")
    number, exponent, suffix = found.groups()
    return Decimal(number + (exponent or "")) * SCALES[suffix or ""]


def node_facts(item: Mapping[str, Any]) -> NodeFacts:
    meta, spec, status = item["metadata"], item.get("spec") or {}, item.get("status") or {}
    ready = any(
        each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or []
    )
    has = status.get("allocatable") or {}
    return NodeFacts(
        name=meta["name"],
        labels=meta.get("labels") or {},
        taints=tuple(
            Taint(key=each["key"], value=each.get("value") or "", effect=each["effect"])
            for each in spec.get("taints") or []
        ),
        takes_pods=ready and not spec.get("unschedulable") and not meta.get("deletionTimestamp"),
        allocatable=Amount(
            *(floor(quantity(str(has.get(name, 0))) * scale) for name, scale in RESOURCES.items())
        ),
    )


def pod_facts(item: Mapping[str, Any]) -> PodFacts | None:
    """None for a pod that is finished, or that is not to be scheduled yet."""
    meta, spec = item["metadata"], item["spec"]
    node = spec.get("nodeName") or ""
    if (item.get("status") or {}).get("phase") in ("Succeeded", "Failed") or (
        not node and spec.get("schedulingGates")
    ):
        return None
    owners = {owner["kind"] for owner in meta.get("ownerReferences") or []}
    return PodFacts(
        node, spec.get("nodeSelector") or {}, pod_requests(spec), bool(owners & {"DaemonSet", "Node"})
    )


def pod_requests(spec: Mapping[str, Any]) -> Amount:
    """What the scheduler counts for a pod: its containers together, or the largest moment of its start, whichever is more.

    https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers
    """
    sidecars, starting = Amount(), Amount()
    for container in spec.get("initContainers") or []:
        asks = _requests(container)
        if container.get("restartPolicy") == "Always":
            sidecars += asks
            starting = starting.most(sidecars)
        else:
            starting = starting.most(sidecars + asks)
    running = sum(map(_requests, spec["containers"]), sidecars)
    whole = _requests(spec) if (spec.get("resources") or {}).get("requests") else Amount()
    overhead = _amount(spec.get("overhead") or {})
    # Where the pod as a whole says what it asks for, that stands for its containers' cpu and memory.
    counted = running.most(starting)
    counted = Amount(
        whole.cpu_milli or counted.cpu_milli, whole.memory_bytes or counted.memory_bytes, counted.gpus
    )
    return counted + overhead + Amount(pods=1)


def _requests(container: Mapping[str, Any]) -> Amount:
    return _amount((container.get("resources") or {}).get("requests") or {})


def _amount(asked: Mapping[str, Any]) -> Amount:
    return Amount(*(ceil(quantity(str(asked.get(name, 0))) * scale) for name, scale in RESOURCES.items()))


def totals(pods: Iterable[PodFacts]) -> dict[str, Amount]:
    """Node -> what its pods ask for."""
    asked: dict[str, Amount] = {}
    for pod in pods:
        asked[pod.node] = asked.get(pod.node, Amount()) + pod.requests
    return asked
