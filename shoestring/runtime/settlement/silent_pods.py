"""An attempt that never said a word: its pod could not begin, or died too soon. The sweeper, which sees pods, puts it on the books."""

from __future__ import annotations

from collections.abc import Sequence

from shoestring.config.world import World
from shoestring.core.errors import LedgerConflict
from shoestring.core.interfaces import StagePod
from shoestring.core.receipt import Receipt
from shoestring.core.record import record_bytes
from shoestring.data.run_records import Run, read_record
from shoestring.routing.decision import Decision
from shoestring.runtime.records.receipts import decision_key, receipt_key, write_lost_receipts
from shoestring.spending.heartbeat import Heartbeat, heartbeat_key
from shoestring.spending.ledger.account import AccountState, Reservation
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.meter import cost_usd


def pod_of_hold(held: Reservation, pods: Sequence[StagePod]) -> StagePod | None:
    """Of a run's pods, the newest of the stage that money is held for, if a node took it after that was reserved."""
    began = {pod.lifetime.started_at: pod for pod in pods if pod.stage == held.stage and pod.lifetime.started_at}
    newest = max(began, default=None)
    return began[newest] if newest and newest >= held.reserved_at else None


def settle_dead_pod(world: World, run: Run, hold: str, pod: StagePod) -> list[str]:
    """Of a pod that ended before its first heartbeat; says what it did."""
    key = decision_key(run.run_id, hold)
    if pod.lifetime.alive or not any(world.store.list(key)):
        return []
    why = "its pod ended without a word" + (f": {pod.lifetime.reason}" if pod.lifetime.reason else "")
    return settle_silent_pod(world, run, read_record(world.store, key, Decision), pod, why)


def identify_dead_pods(world: World, run: Run, state: AccountState, pods: Sequence[StagePod]) -> None:
    """Name dead pods in receipts that could not: a router, which sees no pods, settled them as if they had never begun.

    The exit step brings the books to a pod's own times once it knows which one it was.
    """
    dead = [pod for pod in pods if not pod.lifetime.alive]
    stages = {pod.stage for pod in dead}
    keys = [receipt_key(run.run_id, hold) for hold in state.settled_usd if hold.rpartition("-")[0] in stages]
    receipts = {key: read_record(world.store, key, Receipt) for key in keys if any(world.store.list(key))}
    named = {receipt.pod for receipt in receipts.values()}
    for key, receipt in receipts.items():
        if receipt.pod:
            continue
        asked_at = read_record(world.store, receipt.decision_key, Decision).question.asked_at
        mine = [
            pod
            for pod in dead
            if pod.stage == receipt.stage and pod.lifetime.started_at and pod.ref not in named
        ]
        if found := [
            pod.ref
            for pod in mine
            if asked_at <= (pod.lifetime.started_at or asked_at) <= receipt.finished_at
        ]:
            world.store.put(key, record_bytes(receipt.model_copy(update={"pod": found[0]})))
            named.add(found[0])


def settle_silent_pod(world: World, run: Run, decision: Decision, pod: StagePod, why: str) -> list[str]:
    """Settle what was reserved for a pod at the time for which a node had it, and name the pod in its receipt; says what it did.

    The heartbeat that the pod owes is written for it, and first: whoever goes on from here then finds what it goes by.
    """
    ledger, account = Ledger(world.store, world.clock, str(world.pod)), run.start.account
    question, now = decision.question, world.clock.now()
    held = ledger.state(account).reservations.get(str(question.attempt_id))
    if held is None or decision.choice is None:
        return []
    began, ended = pod.lifetime.started_at or now, pod.lifetime.finished_at or now
    spent_usd = min(cost_usd(decision.choice.usd_per_hour, (ended - began).total_seconds()), held.amount_usd)
    beat = Heartbeat(
        run_id=run.run_id,
        stage=question.stage,
        attempt=question.attempt,
        pod=pod.ref,
        state="lost",
        usd_per_hour=decision.choice.usd_per_hour,
        started_at=began,
        at=ended,
        interval_s=1.0,
        spent_usd=spent_usd,
    )
    world.store.put(heartbeat_key(run.run_id, str(question.attempt_id)), record_bytes(beat))
    try:
        ledger.settle(account, str(question.attempt_id), spent_usd, why)
    except LedgerConflict:
        # Its frame began after all, and settled.
        return []
    write_lost_receipts(world, run, run.start, {str(question.attempt_id): why})
    return [f"{account}: {question.attempt_id} settled at ${spent_usd} of ${held.amount_usd}: {why}"]
