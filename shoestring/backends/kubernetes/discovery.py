"""Node pools that nobody declared, by the labels that clouds and autoscalers put on their nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from shoestring.backends.kubernetes.node_facts import NodeFacts
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
"""The first of these that a node carries names its pool."""

# Karpenter's pool holds machines of many types, bought on both markets; for us each pair is a pool.
KARPENTER = "karpenter.sh/nodepool"
KARPENTER_SPLITS = ("node.kubernetes.io/instance-type", "karpenter.sh/capacity-type")

SPOT_LABELS = {
    "cloud.google.com/gke-spot": "true",
    "cloud.google.com/gke-preemptible": "true",
    "eks.amazonaws.com/capacityType": "SPOT",
    "karpenter.sh/capacity-type": "spot",
    "kubernetes.azure.com/scalesetpriority": "spot",
}
MARKET_LABEL = "shoestring.dev/market"
REGION_LABEL = "topology.kubernetes.io/region"
ZONE_LABEL = "topology.kubernetes.io/zone"
MACHINE_LABEL = "node.kubernetes.io/instance-type"
PROVIDER_LABELS = {
    "cloud.google.com/": "gcp",
    "eks.amazonaws.com/": "aws",
    "karpenter.k8s.aws/": "aws",
    "k8s.amazonaws.com/": "aws",
    "kubernetes.azure.com/": "azure",
}
"""How labels begin that only one provider puts on its nodes."""

CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
# What a cluster and its autoscalers taint a node with while it should take no pod. Everything else is its pool's own.
PASSING_TAINTS = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "karpenter.sh/",
    "ToBeDeleted",
    "DeletionCandidate",
)


def market_of(labels: Mapping[str, str]) -> Market:
    """On-demand, where no label says otherwise."""
    said = labels.get(MARKET_LABEL)
    if said in list(Market):
        return Market(said)
    spot = any(labels.get(label) == value for label, value in SPOT_LABELS.items())
    return Market.SPOT if spot else Market.ON_DEMAND


def provider_of(labels: Mapping[str, str]) -> str:
    """Who sells these nodes; empty where no label tells."""
    return next(
        (name for start, name in PROVIDER_LABELS.items() if any(label.startswith(start) for label in labels)),
        "",
    )


def runs_the_cluster(node: NodeFacts) -> bool:
    """A node of the control plane that keeps pods off."""
    return any(taint.key in CONTROL_PLANE for taint in hard(node.taints))


def hard(taints: Sequence[Taint]) -> tuple[Taint, ...]:
    return tuple(taint for taint in taints if taint.effect != "PreferNoSchedule")


def identity(node: NodeFacts) -> tuple[tuple[str, str], ...]:
    """The labels that a node's pool is selected by; none: it is in no pool."""
    for label in POOL_LABELS:
        if label in node.labels:
            splits = KARPENTER_SPLITS if label == KARPENTER else ()
            return tuple((name, node.labels[name]) for name in (label, *splits) if name in node.labels)
    return ()


def discovered(
    nodes: Sequence[NodeFacts], taken: Sequence[str]
) -> tuple[tuple[NodePool, ...], tuple[str, ...]]:
    """Pools of these nodes, by name, and a sentence on each group that is not used. `taken`: names of pools that were declared."""
    groups: dict[tuple[tuple[str, str], ...], list[NodeFacts]] = defaultdict(list)
    for node in nodes:
        if not any(label in node.labels for label in CONTROL_PLANE):
            groups[identity(node)].append(node)
    notes, pools = [], {}
    if nameless := sorted(node.name for node in groups.pop((), [])):
        notes.append(
            f"{_some(nameless)}: no label tells the pool; label them shoestring.dev/pool=NAME to have them used"
        )
    for labels in sorted(groups):
        pool = _pool(labels, groups[labels])
        if isinstance(pool, str):
            notes.append(pool)
        elif pool.name in pools or pool.name in taken:
            notes.append(
                f"{pool.name} is the name of two node pools; {dict(labels)} is not used: declare it in pools.yaml by another"
            )
        else:
            pools[pool.name] = pool
    return tuple(pools.values()), tuple(notes)


def _pool(labels: tuple[tuple[str, str], ...], nodes: Sequence[NodeFacts]) -> NodePool | str:
    """The pool of these nodes, or why it is none."""
    name, markets = "-".join(value for _, value in labels), sorted({market_of(node.labels) for node in nodes})
    if len(markets) > 1:
        return f"{name} has nodes bought {' and '.join(markets)}: declare two pools in pools.yaml, told apart by a label"
    taints = {
        taint.model_dump_json(): taint
        for node in nodes
        for taint in hard(node.taints)
        if not taint.key.startswith(PASSING_TAINTS)
    }
    return NodePool(
        name=name,
        labels=dict(labels),
        taints=tuple(taints[key] for key in sorted(taints)),
        market=markets[0],
        region=min(node.labels.get(REGION_LABEL, "local") for node in nodes),
    )


def _some(names: Sequence[str]) -> str:
    return f"node {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
