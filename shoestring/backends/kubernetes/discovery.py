"""Node pools that pools.yaml does not declare, found by the labels that clouds and autoscalers put on their
nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from shoestring.backends.kubernetes.node_info import NodeInfo
from shoestring.backends.kubernetes.world_files import NodePool, Taint
from shoestring.core.types import Market

POOL_LABELS = (
    "shoestring.dev/pool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "kubernetes.azure.com/agentpool",
    "karpenter.sh/nodepool",
    "pool",
    "node.kubernetes.io/instance-type",
)
"""The first of these labels on a node names its pool."""

# A Karpenter pool holds machines of many types from both markets. Shoestring treats each pair of type and
# market as a pool.
KARPENTER_LABEL = "karpenter.sh/nodepool"
KARPENTER_SPLIT_LABELS = ("node.kubernetes.io/instance-type", "karpenter.sh/capacity-type")

SPOT_LABELS = {
    "cloud.google.com/gke-spot": "true",
    "cloud.google.com/gke-preemptible": "true",
    "eks.amazonaws.com/capacityType": "SPOT",
    "karpenter.sh/capacity-type": "spot",
    "kubernetes.azure.com/scalesetpriority": "spot",
}
MARKET_LABEL = "shoestring.dev/market"
NOT_SPOT = [
    {"key": label, "operator": "NotIn", "values": [value]}
    for label, value in (SPOT_LABELS | {MARKET_LABEL: Market.SPOT.value}).items()
]
"""The match expressions of nodes that no label shows as spot, as the Kubernetes API has them."""
REGION_LABEL = "topology.kubernetes.io/region"
ZONE_LABEL = "topology.kubernetes.io/zone"
MACHINE_LABEL = "node.kubernetes.io/instance-type"
PROVIDER_PREFIXES = {
    "cloud.google.com/": "gcp",
    "eks.amazonaws.com/": "aws",
    "karpenter.k8s.aws/": "aws",
    "k8s.amazonaws.com/": "aws",
    "kubernetes.azure.com/": "azure",
}
"""Prefixes of labels that only one provider puts on its nodes."""

CONTROL_PLANE_LABELS = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
TRANSIENT_TAINTS = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "karpenter.sh/",
    "ToBeDeleted",
    "DeletionCandidate",
)
"""Prefixes of taints that a cluster or its autoscaler sets while a node should take no pod.

All other taints belong to the pool.
"""


def node_market(labels: Mapping[str, str]) -> Market:
    """Return the market that a node was bought on; on-demand, unless a label names another market."""
    declared = labels.get(MARKET_LABEL)
    if declared in list(Market):
        return Market(declared)
    is_spot = any(labels.get(label) == value for label, value in SPOT_LABELS.items())
    return Market.SPOT if is_spot else Market.ON_DEMAND


def node_provider(labels: Mapping[str, str]) -> str:
    """Return the cloud that sells a node: gcp, aws or azure; empty if no label shows it."""
    return next(
        (
            name
            for prefix, name in PROVIDER_PREFIXES.items()
            if any(label.startswith(prefix) for label in labels)
        ),
        "",
    )


def is_control_plane(node: NodeInfo) -> bool:
    """Return whether a taint marks this node as part of the control plane."""
    return any(taint.key in CONTROL_PLANE_LABELS for taint in hard_taints(node.taints))


def hard_taints(taints: Sequence[Taint]) -> tuple[Taint, ...]:
    """Return the taints that keep pods off, which PreferNoSchedule does not."""
    return tuple(taint for taint in taints if taint.effect != "PreferNoSchedule")


def pool_labels(node: NodeInfo) -> tuple[tuple[str, str], ...]:
    """Return the labels that select a node's pool; empty if the node is in no pool."""
    for label in POOL_LABELS:
        if label in node.labels:
            splits = KARPENTER_SPLIT_LABELS if label == KARPENTER_LABEL else ()
            return tuple((name, node.labels[name]) for name in (label, *splits) if name in node.labels)
    return ()


def discovered_name(labels: Sequence[tuple[str, str]]) -> str:
    """Return the name of the pool that these labels select; empty without labels."""
    return "-".join(value for _, value in labels)


def pool_of_node(node: NodeInfo, declared: Sequence[NodePool]) -> str:
    """Return the name of a node's pool; empty: it is in none."""
    pool = pool_with_labels(node.labels, declared)
    return pool.name if pool else discovered_name(pool_labels(node))


def pool_with_labels(labels: Mapping[str, str], pools: Sequence[NodePool]) -> NodePool | None:
    """Return the first of these pools all of whose labels are among `labels`; None: there is none."""
    return next((pool for pool in pools if pool.labels.items() <= labels.items()), None)


def discover_pools(
    nodes: Sequence[NodeInfo], declared_names: Sequence[str]
) -> tuple[tuple[NodePool, ...], tuple[str, ...]]:
    """Return the pools that these nodes form, and a sentence for each group of nodes that is not used.

    `declared_names` are the names of declared pools, which a discovered pool must not have.
    """
    groups: dict[tuple[tuple[str, str], ...], list[NodeInfo]] = defaultdict(list)
    for node in nodes:
        if not any(label in node.labels for label in CONTROL_PLANE_LABELS):
            groups[pool_labels(node)].append(node)
    notes, pools = [], {}
    if nameless := sorted(node.name for node in groups.pop((), [])):
        notes.append(
            f"{_node_names(nameless)}: no label names the pool; label the nodes shoestring.dev/pool=NAME to "
            "have them used"
        )
    for labels in sorted(groups):
        pool = _pool_or_error(labels, groups[labels])
        if isinstance(pool, str):
            notes.append(pool)
        elif pool.name in pools or pool.name in declared_names:
            notes.append(
                f"{pool.name} is the name of two node pools; {dict(labels)} is not used: "
                "declare it in pools.yaml under another name"
            )
        else:
            pools[pool.name] = pool
    return tuple(pools.values()), tuple(notes)


def _pool_or_error(labels: tuple[tuple[str, str], ...], nodes: Sequence[NodeInfo]) -> NodePool | str:
    """Return the pool of these nodes, or a sentence with the reason that they form none."""
    name, markets = (
        discovered_name(labels),
        sorted({node_market(node.labels) for node in nodes}),
    )
    if len(markets) > 1:
        return (
            f"{name} has {' and '.join(markets)} nodes: declare two pools in pools.yaml, which differ by a "
            "label"
        )
    taints = {
        taint.model_dump_json(): taint
        for node in nodes
        for taint in hard_taints(node.taints)
        if not taint.key.startswith(TRANSIENT_TAINTS)
    }
    return NodePool(
        name=name,
        labels=dict(labels),
        taints=tuple(taints[key] for key in sorted(taints)),
        market=markets[0],
        region=min(node.labels.get(REGION_LABEL, "local") for node in nodes),
    )


def _node_names(names: Sequence[str]) -> str:
    return f"node {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
