"""The cost of deciding and settling: reserved at admission, timed by each pod that runs no stage, settled at
the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal

from pydantic import AwareDatetime

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.attempt_id import AttemptId
from shoestring.core.money import MAX_USD, Usd, usd
from shoestring.core.pod_ref import PodRef
from shoestring.core.record import StoredRecord, record_bytes
from shoestring.core.types import Market
from shoestring.data.run_records import Run, RunStart, read_record
from shoestring.spending.meter import cost_usd

OVERHEAD = "overhead"
# No budget is as large, so a world that would charge more for deciding is refused.
MOST_USD = Decimal(MAX_USD - 1)
# A pod that decides, settles, or returns a cached result: measured 0.5-0.8 s, and 1.0-1.6 s on two busy
# cores, imports included.
OVERHEAD_POD_S = 3.0


class OverheadTime(StoredRecord):
    """How long a pod took that runs no stage.

    `finished_at` is None until the pod ends; until then `allowance_s` is charged.
    """

    name: str
    pod: PodRef
    usd_per_hour: Usd
    allowance_s: float
    started_at: AwareDatetime
    finished_at: AwareDatetime | None


def overhead_reservation(start: RunStart) -> str:
    """Return the name of the reservation for a start's overhead in its account."""
    return str(AttemptId(start.account, OVERHEAD, start.number))


def overhead_usd_per_hour(world: World) -> Decimal:
    """Return the price of the pool that routers run on.

    It is the cheapest accepted price of a pool without GPUs that is not spot; without such a pool, the
    cheapest of all.
    """
    cpu_pools = {pool.name for pool in world.cluster.pools() if pool.gpu_count == 0}
    quotes = world.prices.book().quotes
    fitting = [
        quote.usd_per_hour for quote in quotes if quote.pool in cpu_pools and quote.market is not Market.SPOT
    ]
    return min(fitting or [quote.usd_per_hour for quote in quotes], default=Decimal(0))


def overhead_pod_s(world: World) -> float:
    """Return the maximum seconds of a pod that runs no stage, its start-up and exit included."""
    startup_s = min((pool.startup_s for pool in world.cluster.pools() if pool.gpu_count == 0), default=0.0)
    return startup_s + OVERHEAD_POD_S + world.policy.pod_exit_s


def overhead_usd(world: World, stages: int) -> Decimal:
    """Return the maximum cost of deciding and settling: for each stage a router and perhaps a cached pod; one
    exit step.
    """
    seconds = Decimal(str((2 * stages + 1) * overhead_pod_s(world)))
    return usd(min(overhead_usd_per_hour(world) * seconds / 3600, MOST_USD))


def overhead_s(world: World, stages: int) -> float:
    """Return the seconds of the deadline that the remaining routers and the exit step take."""
    return stages * overhead_pod_s(world)


def overhead_times(world: World, run: Run, start: RunStart) -> list[OverheadTime]:
    """Return the times of all pods of a start that ran no stage."""
    return [
        read_record(world.store, key, OverheadTime)
        for key in world.store.list(store_layout.overheads(run.run_id, start.number))
    ]


@contextmanager
def overhead_timer(world: World, run: Run, name: str) -> Iterator[None]:
    """Charge this pod's time, from its own start, to the run's overhead; also when the body raises."""
    now = world.clock.now()
    begun = OverheadTime(
        name=name,
        pod=world.pod,
        usd_per_hour=run.start.overhead_usd_per_hour,
        allowance_s=run.start.overhead_pod_s,
        started_at=now - timedelta(seconds=world.cluster.lifetime(world.pod).age_s(now)),
        finished_at=None,
    )
    key = store_layout.overhead(run.run_id, run.start.number, name, str(world.pod))
    world.store.put(key, record_bytes(begun))
    try:
        yield
    finally:
        ended = begun.model_copy(update={"finished_at": world.clock.now()})
        world.store.put(key, record_bytes(ended))


def overhead_spent_usd(world: World, run: Run, start: RunStart) -> Decimal:
    """Return the cost of deciding and settling in one start, by the pods' own times where the cluster reports
    them.
    """
    return sum(
        (cost_usd(pod.usd_per_hour, _seconds(world, pod)) for pod in overhead_times(world, run, start)),
        Decimal(0),
    )


def _seconds(world: World, time: OverheadTime) -> float:
    """Return the seconds to charge for a pod: its whole allowance where its end is unknown."""
    lifetime = world.cluster.lifetime(time.pod)
    if lifetime.started_at and lifetime.finished_at:
        return (lifetime.finished_at - lifetime.started_at).total_seconds()
    if time.finished_at is None:
        return time.allowance_s
    return (time.finished_at - time.started_at).total_seconds() + world.policy.pod_exit_s
