"""Pools that nobody declared are known by their nodes' labels; what cannot be known is named."""

from __future__ import annotations

import pytest
from nodes import node, only, room, taint

from shoestring.backends.kubernetes.pools import see
from shoestring.backends.kubernetes.world_files import NodePool
from shoestring.core.types import Market

CPU = NodePool(name="cpu", labels={"pool": "cpu"})


@pytest.mark.parametrize(
    ("labels", "name", "market"),
    [
        ({"cloud.google.com/gke-nodepool": "a", "cloud.google.com/gke-spot": "true"}, "a", Market.SPOT),
        ({"cloud.google.com/gke-nodepool": "a"}, "a", Market.ON_DEMAND),
        ({"eks.amazonaws.com/nodegroup": "b", "eks.amazonaws.com/capacityType": "SPOT"}, "b", Market.SPOT),
        (
            {"eks.amazonaws.com/nodegroup": "b", "eks.amazonaws.com/capacityType": "ON_DEMAND"},
            "b",
            Market.ON_DEMAND,
        ),
        (
            {"kubernetes.azure.com/agentpool": "c", "kubernetes.azure.com/scalesetpriority": "spot"},
            "c",
            Market.SPOT,
        ),
        (
            {
                "karpenter.sh/nodepool": "d",
                "karpenter.sh/capacity-type": "spot",
                "node.kubernetes.io/instance-type": "m7i.large",
            },
            "d-m7i.large-spot",
            Market.SPOT,
        ),
        (
            {
                "pool": "e",
                "node.kubernetes.io/instance-type": "m7i.large",
                "shoestring.dev/market": "reserved",
            },
            "e",
            Market.RESERVED,
        ),
        ({"node.kubernetes.io/instance-type": "m7i.large"}, "m7i.large", Market.ON_DEMAND),
    ],
)
def test_a_pool_that_nobody_declared_is_known_by_its_clouds_labels(
    labels: dict[str, str], name: str, market: Market
) -> None:
    pool = only(see([node("a", cpu="1500m", labels=labels | {"kubernetes.io/hostname": "a"})], [], []))
    assert (pool.name, pool.node_pool) == (f"{name}/1", name)
    assert list(pool.markets) == [market]
    assert pool.markets[market].node_selector.items() <= labels.items()


def test_what_a_node_is_tainted_with_in_passing_is_not_tolerated() -> None:
    passing = [taint("node.kubernetes.io/disk-pressure"), taint("ToBeDeletedByClusterAutoscaler", "1")]
    nodes = [
        node("a", cpu="1500m", taints=[taint("spot", "true"), *passing]),
        node("b", cpu="1500m", taints=[taint("spot", "true")]),
    ]
    pool = only(see(nodes, [], []))
    assert [toleration.key for toleration in pool.markets[Market.ON_DEMAND].tolerations] == ["spot"]
    assert (room(pool).unschedulable, room(pool).free_shares) == (1, 1)


def test_nodes_that_run_the_cluster_are_nobodys_room() -> None:
    control = {"node-role.kubernetes.io/control-plane": "", "pool": "cpu"}
    assert (
        see(
            [node("a", labels=control, taints=[taint("node-role.kubernetes.io/control-plane")])], [], [CPU]
        ).shares
        == ()
    )
    assert see([node("a", labels=control)], [], []).shares == ()
    assert see([node("a", labels=control)], [], [CPU]).shares != ()


def test_what_cannot_be_used_is_named_with_its_mend() -> None:
    nodes = [
        node("plain-1", labels={}),
        node("plain-2", labels={}),
        node("mixed-1", labels={"pool": "mixed"}),
        node("mixed-2", labels={"pool": "mixed", "shoestring.dev/market": "spot"}),
        node("small", cpu="900m", labels={"pool": "small"}),
        node("twice", labels={"cloud.google.com/gke-nodepool": "cpu"}),
    ]
    assert see(nodes, [], [CPU]).notes == (
        "node plain-1 and 1 more: no label tells the pool; label them shoestring.dev/pool=NAME to have them used",
        "cpu is the name of two node pools; {'cloud.google.com/gke-nodepool': 'cpu'} is not used: declare it in pools.yaml by another",
        "mixed has nodes bought on-demand and spot: declare two pools in pools.yaml, told apart by a label",
        "cpu has no nodes, and pools.yaml does not say what its machine is: it is not used",
        "small is not used: beside its daemonsets, 0.9 cores are left on a node",
    )
