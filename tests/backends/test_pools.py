"""Capacity is never overstated, unschedulable nodes have none, and a share costs its fraction of the node."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
from api_objects import by_name, capacity_of, node, only, pod, pod_item, taint
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from shoestring.backends.kubernetes.node_info import NodeInfo, NodeResources, PodInfo, parse_pod
from shoestring.backends.kubernetes.pools import declared_snapshot, price_shares, take_snapshot
from shoestring.backends.kubernetes.world_files import Machine, NodePool, Taint
from shoestring.config.tariffs import Tariffs
from shoestring.core.money import microusd
from shoestring.core.types import Market, Toleration
from shoestring.pricing.catalogues import PriceListing
from shoestring.pricing.price_list import PriceList
from shoestring.pricing.rows import PriceRow

CPU = NodePool(name="cpu", labels={"pool": "cpu"})
GROWS = NodePool(
    name="big", labels={"pool": "big"}, machine=Machine(cores=8, memory_gb=32), max_nodes=3, startup_s=90
)


@st.composite
def some_nodes(draw: st.DrawFn) -> list[NodeInfo]:
    """Nodes of one or two pools, some with GPUs, some unschedulable."""
    found = []
    for number in range(draw(st.integers(1, 6))):
        name = draw(st.sampled_from(["cpu", "gpu", "gpu"]))
        product = (
            {"nvidia.com/gpu.product": draw(st.sampled_from(["NVIDIA-L4", "Tesla-T4"]))}
            if name == "gpu"
            else {}
        )
        found.append(
            node(
                f"node-{number}",
                cpu=f"{draw(st.integers(500, 20_000))}m",
                memory=f"{draw(st.integers(100, 70_000))}Mi",
                labels={"pool": name} | product,
                gpus=draw(st.integers(1, 9)) if name == "gpu" else 0,
                unschedulable=draw(st.sampled_from([False, False, True])),
                ready=draw(st.sampled_from([True, True, False])),
                pods=draw(st.integers(0, 110)),
            )
        )
    return found


@st.composite
def some_pods(draw: st.DrawFn) -> list[PodInfo]:
    return [
        pod(
            draw(st.sampled_from(["", *(f"node-{number}" for number in range(6))])),
            cpu=f"{draw(st.integers(0, 5_000))}m",
            memory=f"{draw(st.integers(0, 20_000))}Mi",
            gpus=draw(st.integers(0, 3)),
            owner=draw(st.sampled_from(["ReplicaSet", "DaemonSet"])),
            nodeSelector=draw(st.sampled_from([{}, {"pool": "cpu"}])),
        )
        for _ in range(draw(st.integers(0, 8)))
    ]


@given(some_nodes(), some_pods())
def test_free_shares_never_exceed_the_free_resources(nodes: list[NodeInfo], pods: list[PodInfo]) -> None:
    for share in take_snapshot(nodes, pods, [CPU]).shares:
        left = NodeResources()
        for each in nodes:
            if each.is_schedulable and each.labels["pool"] == share.pool.node_pool:
                left += each.allocatable - sum(
                    (pod.requests for pod in pods if pod.node == each.name), NodeResources()
                )
        fits = capacity_of(share.pool).free_shares
        assert fits * share.pool.cores * 1000 <= left.cpu_milli
        assert fits * int(share.pool.memory_gb * 1000) * 1_000_000 <= left.memory_bytes
        assert fits * share.pool.gpu_count <= left.gpus
        assert fits <= left.pods


@given(some_nodes(), some_pods(), some_pods())
def test_more_pods_never_increase_the_capacity(
    nodes: list[NodeInfo], pods: list[PodInfo], more: list[PodInfo]
) -> None:
    """Pods of daemonsets change the sizes of shares; other pods only take capacity."""
    before = by_name(take_snapshot(nodes, pods, [CPU]))
    after = by_name(take_snapshot(nodes, pods + [each for each in more if not each.is_daemon], [CPU]))
    assert set(before) == set(after)
    assert all(
        capacity_of(after[name]).free_shares <= capacity_of(pool).free_shares for name, pool in before.items()
    )


@given(some_nodes(), some_pods(), st.sampled_from(["cordoned", "not ready", "tainted"]))
def test_an_unschedulable_node_adds_no_capacity(nodes: list[NodeInfo], pods: list[PodInfo], how: str) -> None:
    closing = {"unschedulable": how == "cordoned", "ready": how != "not ready"}
    closed = node(
        "node-x",
        cpu="64",
        labels={"pool": "cpu"},
        **closing,
        taints=[taint("dedicated", "x")] if how == "tainted" else [],
    )
    before, after = (
        by_name(take_snapshot(nodes, pods, [CPU])),
        by_name(take_snapshot([*nodes, closed], pods, [CPU])),
    )
    for name, pool in before.items():
        if capacity_of(pool).nodes > capacity_of(pool).unschedulable:
            assert capacity_of(after[name]).free_shares == capacity_of(pool).free_shares
            assert (after[name].cores, after[name].memory_gb) == (pool.cores, pool.memory_gb)
    for pool in after.values():
        if pool.node_pool == "cpu":
            assert (
                capacity_of(pool).unschedulable
                == sum(not each.is_schedulable for each in nodes if each.labels["pool"] == "cpu") + 1
            )


@examples(300)
@given(some_nodes(), some_pods(), st.data())
def test_the_order_of_nodes_and_pods_does_not_matter(
    nodes: list[NodeInfo], pods: list[PodInfo], data: st.DataObject
) -> None:
    otherwise = data.draw(st.permutations(nodes)), data.draw(st.permutations(pods))
    assert take_snapshot(*otherwise, [CPU]) == take_snapshot(nodes, pods, [CPU])


@given(some_nodes(), some_pods(), st.decimals("0.000001", "500", places=6))
def test_a_share_costs_at_least_its_fraction_and_the_whole_node_costs_the_node_price(
    nodes: list[NodeInfo], pods: list[PodInfo], usd_per_hour: Decimal
) -> None:
    seen = take_snapshot(nodes, pods, [CPU])
    quotes = [
        PriceRow(
            pool=whole.name, market=Market.ON_DEMAND, usd_per_hour=usd_per_hour, as_of=DAY, source="list"
        )
        for whole in seen.whole_nodes
    ]
    book = price_shares(listing(*quotes), seen, Tariffs(), DAY)
    prices = {quote.pool: microusd(quote.usd_per_hour) for quote in book.quotes}
    assert {quote.node_usd_per_hour for quote in book.quotes} <= {usd_per_hour}
    wholes = {
        whole.name: whole
        for whole in seen.whole_nodes
        if whole.name not in {row.row.split()[0] for row in book.rejected}
    }
    assert len(prices) == sum(share.pool.node_pool in wholes for share in seen.shares)
    for share in seen.shares:
        if whole := wholes.get(share.pool.node_pool or ""):
            node_price, price = microusd(usd_per_hour), prices[share.pool.name]
            assert price * whole.cores >= node_price * share.pool.cores
            assert price * whole.gpu_count >= node_price * share.pool.gpu_count
            assert price <= node_price
            if share.pool.cores == whole.cores and share.pool.gpu_count == whole.gpu_count:
                assert price == node_price


DAY = date(2026, 7, 30)


def listing(*rows: PriceRow) -> PriceListing:
    return PriceListing(rows, PriceList())


def quote(pool: str, usd_per_hour: str, market: Market = Market.ON_DEMAND) -> PriceRow:
    return PriceRow(pool=pool, market=market, usd_per_hour=Decimal(usd_per_hour), as_of=DAY, source="list")


def test_shares_are_powers_of_two_and_the_whole_node_less_daemonsets() -> None:
    """A daemonset and a route step leave 7.2 of 8 cores, and each stage has 50m for the engine."""
    pools = by_name(
        take_snapshot(
            [node("a", cpu="8", memory="32Gi")], [pod("a", cpu="500m", memory="2Gi", owner="DaemonSet")], []
        )
    )
    assert list(pools) == ["cpu/1", "cpu/2", "cpu/4", "cpu/7"]
    assert [pool.cores for pool in pools.values()] == [1, 2, 4, 7]
    assert [capacity_of(pool).free_shares for pool in pools.values()] == [6, 3, 1, 1]
    assert pools["cpu/7"].memory_gb == pytest.approx(29.69 * 1.0737 * 15 / 16, abs=0.1)


def test_a_price_is_validated_as_the_price_of_a_whole_node() -> None:
    """$9 per hour is plausible for 8 cores, but not for the one core of the smallest share."""
    seen = take_snapshot([node("a", cpu="8.4", memory="32Gi")], [], [])
    book = price_shares(listing(quote("cpu", "9")), seen, Tariffs(), DAY)
    assert {each.pool: str(each.usd_per_hour) for each in book.quotes} == {
        "cpu/1": "1.125000",
        "cpu/2": "2.250000",
        "cpu/4": "4.500000",
        "cpu/8": "9.000000",
    }
    assert {each.source for each in book.quotes} == {"list"}
    assert "placeholder" in price_shares(listing(quote("cpu", "21")), seen, Tariffs(), DAY).rejected[0].reason


def test_a_price_of_a_missing_pool_is_rejected_with_a_sentence() -> None:
    book = price_shares(listing(quote("gone", "9")), take_snapshot([node("a")], [], []), Tariffs(), DAY)
    assert [row.reason for row in book.rejected] == ["there is no pool called gone any more"]


def test_running_and_starting_pods_take_capacity_and_finished_pods_do_not() -> None:
    busy = [pod_item("a", cpu="2", phase=phase) for phase in ("Running", "Pending")]
    done = [pod_item("a", cpu="4", phase=phase) for phase in ("Succeeded", "Failed")]
    pods = [found for item in busy + done if (found := parse_pod(item))]
    pools = by_name(take_snapshot([node("a", cpu="8.4", memory="32Gi")], pods, []))
    assert capacity_of(pools["cpu/4"]).free_shares == 1
    assert capacity_of(pools["cpu/8"]).free_shares == 0


def test_pending_pods_are_counted_at_the_pool_that_they_select() -> None:
    waiting = [
        pod(cpu="64", nodeSelector={"pool": "cpu"}),
        pod(cpu="64", nodeSelector={"pool": "gpu"}),
        pod(cpu="64"),
    ]
    gated = parse_pod(pod_item(nodeSelector={"pool": "cpu"}, schedulingGates=[{"name": "queue"}]))
    assert gated is None
    assert capacity_of(by_name(take_snapshot([node("a")], waiting, []))["cpu/1"]).pending_pods == 1


def test_a_growing_pool_needs_its_startup_time_only_without_free_shares() -> None:
    empty = by_name(take_snapshot([], [], [GROWS]))["big/8"]
    assert (
        capacity_of(empty).nodes,
        capacity_of(empty).max_nodes,
        capacity_of(empty).free_shares,
        empty.startup_s,
    ) == (
        0,
        3,
        0,
        90.0,
    )
    assert (empty.cores, empty.memory_gb) == (8, 32.0)
    existing = node("a", cpu="8.4", memory="40Gi", labels={"pool": "big"})
    assert by_name(take_snapshot([existing], [], [GROWS]))["big/8"].startup_s == 5.0
    assert by_name(take_snapshot([existing], [pod("a", cpu="1")], [GROWS]))["big/8"].startup_s == 90.0
    assert by_name(take_snapshot([existing], [pod("a", cpu="1")], [GROWS]))["big/4"].startup_s == 5.0


def test_a_declared_taint_is_tolerated_and_any_other_makes_the_node_unschedulable() -> None:
    spot = NodePool(
        name="spot", labels={"pool": "spot"}, taints=(Taint(key="spot", value="true"),), market=Market.SPOT
    )
    nodes = [
        node(
            "a",
            cpu="1500m",
            labels={"pool": "spot"},
            taints=[taint("spot", "true"), taint("soft", effect="PreferNoSchedule")],
        ),
        node(
            "b",
            cpu="1500m",
            labels={"pool": "spot"},
            taints=[taint("spot", "true"), taint("keep-off", effect="NoExecute")],
        ),
    ]
    pool = only(take_snapshot(nodes, [], [spot]))
    assert (capacity_of(pool).nodes, capacity_of(pool).unschedulable, capacity_of(pool).free_shares) == (
        2,
        1,
        1,
    )
    terms = pool.markets[Market.SPOT]
    assert terms.tolerations == (Toleration(key="spot", operator="Equal", value="true", effect="NoSchedule"),)
    assert terms.node_selector == {"pool": "spot"}
    assert terms.preemptions_per_hour == 0.0003


def test_without_the_right_to_read_nodes_declared_pools_have_unknown_capacity() -> None:
    seen = declared_snapshot([GROWS, CPU])
    assert [share.pool.name for share in seen.shares] == ["big/1", "big/2", "big/4", "big/8"]
    assert {share.pool.capacity for share in seen.shares} == {None}
    assert {share.pool.startup_s for share in seen.shares} == {90.0}
    assert seen.notes == ("cpu has no nodes, and pools.yaml does not describe its machine: it is not used",)
