"""The state of a node pool: its nodes, what they can give to stages, and what is free on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from math import ceil

from shoestring.backends.kubernetes.discovery import MACHINE_LABEL, hard_taints
from shoestring.backends.kubernetes.node_info import NodeInfo, NodeResources, as_resources
from shoestring.backends.kubernetes.world_files import Machine, NodePool
from shoestring.routing.placement import STEP_REQUESTS

ENGINE_OVERHEAD = NodeResources(cpu_milli=50, memory_bytes=64 << 20, pods=1)
"""What a stage's pod requests in addition to the stage, for an engine's own containers.

KFP's executor requests 10m and 32Mi.
"""

STEP_POD = as_resources(STEP_REQUESTS) + NodeResources(pods=1)
"""What the pod of a route or exit step requests."""

USABLE_MEMORY = Fraction(15, 16)


@dataclass(frozen=True, slots=True)
class NodePoolState:
    """A node pool and its nodes.

    `usable`: what a node gives to stages. `free`: what is free for them on each schedulable node; None if
    nodes may not be read. Both are without the room for a route or exit step.
    """

    pool: NodePool
    labels: Mapping[str, str]
    usable: NodeResources
    nodes: int = 0
    free: tuple[NodeResources, ...] | None = None
    pending_pods: int = 0
    machines: frozenset[str] = frozenset()

    @property
    def machine(self) -> str:
        """The name of a node in price lists; empty if the pool has nodes of several machine types, or none
        yet.
        """
        declared = (self.pool.machine and self.pool.machine.name) or self.pool.labels.get(MACHINE_LABEL)
        return declared or (next(iter(self.machines)) if len(self.machines) == 1 else "")

    @property
    def cores(self) -> int:
        return (self.usable - ENGINE_OVERHEAD).cpu_milli // 1000


def pool_state(
    pool: NodePool,
    nodes: Sequence[NodeInfo],
    requested: Mapping[str, NodeResources],
    daemons: Mapping[str, NodeResources],
    pending: Sequence[Mapping[str, str]],
) -> NodePoolState:
    max_gpus = max(
        [node.allocatable.gpus for node in nodes] + [pool.machine.gpu_count if pool.machine else 0]
    )
    # A node without its pool's GPUs is a node whose device plugin has not started yet.
    complete = [node for node in nodes if node.allocatable.gpus or not max_gpus]
    schedulable = [node for node in complete if _takes_pods(node, pool)]
    # Without a schedulable node, the others give the sizes of the shares, so that refusals can name the
    # shares.
    measured = schedulable or ([] if pool.machine else complete)
    # A route or exit step tolerates no taint.
    room = NodeResources() if hard_taints(pool.taints) else STEP_POD
    usable = [node.allocatable - daemons.get(node.name, NodeResources()) - room for node in measured]
    labels = {**measured[0].labels, **pool.labels} if measured else pool.labels
    return NodePoolState(
        pool=pool,
        labels=labels,
        usable=reduce(NodeResources.minimum, usable) if usable else machine_resources(pool.machine),
        nodes=len(nodes),
        free=tuple(
            node.allocatable - requested.get(node.name, NodeResources()) - room for node in schedulable
        ),
        pending_pods=sum(selector.items() <= labels.items() for selector in pending),
        machines=frozenset(node.labels.get(MACHINE_LABEL, "") for node in nodes),
    )


def _takes_pods(node: NodeInfo, pool: NodePool) -> bool:
    return node.is_schedulable and set(hard_taints(node.taints)) <= set(pool.taints)


def machine_resources(machine: Machine | None) -> NodeResources:
    """Return the resources of a node whose largest share is what the machine is declared to give."""
    if not machine:
        return NodeResources()
    memory_bytes = ceil((round(machine.memory_gb * 1e9) + ENGINE_OVERHEAD.memory_bytes) / USABLE_MEMORY)
    cpu_milli = machine.cores * 1000 + ENGINE_OVERHEAD.cpu_milli
    return NodeResources(cpu_milli, memory_bytes, machine.gpu_count, ENGINE_OVERHEAD.pods)
