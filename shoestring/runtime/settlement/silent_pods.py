"""Attempts without a heartbeat: their pods could not start, or died too soon. The reaper, which sees pods,
settles them.
"""

from __future__ import annotations

from collections.abc import Sequence

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.attempt_id import AttemptId
from shoestring.core.interfaces import StagePod
from shoestring.core.receipt import Receipt
from shoestring.core.record import record_bytes
from shoestring.data.run_records import Run, read_record
from shoestring.routing.decision import Decision
from shoestring.runtime.records.receipts import write_lost_receipts
from shoestring.runtime.records.world_ledger import world_ledger
from shoestring.spending.heartbeat import LOST, attempt_heartbeat, put_heartbeat
from shoestring.spending.ledger.account import AccountState, Reservation
from shoestring.spending.lost_pods import settle_ended
from shoestring.spending.meter import cost_usd


def pod_of_reservation(reservation: Reservation, pods: Sequence[StagePod]) -> StagePod | None:
    """Return the newest pod of the reservation's stage that a node accepted after the reservation; None:
    there is none.
    """
    by_start = {
        started_at: pod
        for pod in pods
        if pod.stage == reservation.stage
        and (started_at := pod.lifetime.started_at)
        and pod.lifetime.began_since(reservation.reserved_at)
    }
    return by_start[max(by_start)] if by_start else None


def settle_dead_pod(world: World, run: Run, name: str, pod: StagePod) -> list[str]:
    """Settle a pod that ended before its first heartbeat; return what was done."""
    key = store_layout.decision(run.run_id, name)
    if pod.lifetime.alive or not any(world.store.list(key)):
        return []
    reason = "its pod ended before its first heartbeat" + (
        f": {pod.lifetime.reason}" if pod.lifetime.reason else ""
    )
    return settle_silent_pod(world, run, read_record(world.store, key, Decision), pod, reason)


def identify_dead_pods(world: World, run: Run, state: AccountState, pods: Sequence[StagePod]) -> None:
    """Write the names of dead pods into receipts that lack them.

    A router cannot see pods, so it settles such an attempt as if its pod had never begun. With the name, the
    exit step adjusts the ledger to the pod's own times. The entry that closes the account holds the digests
    of the receipts, so they stay as they are from then on.
    """
    if state.closed:
        return
    dead = [pod for pod in pods if not pod.lifetime.alive]
    stages = {pod.stage for pod in dead}
    attempts = [AttemptId.parse(run.run_id, name) for name in state.settled_usd]
    keys = [store_layout.receipt(run.run_id, attempt) for attempt in attempts if attempt.stage in stages]
    receipts = {key: read_record(world.store, key, Receipt) for key in keys if any(world.store.list(key))}
    identified = {receipt.pod for receipt in receipts.values()}
    for key, receipt in receipts.items():
        if receipt.pod:
            continue
        asked_at = read_record(world.store, receipt.decision_key, Decision).question.asked_at
        found = [
            pod.ref
            for pod in dead
            if pod.stage == receipt.stage
            and pod.ref not in identified
            and pod.lifetime.started_at
            and pod.lifetime.began_since(asked_at)
            and pod.lifetime.started_at <= receipt.finished_at
        ]
        if found:
            world.store.put(key, record_bytes(receipt.model_copy(update={"pod": found[0]})))
            identified.add(found[0])


def settle_silent_pod(world: World, run: Run, decision: Decision, pod: StagePod, reason: str) -> list[str]:
    """Settle a pod's reservation by the time that a node had it, and write its receipt; return what was done.

    The heartbeat that the pod did not write is written first, so that an interrupted settlement can be
    continued.
    """
    ledger, account, now = world_ledger(world), run.start.account, world.clock.now()
    name = str(decision.question.attempt_id)
    reservation = ledger.state(account).reservations.get(name)
    if reservation is None or decision.choice is None:
        return []
    began, ended = pod.lifetime.started_at or now, pod.lifetime.finished_at or now
    spent_usd = cost_usd(decision.choice.usd_per_hour, (ended - began).total_seconds())
    heartbeat = attempt_heartbeat(decision, pod.ref, LOST, began, ended, spent_usd=spent_usd)
    put_heartbeat(world.store, heartbeat)
    if not settle_ended(ledger, account, heartbeat, reason):
        # Its supervisor began after all, and settled.
        return []
    write_lost_receipts(world, run, run.start, {name: reason})
    return [f"{account}: {name} settled at ${spent_usd} of ${reservation.amount_usd}: {reason}"]
