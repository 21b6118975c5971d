"""Undeclared pools are found by their nodes' labels; nodes without a usable label are reported."""

from __future__ import annotations

import pytest
from api_objects import capacity_of, node, only, taint

from shoestring.backends.kubernetes.pools import take_snapshot
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
def test_an_undeclared_pool_is_found_by_its_clouds_labels(
    labels: dict[str, str], name: str, market: Market
) -> None:
    pool = only(
        take_snapshot([node("a", cpu="1500m", labels=labels | {"kubernetes.io/hostname": "a"})], [], [])
    )
    assert (pool.name, pool.node_pool) == (f"{name}/1", name)
    assert list(pool.markets) == [market]
    assert pool.markets[market].node_selector.items() <= labels.items()


def test_transient_taints_are_not_tolerated() -> None:
    passing = [taint("node.kubernetes.io/disk-pressure"), taint("ToBeDeletedByClusterAutoscaler", "1")]
    nodes = [
        node("a", cpu="1500m", taints=[taint("spot", "true"), *passing]),
        node("b", cpu="1500m", taints=[taint("spot", "true")]),
    ]
    pool = only(take_snapshot(nodes, [], []))
    assert [toleration.key for toleration in pool.markets[Market.ON_DEMAND].tolerations] == ["spot"]
    assert (capacity_of(pool).unschedulable, capacity_of(pool).free_shares) == (1, 1)


def test_control_plane_nodes_have_no_capacity() -> None:
    control = {"node-role.kubernetes.io/control-plane": "", "pool": "cpu"}
    assert (
        take_snapshot(
            [node("a", labels=control, taints=[taint("node-role.kubernetes.io/control-plane")])], [], [CPU]
        ).shares
        == ()
    )
    assert take_snapshot([node("a", labels=control)], [], []).shares == ()
    assert take_snapshot([node("a", labels=control)], [], [CPU]).shares != ()


def test_unused_nodes_are_reported_with_the_fix() -> None:
    nodes = [
        node("plain-1", labels={}),
        node("plain-2", labels={}),
        node("mixed-1", labels={"pool": "mixed"}),
        node("mixed-2", labels={"pool": "mixed", "shoestring.dev/market": "spot"}),
        node("small", cpu="900m", labels={"pool": "small"}),
        node("twice", labels={"cloud.google.com/gke-nodepool": "cpu"}),
    ]
    assert take_snapshot(nodes, [], [CPU]).notes == (
        "node plain-1 and 1 more: no label names the pool; label the nodes shoestring.dev/pool=NAME to have "
        "them used",
        "cpu is the name of two node pools; {'cloud.google.com/gke-nodepool': 'cpu'} is not used: "
        "declare it in pools.yaml under another name",
        "mixed has on-demand and spot nodes: declare two pools in pools.yaml, which differ by a label",
        "cpu has no nodes, and pools.yaml does not describe its machine: it is not used",
        "small is not used: its daemonsets and a route step leave 0.65 cores on a node",
    )
