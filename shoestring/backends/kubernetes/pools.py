"""Node pools as shares of nodes that a stage can be placed on, with their free capacity.

Pure: nodes and pods in, pools out.

usable      = the minimum over the pool's schedulable nodes of: allocatable - requests of daemonsets; without
              taints, also less those of one route or exit step
shares      = 1, 2, 4, ... and all cores; with GPUs, 1, 2, 4, ... and all GPUs, with their fraction of the
              cores. A share has its fraction of the memory, less 1/16: pods outside daemonsets need memory on
              some node, and a cluster's DNS with its 70Mi would keep the largest share off
price       = the node's price x the largest fraction of the node that the share takes, so that shares also
              pay for the daemonsets; a route or exit step pays in the same way for what its pod requests
free_shares = the sum over the schedulable nodes of how many shares fit into their free resources
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from math import ceil
from typing import Any

from shoestring.backends.kubernetes.discovery import (
    ZONE_LABEL,
    discover_pools,
    hard_taints,
    is_control_plane,
    node_provider,
    pool_with_labels,
)
from shoestring.backends.kubernetes.node_info import NodeInfo, NodeResources, PodInfo, requests_by_node
from shoestring.backends.kubernetes.pool_state import (
    ENGINE_OVERHEAD,
    STEP_POD,
    USABLE_MEMORY,
    NodePoolState,
    machine_resources,
    pool_state,
)
from shoestring.backends.kubernetes.world_files import SPOT_PREEMPTIONS_PER_HOUR, NodePool
from shoestring.config.tariffs import Tariffs
from shoestring.config.world import PriceBook
from shoestring.core.money import from_microusd, microusd
from shoestring.core.types import Market, MarketTerms, NodeCapacity, Pool, Quote, Toleration
from shoestring.pricing.catalogues import PriceListing
from shoestring.pricing.gpus import gpu_memory_gb, peak_tflops
from shoestring.pricing.price_book import validated_book

GPU_NAME_LABELS = (
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
)
GPU_MEMORY_LABEL = "nvidia.com/gpu.memory"  # MiB of one GPU, by NVIDIA's feature discovery
BYTES_PER_MB = 1_000_000


@dataclass(frozen=True, slots=True)
class NodeShare:
    """A pool as routing sees it, and the fraction of a node's price that it costs."""

    pool: Pool
    node_fraction: Fraction


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """All pools of a cluster at one moment.

    `whole_nodes`: each node pool as one machine. `notes`: a sentence for each node pool that is not used.
    """

    shares: tuple[NodeShare, ...]
    whole_nodes: tuple[Pool, ...]
    notes: tuple[str, ...]

    @property
    def pools(self) -> tuple[Pool, ...]:
        return tuple(share.pool for share in self.shares)


def take_snapshot(
    nodes: Sequence[NodeInfo], pods: Sequence[PodInfo], declared: Sequence[NodePool]
) -> ClusterSnapshot:
    """Return the declared pools with the nodes that carry their labels, and the pools that the other nodes
    form.

    A node that carries the labels of several declared pools belongs to the first.
    """
    nodes = sorted((node for node in nodes if not is_control_plane(node)), key=lambda node: node.name)
    groups: dict[str, list[NodeInfo]] = defaultdict(list)
    others = [node for node in nodes if not _assign(node, declared, groups)]
    found, notes = discover_pools(others, [pool.name for pool in declared])
    for node in others:
        _assign(node, found, groups)
    requested = requests_by_node(pods)
    daemons = requests_by_node(pod for pod in pods if pod.is_daemon)
    pending = [pod.node_selector for pod in pods if not pod.node and pod.node_selector]
    states = [
        pool_state(pool, groups[pool.name], requested, daemons, pending) for pool in (*declared, *found)
    ]
    return _snapshot(states, notes)


def declared_snapshot(declared: Sequence[NodePool]) -> ClusterSnapshot:
    """Return the declared pools alone, with unknown capacity, for an account that may not read nodes."""
    return _snapshot([NodePoolState(pool, {}, machine_resources(pool.machine)) for pool in declared], ())


def price_shares(
    listing: PriceListing, snapshot: ClusterSnapshot, tariffs: Tariffs, today: date
) -> PriceBook:
    """Validate the prices of whole nodes; return prices of their shares, and of route and exit steps on them,
    rounded up to the micro-dollar.
    """
    book = validated_book(listing, snapshot.whole_nodes, tariffs, today)
    pairs = [
        (quote, share)
        for quote in book.quotes
        for share in snapshot.shares
        if share.pool.node_pool == quote.pool
    ]
    quotes = [share_quote(quote, share.node_fraction, share.pool.name) for quote, share in pairs]
    committed = tuple(
        each.model_copy(update={"pool": share.pool.name, "hours_per_hour": float(share.node_fraction)})
        for each in book.committed
        for share in snapshot.shares
        if share.pool.node_pool == each.pool
    )
    quotes.sort(key=lambda quote: (quote.pool, quote.market))
    steps = tuple(
        share_quote(quote, step_fraction(whole), whole.name)
        for quote in book.quotes
        for whole in snapshot.whole_nodes
        if whole.name == quote.pool and takes_steps(whole, quote.market)
    )
    return PriceBook(tuple(quotes), book.rejected, tariffs, committed, steps)


def share_quote(quote: Quote, fraction: Fraction, name: str) -> Quote:
    """Return the price of a share, called `name`, that takes a fraction of the node of `quote`."""

    def part(usd_per_hour: Decimal) -> Decimal:
        return from_microusd(ceil(fraction * microusd(usd_per_hour)))

    update = {
        "pool": name,
        "usd_per_hour": part(quote.usd_per_hour),
        "node_usd_per_hour": quote.usd_per_hour,
        "list_usd_per_hour": quote.list_usd_per_hour and part(quote.list_usd_per_hour),
    }
    return quote.model_copy(update=update)


def takes_steps(whole: Pool, market: Market) -> bool:
    """Return whether a node was bought on this market, and takes pods that tolerate no taint."""
    return market in whole.markets and not whole.markets[market].tolerations


def step_fraction(whole: Pool) -> Fraction:
    """Return the fraction of a node that the pod of a route or exit step takes, at most 1: the larger one of
    cores and memory. `whole`: all that a node gives to stages.
    """
    cpu = Fraction(STEP_POD.cpu_milli, whole.cores * 1000)
    memory = Fraction(STEP_POD.memory_bytes, int(whole.memory_gb * 1000) * BYTES_PER_MB)
    return min(Fraction(1), max(cpu, memory))


def _assign(node: NodeInfo, pools: Sequence[NodePool], groups: Mapping[str, list[NodeInfo]]) -> bool:
    """Add a node to the group of its pool; return False if it carries the labels of none."""
    pool = pool_with_labels(node.labels, pools)
    if pool:
        groups[pool.name].append(node)
    return pool is not None


def _snapshot(states: Sequence[NodePoolState], notes: Sequence[str]) -> ClusterSnapshot:
    shares, whole_nodes, all_notes = [], [], list(notes)
    for state in states:
        name, pool_shares = state.pool.name, list(_shares(state))
        shares += pool_shares
        if pool_shares:
            whole_nodes.append(pool_shares[-1].pool.model_copy(update={"name": name}))
        elif not state.usable.cpu_milli:
            all_notes.append(
                f"{name} has no nodes, and pools.yaml does not describe its machine: it is not used"
            )
        else:
            left_cores = state.usable.cpu_milli / 1000
            others = "daemonsets" if hard_taints(state.pool.taints) else "daemonsets and a route step"
            all_notes.append(f"{name} is not used: its {others} leave {left_cores:g} cores on a node")
    return ClusterSnapshot(tuple(shares), tuple(whole_nodes), tuple(all_notes))


def _shares(state: NodePoolState) -> Iterator[NodeShare]:
    """Yield the shares of a node, smallest first. The last share is the whole node."""
    gpus, cores = state.usable.gpus, state.cores
    for size in _sizes(gpus or cores) if cores else ():
        fraction = Fraction(size, gpus or cores)
        share_cores = max(1, int(cores * fraction))
        memory_bytes = (
            int(state.usable.memory_bytes * fraction * USABLE_MEMORY) - ENGINE_OVERHEAD.memory_bytes
        )
        memory_mb = memory_bytes // BYTES_PER_MB
        if memory_mb < 1:
            continue
        request = (
            NodeResources(share_cores * 1000, memory_mb * BYTES_PER_MB, size if gpus else 0) + ENGINE_OVERHEAD
        )
        pool = Pool(
            name=f"{state.pool.name}/{size}{'gpu' if gpus else ''}",
            node_pool=state.pool.name,
            cores=share_cores,
            memory_gb=memory_mb / 1000,
            core_speed=state.pool.machine.core_speed if state.pool.machine else 1.0,
            **(_gpu_fields(state, size) if gpus else {}),
            startup_s=_startup_s(state, request),
            region=state.pool.region,
            provider=node_provider(state.labels),
            zone=state.pool.labels.get(ZONE_LABEL, ""),
            machine=state.machine,
            markets={state.pool.market: _market_terms(state.pool)},
            capacity=_capacity(state, request),
        )
        yield NodeShare(pool, max(fraction, Fraction(share_cores, cores)))


def _sizes(largest: int) -> list[int]:
    """Return the powers of two below `largest`, and `largest`."""
    return [*(size for power in range(largest.bit_length()) if (size := 2**power) < largest), largest]


def _gpu_fields(state: NodePoolState, count: int) -> dict[str, Any]:
    machine = state.pool.machine
    name = (machine and machine.gpu) or next(
        (state.labels[label] for label in GPU_NAME_LABELS if label in state.labels), ""
    )
    labelled_gb = int(state.labels.get(GPU_MEMORY_LABEL, 0)) * (1 << 20) / 1e9
    return {
        "gpu": name or None,
        "gpu_count": count,
        "gpu_memory_gb": (machine and machine.gpu_memory_gb) or labelled_gb or gpu_memory_gb(name),
        "gpu_tflops": (machine and machine.gpu_tflops) or (peak_tflops(name) if name else 0.0),
    }


def _market_terms(pool: NodePool) -> MarketTerms:
    assumed = SPOT_PREEMPTIONS_PER_HOUR if pool.market is Market.SPOT else 0.0
    return MarketTerms(
        node_selector=pool.labels,
        tolerations=tuple(
            Toleration(key=taint.key, operator="Equal", value=taint.value, effect=taint.effect)
            if taint.value
            else Toleration(key=taint.key, effect=taint.effect)
            for taint in hard_taints(pool.taints)
        ),
        preemptions_per_hour=assumed if pool.preemptions_per_hour is None else pool.preemptions_per_hour,
    )


def _free_shares(state: NodePoolState, request: NodeResources) -> int:
    return sum(free.count_fitting(request) for free in state.free or ())


def _startup_s(state: NodePoolState, request: NodeResources) -> float:
    """Return the time to start a pod; it includes making a node only if the pool can grow and no node has
    free capacity.
    """
    grows = state.pool.max_nodes > state.nodes and not _free_shares(state, request)
    return state.pool.startup_s if grows else state.pool.warm_startup_s


def _capacity(state: NodePoolState, request: NodeResources) -> NodeCapacity | None:
    if state.free is None:
        return None
    emptiest = max(state.free, key=lambda free: free.values, default=NodeResources())
    return NodeCapacity(
        nodes=state.nodes,
        unschedulable=state.nodes - len(state.free),
        max_nodes=max(state.nodes, state.pool.max_nodes),
        free_shares=_free_shares(state, request),
        free_cores=emptiest.cpu_milli / 1000,
        free_memory_gb=emptiest.memory_bytes // BYTES_PER_MB / 1000,
        free_gpus=emptiest.gpus,
        pending_pods=state.pending_pods,
    )
