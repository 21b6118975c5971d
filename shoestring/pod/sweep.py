"""Once a minute on a cluster: pods that no node takes are given up, so that they are routed again; what dead pods hold is settled.

On a cluster nobody supervises a run, so silence has to do: of a pod for `queue_delay_s`, of a whole run for `abandoned_s`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

from shoestring.data.runs import Run, Start, open_run, read
from shoestring.errors import DataError, LedgerConflict, ShoestringError, UnknownName
from shoestring.model import record
from shoestring.pod.admission import next_attempt
from shoestring.pod.asking import STOCKOUTS
from shoestring.pod.overhead import overhead_hold
from shoestring.pod.receipts import decision_key, write_lost_receipts
from shoestring.pod.runs import run_of
from shoestring.pod.settle import for_open_starts, last_months, settle_abandoned, settle_start
from shoestring.routing.decision import Decision
from shoestring.rules import StockOut
from shoestring.seams import Waiting, WaitingPod, World
from shoestring.spending.account import AccountState, Hold
from shoestring.spending.entry import read_entry
from shoestring.spending.heartbeat import LET_GO, Heartbeat, last_heartbeat
from shoestring.spending.ledger import Ledger
from shoestring.spending.sweep import sweep as settle_dead

PULLING_S = 1800.0


def sweep(world: World, waiting: Waiting) -> list[str]:
    """Give up what waits for too long, settle what died in silence; says what it did."""
    pods = [replace(pod, run_id=run_of(world.store, pod.run_id)) for pod in waiting.pods()]
    said: list[str] = []
    for pod in pods:
        try:
            said += give_up(world, waiting, pod) if is_late(world, pod) else []
        except ShoestringError as error:
            said.append(f"{pod.pod_uid.split('.', 2)[-1]} could not be given up: {error}")
    return said + settle_silent(world, {(pod.run_id, pod.stage) for pod in pods}) + settle_abandoned(world)


def is_late(world: World, pod: WaitingPod) -> bool:
    """A node that took a pod, and complains of nothing, is given the time to fetch a large image."""
    longest_s = PULLING_S if pod.node and not pod.why else world.rules.queue_delay_s
    return (world.clock.now() - pod.since).total_seconds() >= longest_s


def give_up(world: World, waiting: Waiting, pod: WaitingPod) -> list[str]:
    """End one pod, remember the stock-out if no node took it, and give back what was reserved for it."""
    name, found = pod.pod_uid.split(".", 2)[-1], routed(world, pod)
    if not waiting.give_up(pod):
        return []
    if found is None:
        return [f"{name} was given up: it waited as {pod.stage} of {pod.run_id or 'no run'}, which this store does not know to be routed"]
    run, decision = found
    stock_out = stock_out_of(world, pod, decision)
    if not pod.node:
        world.store.put(f"{STOCKOUTS}{stock_out.node_pool}-{stock_out.market}.json", record(stock_out))
    release(world, run, decision.question.hold, stock_out.why)
    return [f"{name} was given up: {stock_out.why}"]


def routed(world: World, pod: WaitingPod) -> tuple[Run, Decision] | None:
    """The run that a pod belongs to, and the decision that placed it; None where there is none that can be read."""
    try:
        run = open_run(world.store, pod.run_id)
        key = decision_key(pod.run_id, f"{pod.stage}-{next_attempt(world.store, pod.run_id, pod.stage) - 1}")
        decision = read(world.store, key, Decision) if any(world.store.list(key)) else None
    except (UnknownName, DataError):
        return None
    return (run, decision) if decision and decision.choice else None


def stock_out_of(world: World, pod: WaitingPod, decision: Decision) -> StockOut:
    """What is to be remembered of the node pool that the pod was sent to."""
    assert decision.choice is not None
    pool = next(pool for pool in decision.question.pools if pool.name == decision.choice.pool)
    node_pool, market, now = pool.node_pool or pool.name, decision.choice.market, world.clock.now()
    where = f"to begin on {pod.node}" if pod.node else f"for a node of {node_pool} ({market})"
    why = f"{pod.stage} of {pod.run_id} waited {(now - pod.since).total_seconds():.0f} s {where}" + (f": {pod.why}" if pod.why else "")
    return StockOut(node_pool=node_pool, market=market, at=now, until=now + timedelta(seconds=world.rules.stockout_s), why=why)


def release(world: World, run: Run, hold: str, why: str) -> None:
    """Give back what was reserved for a pod that never began."""
    ledger, account = Ledger(world.store, world.clock, world.pod_uid), run.start.account
    beat = last_heartbeat(world.store, run.run_id, hold)
    if hold not in ledger.state(account).holds or (beat and beat.state != LET_GO):
        return
    try:
        ledger.settle(account, hold, Decimal(0), why)
    except LedgerConflict:
        # Its frame began after all, and settled.
        return
    write_lost_receipts(world, run, run.start, never_began=why)


def settle_silent(world: World, waiting: Collection[tuple[str, str]]) -> list[str]:
    """Settle what dead pods hold in runs that nobody supervises; end the account of a run that was given up. `waiting`: run and stage."""
    ledger = Ledger(world.store, world.clock, world.pod_uid)

    def settle(run: Run, start: Start) -> list[str]:
        return _settle_silent(world, ledger, run, start, waiting) if start.supervisor is None else []

    return [sentence for month in last_months(world) for sentence in for_open_starts(world, ledger, month, settle)]


def _settle_silent(world: World, ledger: Ledger, run: Run, start: Start, waiting: Collection[tuple[str, str]]) -> list[str]:
    state, now = ledger.state(start.account), world.clock.now()
    beats = {hold: last_heartbeat(world.store, run.run_id, hold) for hold in state.holds if hold != overhead_hold(start)}
    newest = max([written_at(world, state), *(beat.at for beat in beats.values() if beat)])
    if now - newest > timedelta(seconds=world.rules.abandoned_s) and not any(run_id == run.run_id for run_id, _ in waiting):
        return settle_start(world, run, start)
    silent = {
        hold
        for hold, beat in beats.items()
        if (run.run_id, state.holds[hold].stage) not in waiting and is_silent(world, state.holds[hold], beat)
    }
    if not silent:
        return []
    said = settle_dead(ledger, world.store, world.cluster, start.account, run.run_id, except_holds=state.holds.keys() - silent)
    write_lost_receipts(world, run, start)
    return said


def is_silent(world: World, held: Hold, beat: Heartbeat | None) -> bool:
    """A pod that has not said anything yet may have begun this very moment, if it could still have been waiting."""
    since, longest_s = (beat.at, world.rules.queue_delay_s) if beat else (held.since, world.rules.queue_delay_s + PULLING_S)
    return (world.clock.now() - since).total_seconds() > longest_s


def written_at(world: World, state: AccountState) -> datetime:
    """When an account was last written to."""
    sealed = read_entry(world.store, state.account, state.entries)
    assert sealed is not None
    return sealed.entry.at
