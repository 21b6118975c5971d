"""The price of a route or exit step on each node pool, and the pool that its node is in."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
import urllib3
from api_objects import node, node_item, pod, taint
from hypothesis import given
from hypothesis import strategies as st
from kube_server import KubeServer

from shoestring.backends.kubernetes.api import KubeApi
from shoestring.backends.kubernetes.cluster import KubeCluster
from shoestring.backends.kubernetes.pools import (
    ClusterSnapshot,
    declared_snapshot,
    price_shares,
    take_snapshot,
)
from shoestring.backends.kubernetes.world_files import Machine, NodePool
from shoestring.backends.local import WallClock, open_local_world
from shoestring.config.tariffs import Tariffs
from shoestring.core.interfaces import NodePools
from shoestring.core.pod_ref import ClusterPod, PodRef
from shoestring.core.record import record_bytes
from shoestring.core.types import Market
from shoestring.data.run_records import RunStart
from shoestring.pricing.catalogues import PriceListing
from shoestring.pricing.price_list import PriceList
from shoestring.pricing.rows import PriceRow
from shoestring.runtime.records.overhead import price_of_step

DAY = date(2026, 11, 1)
ON_DEMAND = {"shoestring.dev/pool": "od"}
SPOT = {"shoestring.dev/pool": "cheap", "shoestring.dev/market": "spot"}
GPU = {"shoestring.dev/pool": "gpu"}


def listing(**usd_per_hour: str) -> PriceListing:
    rows = (
        PriceRow(
            pool=name,
            market=Market.SPOT if name == "cheap" else Market.ON_DEMAND,
            usd_per_hour=Decimal(price),
            as_of=DAY,
            source="list",
        )
        for name, price in usd_per_hour.items()
    )
    return PriceListing(tuple(rows), PriceList())


def steps(seen: ClusterSnapshot, **usd_per_hour: str) -> dict[str, Decimal]:
    """Return what steps pay on each pool, at these prices of whole nodes."""
    book = price_shares(listing(**usd_per_hour), seen, Tariffs(), DAY)
    return {quote.pool: quote.usd_per_hour for quote in book.steps}


def test_a_step_pays_its_share_of_a_node_as_a_stage_does() -> None:
    """The daemonsets leave one of two cores to stages; the step requests 250m of it."""
    nodes = [node("a", cpu="2", memory="8Gi", labels=ON_DEMAND), node("b", cpu="2", labels=SPOT)]
    daemons = [pod(each.name, cpu="100m", owner="DaemonSet") for each in nodes]
    seen = take_snapshot(nodes, daemons, [])
    assert steps(seen, od="0.08", cheap="0.03") == {"od": Decimal("0.02"), "cheap": Decimal("0.0075")}


def test_a_step_on_a_node_with_little_memory_pays_for_its_memory() -> None:
    seen = take_snapshot([node("a", cpu="16", memory="2Gi", labels=ON_DEMAND)], [], [])
    (whole,) = seen.whole_nodes
    share = Fraction(320 << 20, int(whole.memory_gb * 1000) * 10**6)
    assert share > Fraction(250, whole.cores * 1000)
    (price,) = steps(seen, od="1").values()
    assert share <= price < share + Fraction(2, 10**6)


def test_a_step_pays_at_most_the_whole_node() -> None:
    seen = take_snapshot([node("a", cpu="2", memory="400Mi", labels=ON_DEMAND)], [], [])
    assert steps(seen, od="0.05") == {"od": Decimal("0.05")}


@given(
    st.integers(1400, 64_000),
    st.integers(700, 300_000),
    st.integers(0, 300),
    st.fractions(0, 1),
    st.decimals("0.01", "40", places=6),
)
def test_a_step_pays_at_least_what_opencost_allocates_to_its_requests(
    milli: int, mib: int, daemon_milli: int, cpu_part: Fraction, usd_per_hour: Decimal
) -> None:
    """OpenCost divides a node's price into one for cores and one for memory, in any proportion."""
    only_node = node("a", cpu=f"{milli}m", memory=f"{mib}Mi", labels=ON_DEMAND)
    daemon = pod("a", cpu=f"{daemon_milli}m", owner="DaemonSet")
    found = steps(take_snapshot([only_node], [daemon], []), od=str(usd_per_hour))
    cpu, memory = Fraction(250, milli), Fraction(320, mib)
    allocated = Fraction(usd_per_hour) * (cpu_part * cpu + (1 - cpu_part) * memory)
    assert all(Fraction(price) >= allocated for price in found.values())


def test_tainted_and_unpriced_pools_have_no_price_for_steps() -> None:
    nodes = [
        node("a", labels=ON_DEMAND),
        node("b", labels=GPU, gpus=1, taints=[taint("nvidia.com/gpu", "present")]),
        node("c", labels={"shoestring.dev/pool": "unpriced"}),
    ]
    assert list(steps(take_snapshot(nodes, [], []), od="0.2", gpu="0.7")) == ["od"]


def test_without_the_right_to_read_nodes_declared_machines_price_the_steps() -> None:
    declared = NodePool(name="od", labels=ON_DEMAND, machine=Machine(cores=4, memory_gb=16))
    assert steps(declared_snapshot([declared]), od="0.2") == {"od": Decimal("0.0125")}


@pytest.fixture
def cluster(kube: KubeServer) -> KubeCluster:
    api = KubeApi(f"http://127.0.0.1:{kube.port}", urllib3.PoolManager(), dict)
    declared = NodePool(name="mine", labels={"team": "vision"})
    return KubeCluster((declared,), [], None, WallClock(), lambda: api)


def put_pod(kube: KubeServer, name: str, node: str, **selector: str) -> ClusterPod:
    """Add the pod of a route step to the cluster, and return it."""
    kube.put("ns", "pods", name, spec={"nodeName": node, "nodeSelector": selector}, status={})
    return ClusterPod("ns", f"uid-of-{name}", name)


def test_the_pool_of_a_pod_is_the_one_that_it_is_bound_to_or_that_of_its_node(
    kube: KubeServer, cluster: KubeCluster
) -> None:
    labels = {"a": SPOT, "b": SPOT | {"team": "vision"}, "c": {}}
    for name, found in labels.items():
        kube.objects[f"/api/v1/nodes/{name}"] = node_item(name, labels=found)
    pods = [put_pod(kube, f"on-{name}", name) for name in ("a", "b", "c", "gone", "")]
    bound = put_pod(kube, "bound", "a", team="vision")
    assert isinstance(cluster, NodePools)
    # Without the right to read nodes, only what a pod is bound to is known.
    assert [cluster.pool_of_pod(each) for each in (*pods, bound)] == ["", "", "", "", "", "mine"]
    kube.denied.clear()
    assert [cluster.pool_of_pod(each) for each in (*pods, bound)] == ["cheap", "mine", "", "", "", "mine"]
    assert cluster.pool_of_pod(ClusterPod("ns", "another-uid", "on-a")) == ""
    assert cluster.pool_of_pod(PodRef.parse("host.1.1")) == ""


def test_a_router_is_booked_at_the_share_of_the_pool_that_it_runs_on(
    kube: KubeServer, cluster: KubeCluster, laptop: Path, tmp_path: Path
) -> None:
    """Its pod names its node, and the node's labels name the pool."""
    kube.denied.clear()
    kube.objects["/api/v1/nodes/a"] = node_item("a", labels=SPOT)
    route = put_pod(kube, "route", "a")
    world = replace(open_local_world(laptop, store=tmp_path), cluster=cluster, pod=route)
    start = RunStart(
        number=1,
        account="r",
        budget_usd=Decimal("0.01"),
        started_at=world.clock.now(),
        deadline_at=None,
        launcher=None,
        overhead_usd_per_hour=Decimal("0.02"),
        step_usd_per_hour={"od": Decimal("0.02"), "cheap": Decimal("0.0075")},
    )
    assert RunStart.model_validate_json(record_bytes(start)) == start
    assert price_of_step(world, start) == ("cheap", Decimal("0.0075"))
    kube.denied.append("/api/v1/nodes")
    assert price_of_step(world, start) == ("", Decimal("0.02"))


def test_a_cluster_that_does_not_answer_ends_no_step() -> None:
    api = KubeApi("http://127.0.0.1:1", urllib3.PoolManager(retries=False), dict)
    cluster = KubeCluster((), [], None, WallClock(), lambda: api)
    assert cluster.pool_of_pod(ClusterPod("ns", "uid", "route")) == ""
