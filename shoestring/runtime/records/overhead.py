"""The cost of deciding and settling: reserved at admission, timed by each pod that runs no stage, settled at
the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from pydantic import AwareDatetime, Field

from shoestring.config.engines import CREATES_PODS_AGAIN, EngineTimes
from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.attempt_id import AttemptId
from shoestring.core.interfaces import NodePools
from shoestring.core.money import Usd, capped_usd
from shoestring.core.pod_ref import ClusterPod, PodRef
from shoestring.core.record import StoredRecord, record_bytes
from shoestring.core.types import Market
from shoestring.data.run_records import Run, RunStart, read_each
from shoestring.routing.decision import Choice
from shoestring.spending.meter import cost_usd

OVERHEAD = "overhead"
EXIT_STEP = "settle"
"""The name of the exit step."""
WALK = "walk"
"""The name of what a launcher charges that returns all results of a run itself. It runs no pod for them."""
# A pod that decides, settles, or returns a cached result: measured 0.5-0.8 s, and 1.0-1.6 s on two busy
# cores, imports included.
OVERHEAD_POD_S = 3.0
STEP_SERVER, STEP_SERVER_S = "step-server", 2.0
"""The name of the start of the local engine's server of steps (`pipelines/step_server.py`), and what is held
for it: it imports what the steps need, once a run."""
OVERHEAD_REQUESTS = 45
"""Requests to the store that such a pod waits for, one after another: counted by bench/store_latency.py."""


class OverheadTime(StoredRecord):
    """How long a pod took that runs no stage.

    `finished_at` is None until the pod ends; until then `allowance_s` is charged. `paid_by` names the attempt
    that pays for the whole pod, where it runs a stage later; then the overhead does not. `pool`: what
    `usd_per_hour` is the price of; empty: it is not known, or the pod is a process of this machine.
    """

    name: str
    pod: PodRef
    usd_per_hour: Usd
    pool: str = Field("", exclude_if=lambda name: not name)
    allowance_s: float
    started_at: AwareDatetime
    finished_at: AwareDatetime | None
    paid_by: str = Field("", exclude_if=lambda attempt: not attempt)
    waited_s: float = Field(0.0, ge=0, exclude_if=lambda seconds: seconds == 0)


@dataclass(slots=True)
class OverheadPod:
    """A pod whose time is charged to the overhead, until `paid_by` names the attempt that pays for it.

    `waited_s`: for how long it has waited for a result of another run, or for money.
    """

    paid_by: str = ""
    waited_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StartOverhead:
    """The cost of the pods of a start that ran no stage; `measured_pods_s` are the seconds of those whose
    end is known. `note`: a sentence on those that are booked at the highest price; empty: there are none.
    """

    spent_usd: Decimal
    measured_pods_s: tuple[float, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class OverheadPrices:
    """The highest prices an hour that pods without a stage may be booked at.

    `step_usd_per_hour`: of a route or exit step, and `step_by_pool` is what it pays on the nodes of a pool;
    empty: it has no share of a node. `stage_pod_usd_per_hour`: of a stage's pod that returns a cached result,
    which goes to the smallest share of some node pool, without GPUs if there is one.
    """

    step_usd_per_hour: Decimal
    stage_pod_usd_per_hour: Decimal
    step_by_pool: dict[str, Decimal]


def overhead_reservation(start: RunStart) -> str:
    """Return the name of the reservation for a start's overhead in its account."""
    return str(AttemptId(start.account, OVERHEAD, start.number))


def overhead_prices(world: World) -> OverheadPrices:
    """Return what the pods that run no stage may be booked at, by the prices of now.

    On a machine without shares of nodes, all of them are booked at the cheapest accepted price of a pool
    without GPUs that is not spot; without such a pool, at the cheapest of all.
    """
    book, pools = world.prices.book(), {pool.name: pool for pool in world.cluster.pools()}
    without_gpus = [quote for quote in book.quotes if quote.pool in pools and not pools[quote.pool].gpu_count]
    if not book.steps:
        fitting = [quote for quote in without_gpus if quote.market is not Market.SPOT] or book.quotes
        one_usd = min((quote.usd_per_hour for quote in fitting), default=Decimal(0))
        return OverheadPrices(one_usd, one_usd, {})
    steps = {quote.pool: quote.usd_per_hour for quote in book.steps}
    smallest: dict[str | None, Decimal] = {}
    for quote in without_gpus or book.quotes:
        pool = pools[quote.pool]
        if quote.market in pool.markets:
            known_usd = smallest.get(pool.node_pool, quote.usd_per_hour)
            smallest[pool.node_pool] = min(known_usd, quote.usd_per_hour)
    step_usd = max(steps.values())
    return OverheadPrices(step_usd, max(smallest.values(), default=step_usd), steps)


def overhead_usd_per_hour(world: World) -> Decimal:
    """Return the highest price that a route or exit step may be booked at."""
    return overhead_prices(world).step_usd_per_hour


def assumed_pod_s(world: World, request_s: float = 0.0) -> float:
    """Return the seconds of a pod that runs no stage, its start-up and exit included, as assumed
    before enough were measured. `request_s`: of a request to the store.
    """
    startup_s = min((pool.startup_s for pool in world.cluster.pools() if pool.gpu_count == 0), default=0.0)
    return startup_s + OVERHEAD_POD_S + OVERHEAD_REQUESTS * request_s + world.policy.pod_exit_s


def overhead_usd(world: World, steps: int, cached: int, engine: EngineTimes) -> Decimal:
    """Return the highest cost of this many route and exit steps, on this machine with the start of their
    server, and of pods with a cached result; and of one more such pod where the engine creates pods again: a
    second pod of a decision that gets no attempt.

    That one is held as long as the others are, since most such pods end at once. Where the first pod was lost
    unseen, it may wait for a heartbeat's interval and SILENT_EXIT_S, and for LOST_POD_WAIT_S more. A pod that
    runs the stage afterwards pays for its wait itself. So few waits are overhead, and on a GKE core at $0.065
    an hour the first 20 s of one would take 12% of the default recipe's $0.003 from the training of each run.
    """
    prices, pods = overhead_prices(world), cached + (engine.engine in CREATES_PODS_AGAIN)
    steps_s = steps * engine.pod_s + (STEP_SERVER_S if engine.engine == "local" else 0.0)
    steps_usd = prices.step_usd_per_hour * Decimal(str(steps_s)) / 3600
    pods_usd = prices.stage_pod_usd_per_hour * Decimal(str(pods * engine.pod_s)) / 3600
    return capped_usd(steps_usd + pods_usd)


def overhead_times(world: World, run: Run, start: RunStart) -> list[OverheadTime]:
    """Return the times of all pods of a start that ran no stage."""
    keys = list(world.store.list(store_layout.overheads(run.run_id, start.number)))
    times = read_each(world.store, keys, OverheadTime)
    return [each for each in times if not each.paid_by]


@contextmanager
def overhead_timer(
    world: World, run: Run, name: str, requests_left: int = 2, placed: Choice | None = None
) -> Iterator[OverheadPod]:
    """Charge this pod's time, from its own start, to the run's overhead; also when the body raises.

    `requests_left`: to the store after the body, the record of this time included. Each is expected to take
    as long as the first one did here. `placed`: the choice that this pod was placed by; None: it is that of a
    route or exit step.
    """
    now, pod = world.clock.now(), OverheadPod()
    # What a launcher does before its walk is its user's own time, as all of it is where an engine runs pods.
    age_s = 0.0 if name == WALK else world.cluster.lifetime(world.pod).age_s(now)
    pool, usd_per_hour = (placed.pool, placed.usd_per_hour) if placed else price_of_step(world, run.start)
    begun = OverheadTime(
        name=name,
        pod=world.pod,
        usd_per_hour=usd_per_hour,
        pool=pool,
        allowance_s=run.start.overhead_pod_s,
        started_at=now - timedelta(seconds=age_s),
        finished_at=None,
    )
    key = store_layout.overhead(run.run_id, run.start.number, name, str(world.pod))
    began_s = world.clock.monotonic_s()
    world.store.put(key, record_bytes(begun))
    left = timedelta(seconds=requests_left * (world.clock.monotonic_s() - began_s))
    try:
        yield pod
    finally:
        found = {"finished_at": world.clock.now() + left, "paid_by": pod.paid_by, "waited_s": pod.waited_s}
        ended = begun.model_copy(update=found)
        world.store.put(key, record_bytes(ended))


def price_of_step(world: World, start: RunStart) -> tuple[str, Decimal]:
    """Return the pool that this pod is on and what a route or exit step pays there; "" and the highest price
    where the pool is not known, or was not known when the run started.
    """
    prices, cluster, name = start.step_usd_per_hour, world.cluster, ""
    if prices and isinstance(cluster, NodePools):
        name = cluster.pool_of_pod(world.pod)
    return (name, prices[name]) if name in prices else ("", start.overhead_usd_per_hour)


def charge_step_server(world: World, run: Run, seconds: float) -> None:
    """Charge the start of the server of the run's steps, which has just ended, to its overhead."""
    now = world.clock.now()
    started = OverheadTime(
        name=STEP_SERVER,
        pod=world.pod,
        usd_per_hour=run.start.overhead_usd_per_hour,
        allowance_s=seconds,
        started_at=now - timedelta(seconds=seconds),
        finished_at=now,
    )
    key = store_layout.overhead(run.run_id, run.start.number, STEP_SERVER, str(world.pod))
    world.store.put(key, record_bytes(started))


def read_overhead(world: World, run: Run, start: RunStart) -> StartOverhead:
    """Return what deciding and settling took in one start, by the pods' own times where the cluster reports
    them. Raises DataError and StoreError.
    """
    times = overhead_times(world, run, start)
    seconds = [_seconds(world, pod) for pod in times]
    costs = (cost_usd(pod.usd_per_hour, pod_s) for pod, pod_s in zip(times, seconds, strict=True))
    return StartOverhead(
        spent_usd=sum(costs, Decimal(0)),
        measured_pods_s=tuple(
            max(0.0, pod_s - (pod.waited_s if isinstance(pod.pod, ClusterPod) else 0.0))
            for pod, pod_s in zip(times, seconds, strict=True)
            if pod.finished_at is not None and pod.name not in (STEP_SERVER, WALK)
        ),
        note=highest_price_note(start, times),
    )


def highest_price_note(start: RunStart, times: Sequence[OverheadTime]) -> str:
    """Return a sentence on the pods of a cluster whose pool is not known; empty: there are none."""
    unknown = sum(not time.pool for time in times)
    if not unknown or not start.step_usd_per_hour:
        return ""
    return (
        f"{start.account}: {unknown} of {len(times)} pods of the overhead are booked at "
        f"${start.overhead_usd_per_hour} an hour, the highest price of a route or exit step, since the node "
        "pool of each is not known"
    )


def overhead_excess_usd(world: World, run: Run, reserved_usd: Decimal) -> Decimal:
    """Return what the overhead of a run's current start, with its exit step, costs above its reservation."""
    exit_usd = cost_usd(run.start.overhead_usd_per_hour, run.start.overhead_pod_s)
    return max(Decimal(0), read_overhead(world, run, run.start).spent_usd + exit_usd - reserved_usd)


def _seconds(world: World, time: OverheadTime) -> float:
    """Return the seconds to charge for a pod: its whole allowance where its end is unknown.

    A process that waits on a machine of its own costs nothing. A pod of a cluster that waits
    keeps its place.
    """
    lifetime = world.cluster.lifetime(time.pod)
    if lifetime.started_at and lifetime.finished_at:
        return (lifetime.finished_at - lifetime.started_at).total_seconds()
    if time.finished_at is None:
        return time.allowance_s
    free_s = 0.0 if isinstance(time.pod, ClusterPod) else time.waited_s
    return (time.finished_at - time.started_at).total_seconds() - free_s + world.policy.pod_exit_s
