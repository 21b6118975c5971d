"""A node keeps room for one route or exit step, and a router does not count such pods as used capacity."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import urllib3
from api_objects import Item, by_name, capacity_of, node, node_item, only, pod, pod_item, taint
from hypothesis import given
from hypothesis import strategies as st
from kube_server import KubeServer

from shoestring.backends.kubernetes.api import KubeApi
from shoestring.backends.kubernetes.cluster import KubeCluster
from shoestring.backends.kubernetes.node_info import NodeResources, pod_requests
from shoestring.backends.kubernetes.pool_state import ENGINE_OVERHEAD, STEP_POD
from shoestring.backends.kubernetes.pools import price_shares, take_snapshot
from shoestring.backends.local import WallClock
from shoestring.config.tariffs import Tariffs
from shoestring.core.record import record_bytes
from shoestring.core.types import Market, Need, Pool
from shoestring.pricing.catalogues import PriceListing
from shoestring.pricing.price_list import PriceList
from shoestring.pricing.rows import PriceRow
from shoestring.routing.decide import decide
from shoestring.routing.placement import ROUTE, SETTLE, STAGE_LABEL, STEP_REQUESTS
from shoestring.routing.question import Question

DAY = date(2026, 11, 1)


def stage_requests(pool: Pool) -> NodeResources:
    """Return what the pod of a stage on this share requests, with its engine's containers."""
    share = NodeResources(pool.cores * 1000, int(pool.memory_gb * 1000) * 10**6, pool.gpu_count)
    return share + ENGINE_OVERHEAD


def step_item(on: str, label: str, requests: dict[str, str]) -> Item:
    """Return the pod of a route or exit step, as both engines make it."""
    containers = [{"name": "main", "resources": {"requests": requests}}]
    return pod_item(on, labels={STAGE_LABEL: label}, containers=containers)


@given(
    st.lists(st.tuples(st.integers(1500, 20_000), st.integers(700, 70_000)), min_size=1, max_size=3),
    st.integers(0, 900),
)
def test_a_node_that_one_stage_fills_takes_a_route_step(
    sizes: list[tuple[int, int]], daemon_milli: int
) -> None:
    nodes = [
        node(f"node-{number}", cpu=f"{milli}m", memory=f"{mib}Mi")
        for number, (milli, mib) in enumerate(sizes)
    ]
    daemons = [pod(each.name, cpu=f"{daemon_milli}m", owner="DaemonSet") for each in nodes]
    for share in take_snapshot(nodes, daemons, []).shares:
        for each in nodes:
            left = each.allocatable - NodeResources(daemon_milli, pods=1) - stage_requests(share.pool)
            assert left.count_fitting(STEP_POD) >= 1, share.pool


def test_a_second_runs_route_step_fits_on_the_one_node_that_a_running_stage_fills() -> None:
    """Two cores, of which daemonsets take 100m, as on a kind cluster."""
    only_node, daemon = node("a", cpu="2", memory="8Gi"), pod("a", cpu="100m", owner="DaemonSet")
    whole = only(take_snapshot([only_node], [daemon], []))
    stage = pod("a", cpu=f"{whole.cores}", memory=f"{whole.memory_gb * 1000:.0f}M")
    free = only_node.allocatable - daemon.requests - stage.requests - NodeResources(50, 64 << 20)
    assert free.count_fitting(STEP_POD) >= 1
    assert capacity_of(only(take_snapshot([only_node], [daemon, stage], []))).free_shares == 0


def test_a_tainted_node_keeps_no_room_since_no_route_step_runs_there() -> None:
    tainted = node("a", cpu="8.1", memory="32Gi", taints=[taint("gpu", "present")])
    assert list(by_name(take_snapshot([tainted], [], [])))[-1] == "cpu/8"
    assert list(by_name(take_snapshot([node("a", cpu="8.1", memory="32Gi")], [], [])))[-1] == "cpu/7"


def decision_bytes(kube: KubeServer) -> bytes:
    """Return the decision about one stage on this cluster, as a router would make it now."""
    api = KubeApi(f"http://127.0.0.1:{kube.port}", urllib3.PoolManager(), dict)
    cluster = KubeCluster((), [], None, WallClock(), lambda: api)
    row = PriceRow(pool="cpu", market=Market.ON_DEMAND, usd_per_hour=Decimal("0.2"), as_of=DAY, source="list")
    book = price_shares(PriceListing((row,), PriceList()), cluster.snapshot(), Tariffs(), DAY)
    need = Need(stage="ingest", setup_s=5.0, cpu_us_per_row=10.0)
    asked: dict[str, Any] = {
        "run_id": "r-1",
        "stage": "ingest",
        "seed": 7,
        "asked_at": datetime(2026, 11, 1, 12, tzinfo=UTC),
        "rows": 1000,
        "row_bytes": 0,
        "reads_format": None,
        "needs": (need,),
        "budget_usd": "0.01",
        "pools": cluster.pools(),
        "quotes": book.quotes,
        "digests": {"world": "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef"},
    }
    decision = decide(Question.model_validate(asked))
    assert decision.choice
    return record_bytes(decision)


def test_route_and_exit_steps_with_and_without_requests_leave_the_decision_the_same(
    kube: KubeServer,
) -> None:
    kube.denied.clear()
    kube.objects["/api/v1/nodes/a"] = node_item("a", cpu="4", memory="16Gi")
    kube.objects["/api/v1/pods/stage"] = pod_item("a", cpu="1", labels={STAGE_LABEL: "train"})
    alone = decision_bytes(kube)
    for requests in ({}, STEP_REQUESTS):
        for label in (f"{ROUTE}ingest", f"{ROUTE}train", SETTLE):
            kube.objects[f"/api/v1/pods/{label}"] = step_item("a", label, requests)
        assert decision_bytes(kube) == alone
    kube.objects["/api/v1/pods/other"] = pod_item("a", cpu="1")
    assert decision_bytes(kube) != alone


def test_a_step_requests_what_its_node_keeps_free() -> None:
    assert pod_requests(step_item("a", SETTLE, STEP_REQUESTS)["spec"]) == STEP_POD
