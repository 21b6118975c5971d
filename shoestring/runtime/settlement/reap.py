"""What the reaper does every minute on a cluster: it ends pods that no node accepts in time, and settles dead
ones.

Ended pods are routed again by their engine. On a cluster no process supervises a whole run, so the reaper
goes by silence: `queue_delay_s` for a pod, `abandoned_after_s` for a run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.attempt_id import AttemptId
from shoestring.core.errors import DataError, ShoestringError, UnknownName
from shoestring.core.interfaces import PendingPods, StagePod, Workflows
from shoestring.core.record import record_bytes
from shoestring.core.types import Pool, StockOut
from shoestring.data.run_records import Run, RunStart, open_run, read_record
from shoestring.reporting.publish import publish
from shoestring.routing.decision import Decision
from shoestring.routing.placement import ROUTE, SETTLE
from shoestring.runtime.admission.first_request import next_attempt
from shoestring.runtime.records.lifetimes import IMAGE_PULL_S, is_silent, lifetime_of
from shoestring.runtime.records.overhead import overhead_reservation, overhead_times
from shoestring.runtime.records.receipts import write_lost_receipts
from shoestring.runtime.records.run_setup import run_id_of_label
from shoestring.runtime.records.world_ledger import forget_accounts, world_ledger
from shoestring.runtime.settlement.engine_end import ENDED_PHASES, has_succeeded, write_engine_end
from shoestring.runtime.settlement.settle import (
    for_open_starts,
    recent_months,
    settle_abandoned,
    settle_start,
)
from shoestring.runtime.settlement.silent_pods import (
    identify_dead_pods,
    pod_of_reservation,
    settle_dead_pod,
    settle_silent_pod,
)
from shoestring.spending.heartbeat import UNSUPERVISED, Heartbeat, last_heartbeat
from shoestring.spending.ledger.account import AccountState
from shoestring.spending.ledger.entry import read_entry
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.lost_pods import settle_lost_pods

TIMED_OUT: Final = "TimedOut"


def reap(world: World, pending: PendingPods) -> list[str]:
    """End pods that have waited too long, and settle what died silently; return what was done."""
    found = pending.pods()
    run_ids = {label: run_id_of_label(world.store, label) for label in {pod.run_id for pod in found}}
    pods = [replace(pod, run_id=run_ids[pod.run_id]) for pod in found]
    waiting = [pod for pod in pods if pod.pending and not pod.ending]
    late = [pod for pod in waiting if waited_s(world, pod) >= world.policy.queue_delay_s]
    messages: list[str] = []
    for pod in late:
        try:
            messages += end_late_pod(world, pending, pod)
        except ShoestringError as error:
            messages.append(f"{pod.ref.name} timed out, but could not be ended: {error}")
    messages += end_late_steps(world, pending)
    return messages + settle_silent_runs(world, pods) + settle_abandoned(world)


def waited_s(world: World, pod: StagePod) -> float:
    """Return how long a pod has waited for a node, or to start on its node; by the cluster's clock where that
    is known.
    """
    now, since = pod.lifetime.asked_at or world.clock.now(), pod.lifetime.started_at or pod.since
    return (now - since).total_seconds()


def end_late_steps(world: World, pending: PendingPods) -> list[str]:
    """End the route and exit steps that no node has accepted in time; return what was done.

    No decision placed them, so there is nothing to release, and no pool to avoid.
    """
    messages = []
    for pod in pending.waiting_steps():
        if waited_s(world, pod) < world.policy.queue_delay_s:
            continue
        reason = f"{step_text(pod)} waited {waited_s(world, pod):.0f} s for a node without taints"
        reason += f": {pod.reason}" if pod.reason else ""
        try:
            if pending.end(pod, TIMED_OUT, reason):
                messages.append(f"{pod.ref.name} timed out: {reason}")
        except ShoestringError as error:
            messages.append(f"{pod.ref.name} timed out, but could not be ended: {error}")
    return messages


def step_text(pod: StagePod) -> str:
    """Return a route or exit step as text: the route step of train of flights-7."""
    of_stage = pod.stage.removeprefix(ROUTE)
    step = "the exit step" if pod.stage == SETTLE else f"the route step of {of_stage}"
    return f"{step} of {pod.run_id or 'no run'}"


def max_pending_s(world: World, pod: StagePod, decision: Decision | None) -> float:
    """Return how long a pod may wait.

    A pool may first have to create a node. A node that has accepted the pod and reports no problem may be
    pulling a large image.
    """
    if pod.node:
        return world.policy.queue_delay_s if pod.reason else IMAGE_PULL_S
    return world.policy.queue_delay_s + (pool_of(decision).startup_s if decision else 0.0)


def end_late_pod(world: World, pending: PendingPods, pod: StagePod) -> list[str]:
    """End one late pod, record the stock-out if no node accepted it, and release its reservation; return what
    was done.
    """
    name, found = pod.ref.name, run_and_decision(world, pod)
    if waited_s(world, pod) < max_pending_s(world, pod, found[1] if found else None):
        return []
    if found is None:
        run_name = pod.run_id or "no run"
        message = (
            f"{name} timed out: it waited as {pod.stage} of {run_name}, for which this store has no decision"
        )
        return [message] if pending.end(pod, TIMED_OUT, obstacle(pod)) else []
    run, decision = found
    stockout = stockout_of(world, pod, decision)
    key = store_layout.stock_out(stockout.node_pool, stockout.market)
    if not pod.node:
        # Written before the pod ends: an engine routes the stage again within a second or two of its end.
        world.store.put(key, record_bytes(stockout))
    if not pending.end(pod, TIMED_OUT, obstacle(pod)):
        if not pod.node and not has_timed_out(pending, pod):
            world.store.put(key, record_bytes(stockout.model_copy(update={"until": stockout.at})))
        return []
    heartbeat = last_heartbeat(world.store, run.run_id, str(decision.question.attempt_id))
    if heartbeat is None or heartbeat.state == UNSUPERVISED:
        settle_silent_pod(world, run, decision, pod, stockout.reason)
    return [f"{name} timed out: {stockout.reason}"]


def has_timed_out(pending: PendingPods, pod: StagePod) -> bool:
    """Return whether another reaper has ended a pod since it was read."""
    reasons = [each.lifetime.reason for each in pending.pods() if each.ref == pod.ref]
    return any(reason.startswith(TIMED_OUT) for reason in reasons)


def obstacle(pod: StagePod) -> str:
    """Return why a pod did not start in time."""
    where = f"it did not start on {pod.node} in time" if pod.node else "no node took it in time"
    return where + (f": {pod.reason}" if pod.reason else "")


def run_and_decision(world: World, pod: StagePod) -> tuple[Run, Decision] | None:
    """Return the run that a pod belongs to, and the decision that placed it; None where there is no readable
    one.
    """
    try:
        run = open_run(world.store, pod.run_id)
        last = next_attempt(world.store, pod.run_id, pod.stage) - 1
        key = store_layout.decision(pod.run_id, AttemptId(pod.run_id, pod.stage, last))
        decision = read_record(world.store, key, Decision) if any(world.store.list(key)) else None
    except (UnknownName, DataError):
        return None
    return (run, decision) if decision and decision.choice else None


def pool_of(decision: Decision) -> Pool:
    assert decision.choice is not None
    return decision.question.pool(decision.choice.pool)


def stockout_of(world: World, pod: StagePod, decision: Decision) -> StockOut:
    """Return the stock-out of the node pool that the pod was sent to."""
    assert decision.choice is not None
    pool = pool_of(decision)
    node_pool, market, now = pool.node_pool or pool.name, decision.choice.market, world.clock.now()
    where = f"to start on {pod.node}" if pod.node else f"for a node of {node_pool} ({market})"
    reason = f"{pod.stage} of {pod.run_id} waited {waited_s(world, pod):.0f} s {where}"
    return StockOut(
        node_pool=node_pool,
        market=market,
        at=now,
        until=now + timedelta(seconds=world.policy.stockout_ttl_s),
        reason=f"{reason}: {pod.reason}" if pod.reason else reason,
    )


def settle_silent_runs(world: World, pods: Sequence[StagePod]) -> list[str]:
    """Settle dead pods of the runs that have no launcher, and close the accounts of those whose engine has
    ended them, or that are abandoned; return what was done.
    """
    forget_accounts(world)
    ledger = world_ledger(world)

    def settle(run: Run, start: RunStart) -> list[str]:
        if start.launcher is not None:
            return []
        return settle_silent_run(world, ledger, run, start, [pod for pod in pods if pod.run_id == run.run_id])

    return [
        message for month in recent_months(world) for message in for_open_starts(world, ledger, month, settle)
    ]


def settle_silent_run(
    world: World, ledger: Ledger, run: Run, start: RunStart, pods: Sequence[StagePod]
) -> list[str]:
    """Settle the dead pods of one run, or the whole run if its Workflow has ended without an exit step that
    closed it, or if it is abandoned; return what was done.

    `pods` are the run's own.
    """
    messages, alive = [], {pod.stage for pod in pods if pod.lifetime.alive}
    for name, reservation in ledger.state(start.account).reservations.items():
        pod = pod_of_reservation(reservation, pods)
        if pod and reservation.stage not in alive and last_heartbeat(world.store, run.run_id, name) is None:
            messages += settle_dead_pod(world, run, name, pod)
    identify_dead_pods(world, run, ledger.state(start.account), pods)
    state = ledger.state(start.account)
    stages = [name for name in state.reservations if name != overhead_reservation(start)]
    heartbeats = {name: last_heartbeat(world.store, run.run_id, name) for name in stages}
    is_silent = not alive and is_abandoned(world, state, heartbeats.values())
    if (not alive and engine_has_ended(world, start)) or (
        is_silent and not has_live_route_step(world, run, start)
    ):
        if start.workflow:
            write_engine_end(world, run, succeeded=has_succeeded(world, start.workflow))
        messages += settle_start(world, run, start)
        publish(world.store, run.run_id)
        return messages
    silent = silent_reservations(world, state, heartbeats, alive)
    if silent:
        others = state.reservations.keys() - silent
        messages += settle_lost_pods(
            ledger, world.store, partial(lifetime_of, world), start.account, run.run_id, exclude=others
        )
        write_lost_receipts(world, run, start)
    return messages


def engine_has_ended(world: World, start: RunStart) -> bool:
    """Return whether the Workflow of a start is known to have ended; one that is gone has."""
    cluster = world.cluster
    if not start.workflow or not isinstance(cluster, Workflows):
        return False
    return cluster.phase(start.workflow) in ENDED_PHASES


def is_abandoned(world: World, state: AccountState, heartbeats: Iterable[Heartbeat | None]) -> bool:
    """Return whether a run's account and pods have been silent for `abandoned_after_s`, and none of its pods
    is alive.

    The cluster alone knows whether the pod of an external component is alive.
    """
    written = [heartbeat for heartbeat in heartbeats if heartbeat]
    newest = max([last_entry_at(world, state), *(heartbeat.at for heartbeat in written)])
    is_silent = world.clock.now() - newest > timedelta(seconds=world.policy.abandoned_after_s)
    return is_silent and not any(lifetime_of(world, heartbeat).alive for heartbeat in written)


def has_live_route_step(world: World, run: Run, start: RunStart) -> bool:
    """Return whether a route step of a start still runs. It may wait for the result of another run."""
    unfinished = [time for time in overhead_times(world, run, start) if time.finished_at is None]
    return any(world.cluster.lifetime(time.pod).alive for time in unfinished)


def silent_reservations(
    world: World, state: AccountState, heartbeats: Mapping[str, Heartbeat | None], alive: Collection[str]
) -> set[str]:
    """Return the reservations whose stages have no live pod and no recent heartbeat. `alive`: stages with a
    live pod.
    """
    return {
        name
        for name, heartbeat in heartbeats.items()
        if state.reservations[name].stage not in alive
        and is_silent(world, state.reservations[name], heartbeat)
    }


def last_entry_at(world: World, state: AccountState) -> datetime:
    """Return when an account's last entry was written."""
    sealed = read_entry(world.store, state.account, state.entries)
    assert sealed is not None
    return sealed.entry.at
