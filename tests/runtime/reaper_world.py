"""Pending and dead pods as the reaper sees them, and a world whose pools are shares of nodes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

from runtime_world import (
    INGEST,
    FakeCluster,
    SetClock,
    StartedAttempt,
    attempt_in_pod,
    begin,
    on_cluster,
    run_request,
    small_world,
)

from shoestring.config.world import PriceBook, World
from shoestring.core.interfaces import EndReason, PodLifetime, StagePod
from shoestring.core.pod_ref import ClusterPod
from shoestring.core.types import Pool, Quote
from shoestring.runtime.admission.stage_request import StageInputs
from shoestring.runtime.route_step.route import decide_and_reserve
from shoestring.runtime.supervisor.supervisor import write_heartbeat

SMALL = Pool(name="od/1", node_pool="od", cores=1, memory_gb=2)
LARGE = Pool(name="big/2", node_pool="big", cores=2, memory_gb=4)
QUEUE_S, ABANDONED_S = 300.0, 3600.0
SCHEDULER = "0/3 nodes are available: 3 Insufficient cpu."


class Queue:
    """Pending pods, and those that were ended. With `taken`, a node has accepted a pod before it is ended.
    `steps`: pending route and exit steps. `messages`: with which pods were ended.
    """

    def __init__(self, *pods: StagePod, taken: bool = False, steps: tuple[StagePod, ...] = ()) -> None:
        self.waiting, self.ended, self._taken = list(pods), list[StagePod](), taken
        self.steps, self.messages = steps, list[str]()

    def pods(self) -> tuple[StagePod, ...]:
        return tuple(self.waiting)

    def waiting_steps(self) -> tuple[StagePod, ...]:
        return tuple(step for step in self.steps if step not in self.ended)

    def end(self, pod: StagePod, reason: EndReason, message: str) -> bool:
        if self._taken:
            return False
        self.waiting = [other for other in self.waiting if other.ref != pod.ref]
        self.ended.append(pod)
        self.messages.append(message)
        return True


class NodePrices:
    """The local world's prices, for shares of nodes. `steps`: what route and exit steps pay, by node pool."""

    def __init__(self, laptop: PriceBook, steps: tuple[Quote, ...] = ()) -> None:
        names = {"cpu-1": SMALL.name, "cpu-2": LARGE.name}
        named = (
            quote.model_copy(update={"pool": names[quote.pool]})
            for quote in laptop.quotes
            if quote.pool in names
        )
        self._book = replace(laptop, quotes=tuple(named), steps=steps)

    def book(self) -> PriceBook:
        return self._book

    def current_usd_per_hour(self, quote: Quote, pool: Pool) -> None:
        """Return None: these prices never change."""

    def charged_usd_per_hour(self, quote: Quote, pool: Pool) -> Decimal | None:
        return quote.usd_per_hour


def pending_pod(
    world: World, seconds: float, run_id: str = "r", node: str = "", reason: str = SCHEDULER
) -> StagePod:
    since = world.clock.now() - timedelta(seconds=seconds)
    life = PodLifetime(alive=True, started_at=since if node else None)
    return StagePod(
        ClusterPod("ns", "7", "ingest-pod"), run_id, "ingest", since, node, True, reason, "42", life
    )


def waiting_step(world: World, label: str, seconds: float, run_id: str = "r") -> StagePod:
    """Return the pod of a route or exit step that has waited this long."""
    pod = pending_pod(world, seconds, run_id)
    return replace(pod, ref=ClusterPod("ns", label, f"{label}-pod"), stage=label)


def shares_world(laptop: Path, folder: Path, pools: tuple[Pool, ...] = (SMALL, LARGE)) -> World:
    small = small_world(laptop, folder, SetClock())
    return replace(on_cluster(small, pools)[0], prices=NodePrices(small.prices.book()))


def ingest_attempt(laptop: Path, recipe: Path, folder: Path) -> StartedAttempt:
    return begin(shares_world(laptop, folder), run_request(recipe, needs=INGEST))


def again(began: StartedAttempt, flights_slice: Path) -> str:
    decision, _ = decide_and_reserve(
        began.world, began.run, run_request(flights_slice, needs=INGEST), StageInputs()
    )
    assert decision.choice is not None
    return decision.choice.pool


def kill_pod(began: StartedAttempt) -> None:
    write_heartbeat(attempt_in_pod(began, "ns.1.ingest"), "running")
    began.world.clock.sleep(2)
    write_heartbeat(attempt_in_pod(began, "ns.1.ingest"), "running")
    assert isinstance(began.world.cluster, FakeCluster)
    began.world.cluster.lifetimes["ns.1.ingest"] = PodLifetime(alive=False)
