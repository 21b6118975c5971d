"""Node pools as shares that a stage can be placed on, with the room that is left. Pure: facts in, pools out.

usable    = the least of the pool's nodes that take pods: allocatable - what daemonsets ask for
shares    = 1, 2, 4, ... and all of its cores; where there are GPUs, 1, 2, 4, ... and all of them, with their part of the cores.
            A share has its part of the memory, less a sixteenth: pods that are no daemonset's have to be somewhere, and a cluster's DNS
            with its 70Mi would keep the largest share off
price     = the node's x the largest part of it that the share takes: whoever shares a node pays for its daemonsets, too
fits      = over the nodes that take pods, the sum of how many shares what is free there holds
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from functools import reduce
from math import ceil
from typing import Any

from shoestring.backends.kubernetes.discovery import (
    MACHINE_LABEL,
    ZONE_LABEL,
    discovered,
    hard,
    provider_of,
    runs_the_cluster,
)
from shoestring.backends.kubernetes.node_facts import Amount, NodeFacts, PodFacts, totals
from shoestring.backends.kubernetes.world_files import SPOT_PREEMPTIONS_PER_HOUR, Machine, NodePool
from shoestring.config.tariffs import Tariffs
from shoestring.config.world import PriceBook
from shoestring.core.money import from_microusd, microusd
from shoestring.core.types import Market, MarketTerms, NodeCapacity, Pool, Toleration
from shoestring.pricing.gpus import gpu_memory_gb, peak_tflops
from shoestring.pricing.price_book import PriceListing, validated_book

ENGINE = Amount(cpu_milli=50, memory_bytes=64 << 20, pods=1)
"""What a stage's pod asks for beside the stage: an engine's own containers. KFP's executor asks for 10m and 32Mi."""

MEMORY_GIVEN = Fraction(15, 16)

GPU_NAME_LABELS = (
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
)
GPU_MEMORY_LABEL = "nvidia.com/gpu.memory"  # MiB of one GPU, by NVIDIA's feature discovery
BYTES_PER_MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Share:
    """A pool as routing knows it, and the part of a node's price that it costs."""

    pool: Pool
    of_node: Fraction


@dataclass(frozen=True, slots=True)
class Seen:
    """All that may be placed on. `wholes`: each node pool as one machine; a sentence in `notes` for what of the cluster is not used."""

    shares: tuple[Share, ...]
    wholes: tuple[Pool, ...]
    notes: tuple[str, ...]

    @property
    def pools(self) -> tuple[Pool, ...]:
        return tuple(share.pool for share in self.shares)


@dataclass(frozen=True, slots=True)
class Now:
    """A node pool and its nodes. `free`: of each that takes pods, what is left; None where nodes may not be read."""

    pool: NodePool
    labels: Mapping[str, str]
    usable: Amount
    nodes: int = 0
    free: tuple[Amount, ...] | None = None
    waiting: int = 0
    machines: frozenset[str] = frozenset()

    @property
    def machine(self) -> str:
        """What price lists call a node of it; empty where its nodes are of several kinds, or of none yet."""
        declared = (self.pool.machine and self.pool.machine.name) or self.pool.labels.get(MACHINE_LABEL)
        return declared or (next(iter(self.machines)) if len(self.machines) == 1 else "")

    @property
    def cores(self) -> int:
        return (self.usable - ENGINE).cpu_milli // 1000


def see(nodes: Sequence[NodeFacts], pods: Sequence[PodFacts], declared: Sequence[NodePool]) -> Seen:
    """Declared pools with the nodes that carry their labels (of several, the first), and the pools that the other nodes form."""
    nodes = sorted((node for node in nodes if not runs_the_cluster(node)), key=lambda node: node.name)
    groups: dict[str, list[NodeFacts]] = defaultdict(list)
    others = [node for node in nodes if not _joined(node, declared, groups)]
    found, notes = discovered(others, [pool.name for pool in declared])
    for node in others:
        _joined(node, found, groups)
    asked, staying = totals(pods), totals(pod for pod in pods if pod.stays)
    waiting = [pod.node_selector for pod in pods if not pod.node and pod.node_selector]
    return _seen(
        [_now(pool, groups[pool.name], asked, staying, waiting) for pool in (*declared, *found)], notes
    )


def unseen(declared: Sequence[NodePool]) -> Seen:
    """Declared pools where nodes may not be read: how much room there is, nobody knows."""
    return _seen([Now(pool, {}, _usable(pool.machine)) for pool in declared], ())


def priced(listing: PriceListing, seen: Seen, tariffs: Tariffs, today: date) -> PriceBook:
    """Prices of whole nodes, doubted as such, as prices of their shares, rounded up to the micro-dollar."""
    book = validated_book(listing, seen.wholes, tariffs, today)
    shared = []
    committed = tuple(
        each.model_copy(update={"pool": share.pool.name, "part": float(share.of_node)})
        for each in book.committed
        for share in seen.shares
        if share.pool.node_pool == each.pool
    )
    for quote in book.quotes:
        price = microusd(quote.usd_per_hour)
        for share in seen.shares:
            if share.pool.node_pool == quote.pool:
                listed = quote.list_usd_per_hour and from_microusd(
                    ceil(share.of_node * microusd(quote.list_usd_per_hour))
                )
                part = {
                    "usd_per_hour": from_microusd(ceil(share.of_node * price)),
                    "list_usd_per_hour": listed,
                }
                shared.append(quote.model_copy(update={"pool": share.pool.name} | part))
    return PriceBook(
        tuple(sorted(shared, key=lambda quote: (quote.pool, quote.market))),
        book.rejected,
        tariffs,
        committed,
    )


def _joined(node: NodeFacts, pools: Sequence[NodePool], groups: Mapping[str, list[NodeFacts]]) -> bool:
    pool = next((pool for pool in pools if pool.labels.items() <= node.labels.items()), None)
    if pool:
        groups[pool.name].append(node)
    return pool is not None


def _now(
    pool: NodePool,
    nodes: Sequence[NodeFacts],
    asked: Mapping[str, Amount],
    staying: Mapping[str, Amount],
    waiting: Sequence[Mapping[str, str]],
) -> Now:
    max_gpus = max(
        [node.allocatable.gpus for node in nodes] + [pool.machine.gpu_count if pool.machine else 0]
    )
    # A node with none of its pool's GPUs is one whose device plugin has not come up yet.
    complete = [node for node in nodes if node.allocatable.gpus or not max_gpus]
    taking = [node for node in complete if _takes(node, pool)]
    # A closed node says what shares a pool would have, so that they can be refused by name.
    measured = taking or ([] if pool.machine else complete)
    usable = [node.allocatable - staying.get(node.name, Amount()) for node in measured]
    labels = {**measured[0].labels, **pool.labels} if measured else pool.labels
    return Now(
        pool=pool,
        labels=labels,
        usable=reduce(Amount.least, usable) if usable else _usable(pool.machine),
        nodes=len(nodes),
        free=tuple(node.allocatable - asked.get(node.name, Amount()) for node in taking),
        waiting=sum(selector.items() <= labels.items() for selector in waiting),
        machines=frozenset(node.labels.get(MACHINE_LABEL, "") for node in nodes),
    )


def _takes(node: NodeFacts, pool: NodePool) -> bool:
    return node.takes_pods and set(hard(node.taints)) <= set(pool.taints)


def _usable(machine: Machine | None) -> Amount:
    """What a node would have, for its largest share to be what the machine is declared to give."""
    if not machine:
        return Amount()
    memory_bytes = ceil((round(machine.memory_gb * 1e9) + ENGINE.memory_bytes) / MEMORY_GIVEN)
    return Amount(machine.cores * 1000 + ENGINE.cpu_milli, memory_bytes, machine.gpu_count, ENGINE.pods)


def _seen(pools: Sequence[Now], notes: Sequence[str]) -> Seen:
    shares, wholes, said = [], [], list(notes)
    for now in pools:
        of_pool = list(_shares(now))
        shares += of_pool
        wholes += [of_pool[-1].pool.model_copy(update={"name": now.pool.name})] if of_pool else []
        if not of_pool and not now.usable.cpu_milli:
            said.append(
                f"{now.pool.name} has no nodes, and pools.yaml does not say what its machine is: it is not used"
            )
        elif not of_pool:
            said.append(
                f"{now.pool.name} is not used: beside its daemonsets, {now.usable.cpu_milli / 1000:g} cores are left on a node"
            )
    return Seen(tuple(shares), tuple(wholes), tuple(said))


def _shares(now: Now) -> Iterator[Share]:
    """Smallest first; the last is the whole node, which is there if any is."""
    gpus, cores = now.usable.gpus, now.cores
    for size in _sizes(gpus or cores) if cores else ():
        part = Fraction(size, gpus or cores)
        cores_of_it = max(1, int(cores * part))
        memory_mb = (int(now.usable.memory_bytes * part * MEMORY_GIVEN) - ENGINE.memory_bytes) // BYTES_PER_MB
        if memory_mb < 1:
            continue
        needs = Amount(cores_of_it * 1000, memory_mb * BYTES_PER_MB, size if gpus else 0) + ENGINE
        pool = Pool(
            name=f"{now.pool.name}/{size}{'gpu' if gpus else ''}",
            node_pool=now.pool.name,
            cores=cores_of_it,
            memory_gb=memory_mb / 1000,
            core_speed=now.pool.machine.core_speed if now.pool.machine else 1.0,
            **(_gpu(now, size) if gpus else {}),
            startup_s=_startup_s(now, needs),
            region=now.pool.region,
            provider=provider_of(now.labels),
            zone=now.pool.labels.get(ZONE_LABEL, ""),
            machine=now.machine,
            markets={now.pool.market: _terms(now.pool)},
            capacity=_room(now, needs),
        )
        yield Share(pool, max(part, Fraction(cores_of_it, cores)))


def _sizes(most: int) -> list[int]:
    return [*(size for power in range(most.bit_length()) if (size := 2**power) < most), most]


def _gpu(now: Now, count: int) -> dict[str, Any]:
    machine = now.pool.machine
    name = (machine and machine.gpu) or next(
        (now.labels[label] for label in GPU_NAME_LABELS if label in now.labels), ""
    )
    labelled_gb = int(now.labels.get(GPU_MEMORY_LABEL, 0)) * (1 << 20) / 1e9
    return {
        "gpu": name or None,
        "gpu_count": count,
        "gpu_memory_gb": (machine and machine.gpu_memory_gb) or labelled_gb or gpu_memory_gb(name),
        "gpu_tflops": (machine and machine.gpu_tflops) or (peak_tflops(name) if name else 0.0),
    }


def _terms(pool: NodePool) -> MarketTerms:
    assumed = SPOT_PREEMPTIONS_PER_HOUR if pool.market is Market.SPOT else 0.0
    return MarketTerms(
        node_selector=pool.labels,
        tolerations=tuple(
            Toleration(key=taint.key, operator="Equal", value=taint.value, effect=taint.effect)
            if taint.value
            else Toleration(key=taint.key, effect=taint.effect)
            for taint in hard(pool.taints)
        ),
        preemptions_per_hour=assumed if pool.preemptions_per_hour is None else pool.preemptions_per_hour,
    )


def _fits(now: Now, needs: Amount) -> int:
    return sum(free.times(needs) for free in now.free or ())


def _startup_s(now: Now, needs: Amount) -> float:
    """A pool that can grow is waited for only where nothing fits now."""
    grows = now.pool.max_nodes > now.nodes and not _fits(now, needs)
    return now.pool.startup_s if grows else now.pool.ready_s


def _room(now: Now, needs: Amount) -> NodeCapacity | None:
    if now.free is None:
        return None
    emptiest = max(now.free, key=lambda free: free.parts, default=Amount())
    return NodeCapacity(
        nodes=now.nodes,
        unschedulable=now.nodes - len(now.free),
        max_nodes=max(now.nodes, now.pool.max_nodes),
        free_shares=_fits(now, needs),
        free_cores=emptiest.cpu_milli / 1000,
        free_memory_gb=emptiest.memory_bytes // BYTES_PER_MB / 1000,
        free_gpus=emptiest.gpus,
        pending_pods=now.waiting,
    )
