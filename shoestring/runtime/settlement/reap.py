"""Once a minute on a cluster: pods that no node takes are given up, so that they are routed again; what dead pods hold is settled.

On a cluster nobody supervises a run, so silence has to do: of a pod for `queue_delay_s`, of a whole run for `abandoned_after_s`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from shoestring.config.world import World
from shoestring.core.errors import DataError, ShoestringError, UnknownName
from shoestring.core.interfaces import PendingPods, StagePod
from shoestring.core.record import record_bytes
from shoestring.core.types import Pool, StockOut
from shoestring.data.run_records import Run, RunStart, open_run, read_record
from shoestring.reporting.publish import publish
from shoestring.routing.decision import Decision
from shoestring.runtime.admission.admit import next_attempt
from shoestring.runtime.records.overhead import overhead_hold
from shoestring.runtime.records.receipt_history import STOCKOUTS
from shoestring.runtime.records.receipts import decision_key, write_lost_receipts
from shoestring.runtime.records.run_setup import run_id_for
from shoestring.runtime.settlement.settle import (
    for_open_starts,
    recent_months,
    settle_abandoned,
    settle_start,
)
from shoestring.runtime.settlement.silent_pods import (
    identify_dead_pods,
    pod_of_hold,
    settle_dead_pod,
    settle_silent_pod,
)
from shoestring.spending.heartbeat import UNSUPERVISED, Heartbeat, last_heartbeat
from shoestring.spending.ledger.account import AccountState, Reservation
from shoestring.spending.ledger.entry import read_entry
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.lost_pods import settle_lost_pods as settle_dead

IMAGE_PULL_S = 1800.0


def reap(world: World, waiting: PendingPods) -> list[str]:
    """Give up what waits for too long, settle what died in silence; says what it did."""
    found = waiting.pods()
    runs = {label: run_id_for(world.store, label) for label in {pod.run_id for pod in found}}
    pods = [replace(pod, run_id=runs[pod.run_id]) for pod in found]
    late = [pod for pod in pods if pod.pending and waited_s(world, pod) >= world.policy.queue_delay_s]
    said: list[str] = []
    for pod in late:
        try:
            said += end_late_pod(world, waiting, pod)
        except ShoestringError as error:
            said.append(f"{pod_name(pod)} could not be given up: {error}")
    return said + settle_silent_runs(world, pods) + settle_abandoned(world)


def pod_name(pod: StagePod) -> str:
    return pod.ref.name


def waited_s(world: World, pod: StagePod) -> float:
    """For a node, or to begin on the one that took it; by the cluster's clock, where that is known."""
    return ((pod.lifetime.asked_at or world.clock.now()) - (pod.lifetime.started_at or pod.since)).total_seconds()


def max_wait_s(world: World, pod: StagePod, decision: Decision | None) -> float:
    """A pool may first have to make a node; a node that took a pod, and complains of nothing, is given the time to fetch a large image."""
    if pod.node:
        return world.policy.queue_delay_s if pod.reason else IMAGE_PULL_S
    return world.policy.queue_delay_s + (pool_of(decision).startup_s if decision else 0.0)


def end_late_pod(world: World, waiting: PendingPods, pod: StagePod) -> list[str]:
    """End one pod that is late, remember the stock-out if no node took it, and give back what was reserved for it."""
    name, found = pod_name(pod), run_and_decision(world, pod)
    if waited_s(world, pod) < max_wait_s(world, pod, found[1] if found else None):
        return []
    if found is None:
        unknown = f"{name} was given up: it waited as {pod.stage} of {pod.run_id or 'no run'}, which this store does not know to be routed"
        return [unknown] if waiting.end(pod) else []
    run, decision = found
    stock_out = stockout_of(world, pod, decision)
    key = f"{STOCKOUTS}{stock_out.node_pool}-{stock_out.market}.json"
    if not pod.node:
        # Before its end: an engine routes again within a second or two of that.
        world.store.put(key, record_bytes(stock_out))
    if not waiting.end(pod):
        if not pod.node:
            world.store.put(key, record_bytes(stock_out.model_copy(update={"until": stock_out.at})))
        return []
    beat = last_heartbeat(world.store, run.run_id, str(decision.question.attempt_id))
    if beat is None or beat.state == UNSUPERVISED:
        settle_silent_pod(world, run, decision, pod, stock_out.reason)
    return [f"{name} was given up: {stock_out.reason}"]


def run_and_decision(world: World, pod: StagePod) -> tuple[Run, Decision] | None:
    """The run that a pod belongs to, and the decision that placed it; None where there is none that can be read."""
    try:
        run = open_run(world.store, pod.run_id)
        key = decision_key(pod.run_id, f"{pod.stage}-{next_attempt(world.store, pod.run_id, pod.stage) - 1}")
        decision = read_record(world.store, key, Decision) if any(world.store.list(key)) else None
    except (UnknownName, DataError):
        return None
    return (run, decision) if decision and decision.choice else None


def pool_of(decision: Decision) -> Pool:
    assert decision.choice is not None
    return next(pool for pool in decision.question.pools if pool.name == decision.choice.pool)


def stockout_of(world: World, pod: StagePod, decision: Decision) -> StockOut:
    """What is to be remembered of the node pool that the pod was sent to."""
    assert decision.choice is not None
    pool = pool_of(decision)
    node_pool, market, now = pool.node_pool or pool.name, decision.choice.market, world.clock.now()
    where = f"to begin on {pod.node}" if pod.node else f"for a node of {node_pool} ({market})"
    why = f"{pod.stage} of {pod.run_id} waited {waited_s(world, pod):.0f} s {where}" + (
        f": {pod.reason}" if pod.reason else ""
    )
    return StockOut(
        node_pool=node_pool,
        market=market,
        at=now,
        until=now + timedelta(seconds=world.policy.stockout_ttl_s),
        reason=why,
    )


def settle_silent_runs(world: World, pods: Sequence[StagePod]) -> list[str]:
    """Settle what dead pods hold in runs that nobody supervises; end the account of a run that was given up."""
    ledger = Ledger(world.store, world.clock, str(world.pod))

    def settle(run: Run, start: RunStart) -> list[str]:
        mine = [pod for pod in pods if pod.run_id == run.run_id]
        return settle_silent_run(world, ledger, run, start, mine) if start.launcher is None else []

    return [
        sentence for month in recent_months(world) for sentence in for_open_starts(world, ledger, month, settle)
    ]


def settle_silent_run(
    world: World, ledger: Ledger, run: Run, start: RunStart, pods: Sequence[StagePod]
) -> list[str]:
    """`pods`: those of the run."""
    said, living = [], {pod.stage for pod in pods if pod.lifetime.alive}
    for hold, held in ledger.state(start.account).reservations.items():
        pod = pod_of_hold(held, pods)
        if pod and held.stage not in living and last_heartbeat(world.store, run.run_id, hold) is None:
            said += settle_dead_pod(world, run, hold, pod)
    identify_dead_pods(world, run, ledger.state(start.account), pods)
    state, now = ledger.state(start.account), world.clock.now()
    beats = {
        hold: last_heartbeat(world.store, run.run_id, hold)
        for hold in state.reservations
        if hold != overhead_hold(start)
    }
    newest = max([last_entry_at(world, state), *(beat.at for beat in beats.values() if beat)])
    if (
        now - newest > timedelta(seconds=world.policy.abandoned_after_s)
        and not living
        and not any_pod_alive(world, beats.values())
    ):
        said += settle_start(world, run, start)
        publish(world.store, run.run_id)
        return said
    silent = {
        hold
        for hold, beat in beats.items()
        if state.reservations[hold].stage not in living and is_silent(world, state.reservations[hold], beat)
    }
    if silent:
        said += settle_dead(
            ledger,
            world.store,
            world.cluster,
            start.account,
            run.run_id,
            exclude=state.reservations.keys() - silent,
        )
        write_lost_receipts(world, run, start)
    return said


def any_pod_alive(world: World, beats: Iterable[Heartbeat | None]) -> bool:
    """Does a pod live that money is held for? Of a component that keeps no books nothing else tells."""
    return any(world.cluster.lifetime(beat.pod).alive for beat in beats if beat)


def is_silent(world: World, held: Reservation, beat: Heartbeat | None) -> bool:
    """A pod that has not said anything yet may have begun this very moment, if it could still have been waiting."""
    since, longest_s = (
        (beat.at, world.policy.queue_delay_s) if beat else (held.reserved_at, world.policy.queue_delay_s + IMAGE_PULL_S)
    )
    return (world.clock.now() - since).total_seconds() > longest_s


def last_entry_at(world: World, state: AccountState) -> datetime:
    """When an account was last written to."""
    sealed = read_entry(world.store, state.account, state.entries)
    assert sealed is not None
    return sealed.entry.at
