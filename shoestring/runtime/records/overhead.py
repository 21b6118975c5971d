"""What deciding and settling cost: set aside at admission, timed by each pod that does no stage's work, settled at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal

from pydantic import AwareDatetime

from shoestring.config.world import World
from shoestring.core.money import Usd, usd
from shoestring.core.pod_ref import PodRef
from shoestring.core.record import StoredRecord, record_bytes
from shoestring.core.types import Market
from shoestring.data.run_records import Run, RunStart, read_record
from shoestring.spending.meter import cost_usd

OVERHEAD = "overhead"
# A pod that decides, settles, or hands on a cached result: measured 0.5-0.8 s, and twice that on two busy cores, imports included.
OVERHEAD_POD_S = 3.0


class OverheadTime(StoredRecord):
    """How long a pod took that does no stage's work. `finished_at` is None until it is done; `allowance_s` then stands in for it."""

    name: str
    pod: PodRef
    usd_per_hour: Usd
    allowance_s: float
    started_at: AwareDatetime
    finished_at: AwareDatetime | None


def overhead_hold(start: RunStart) -> str:
    return f"{OVERHEAD}-{start.number}"


def overhead_usd_per_hour(world: World) -> Decimal:
    """The price of the pool that routers run on: the cheapest with a believable price, no GPU and no preemption, if there is one."""
    plain = {pool.name for pool in world.cluster.pools() if pool.gpu_count == 0}
    quotes = world.prices.book().quotes
    fitting = [
        quote.usd_per_hour for quote in quotes if quote.pool in plain and quote.market is not Market.SPOT
    ]
    return min(fitting or [quote.usd_per_hour for quote in quotes], default=Decimal(0))


def overhead_pod_s(world: World) -> float:
    """Seconds that a pod takes, at most, that does no stage's work."""
    startup_s = min((pool.startup_s for pool in world.cluster.pools() if pool.gpu_count == 0), default=0.0)
    return startup_s + OVERHEAD_POD_S + world.policy.pod_exit_s


def overhead_usd(world: World, stages: int) -> Decimal:
    """What deciding and settling may cost at most: a router and perhaps a cached pod a stage, and the exit step."""
    seconds = Decimal(str((2 * stages + 1) * overhead_pod_s(world)))
    return usd(overhead_usd_per_hour(world) * seconds / 3600)


def overhead_s(world: World, stages: int) -> float:
    """Seconds of the deadline that go to the routers still to come, and to the exit step."""
    return stages * overhead_pod_s(world)


def overhead_times(world: World, run: Run, start: RunStart) -> list[OverheadTime]:
    """Of all pods of a start that did no stage's work."""
    return [
        read_record(world.store, key, OverheadTime)
        for key in world.store.list(f"runs/{run.run_id}/overhead/{start.number}/")
    ]


@contextmanager
def overhead_timer(world: World, run: Run, name: str) -> Iterator[None]:
    """Put this pod's time, from its own start, on the run's overhead line, also when it fails."""
    now = world.clock.now()
    begun = OverheadTime(
        name=name,
        pod=world.pod,
        usd_per_hour=run.start.overhead_usd_per_hour,
        allowance_s=run.start.overhead_pod_s,
        started_at=now - timedelta(seconds=world.cluster.lifetime(world.pod).age_s(now)),
        finished_at=None,
    )
    key = f"runs/{run.run_id}/overhead/{run.start.number}/{name}.{world.pod}.json"
    world.store.put(key, record_bytes(begun))
    try:
        yield
    finally:
        world.store.put(key, record_bytes(begun.model_copy(update={"finished_at": world.clock.now()})))


def overhead_spent_usd(world: World, run: Run, start: RunStart) -> Decimal:
    """What deciding and settling took in one start, by the pods' own times where the cluster tells them."""
    return sum(
        (cost_usd(pod.usd_per_hour, _seconds(world, pod)) for pod in overhead_times(world, run, start)),
        Decimal(0),
    )


def _seconds(world: World, pod: OverheadTime) -> float:
    """A pod that never said when it ended takes its whole allowance."""
    life = world.cluster.lifetime(pod.pod)
    if life.started_at and life.finished_at:
        return (life.finished_at - life.started_at).total_seconds()
    if pod.finished_at is None:
        return pod.allowance_s
    return (pod.finished_at - pod.started_at).total_seconds() + world.policy.pod_exit_s
