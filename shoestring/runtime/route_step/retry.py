"""A stage that an engine tries again in the same start: its earlier attempts are settled, and the next one
learns from them.

A router does this, which places the next attempt anywhere, and so does the second pod of a decision, which
stays where its engine created it (`second_pod.py`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.attempt_id import AttemptId
from shoestring.core.errors import Refused
from shoestring.core.receipt import Receipt
from shoestring.core.record import record_bytes
from shoestring.core.types import StageOutcome
from shoestring.data.run_records import Run, read_record
from shoestring.routing.decision import Decision
from shoestring.runtime.records.lifetimes import launcher_is_alive, lifetime_of
from shoestring.runtime.records.receipts import write_lost_receipts
from shoestring.runtime.route_step.external_components import settle_external
from shoestring.spending.ends import FINAL_CAUSES, OUT_OF_MONEY
from shoestring.spending.heartbeat import (
    RUNNING_STATES,
    UNSUPERVISED,
    Heartbeat,
    is_out_of_memory,
    last_heartbeat,
)
from shoestring.spending.ledger.account import AccountState, Reservation
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.lost_pods import settle_lost_pods

# A supervisor that receives TERM waits for its child's grace period and then settles; the next attempt waits
# this long for it.
EXIT_WAIT_S = 8.0
# An engine runs a router again within this time if its answer was lost. A stage's pod that has not begun by
# then never will.
ROUTER_RETRY_S = 60.0
# A pod that its cluster lost sight of may still run. It counts as ended once it has written no heartbeat for
# an interval and this long, which is a supervisor's own grace from TERM to KILL.
SILENT_EXIT_S = 5.0
# Such a pod is waited for this long beyond that: twice the grace period that Kubernetes gives a pod.
LOST_POD_WAIT_S = 60.0
# A supervisor that hangs once may not hang again. One that hangs twice would cost the whole budget.
MAX_SILENT_RETRIES = 1


@dataclass(frozen=True, slots=True)
class RetryContext:
    """The lessons of this start's earlier attempts: notes, and the minimum memory of the next attempt.

    `done` is the result of the last attempt, where that succeeded.
    """

    notes: tuple[str, ...] = ()
    min_memory_gb: float = 0.0
    done: StageOutcome | None = None


def write_reserved_decision(world: World, run: Run, name: str, decision: Decision) -> tuple[Decision, str]:
    """Return the decision that a reservation was made for, and its key, under which it is written if its
    router died before it did so.
    """
    key = store_layout.decision(run.run_id, name)
    world.store.put(key, record_bytes(decision), if_absent=True)
    return decision, key


def undelivered_decision(world: World, run: Run, ledger: Ledger, stage: str) -> tuple[Decision, str] | None:
    """Return a recent decision whose pod has not begun: a router that is run again gives the same answer."""
    now, max_age = world.clock.now(), timedelta(seconds=ROUTER_RETRY_S)
    for name, reservation in open_reservations(ledger.state(run.start.account), stage).items():
        heartbeat = last_heartbeat(world.store, run.run_id, name)
        has_not_begun = heartbeat is None or heartbeat.state == UNSUPERVISED
        if reservation.decision_key and now - reservation.reserved_at < max_age and has_not_begun:
            decision = read_record(world.store, reservation.decision_key, Decision)
            return write_reserved_decision(world, run, name, decision)
    return None


def open_reservations(state: AccountState, stage: str) -> dict[str, Reservation]:
    """Return a stage's open reservations by name."""
    return {name: each for name, each in state.reservations.items() if each.stage == stage}


def unfinished_attempts(world: World, run: Run, state: AccountState, stage: str) -> set[str]:
    """Return a stage's attempts in this start that hold a reservation, or have written no receipt yet."""
    written = set(world.store.list(store_layout.receipts(run.run_id, stage)))
    without = {name for name in state.settled_usd if store_layout.receipt(run.run_id, name) not in written}
    own = {name for name in without if AttemptId.parse(run.run_id, name).stage == stage}
    return own | open_reservations(state, stage).keys()


def settle_earlier_attempts(
    world: World, run: Run, ledger: Ledger, stage: str, *, can_move: bool = True
) -> RetryContext:
    """Settle what dead pods of this stage still hold, and return the lessons of its attempts in this start.

    Waits for pods that are about to end. `can_move` is false for a pod that exists: it has no other memory
    than the one before it, and it waits longer, because its engine may not create a third.

    Raises:
        Refused: an attempt still runs, or the next one would end as the last one did.
    """
    account = run.start.account
    state = ledger.state(account)
    if names := unfinished_attempts(world, run, state, stage):
        wait_s = EXIT_WAIT_S if can_move else LOST_POD_WAIT_S
        has_ended = wait_for_exit(world, run, ledger, names, wait_s)
        if not has_ended or not wait_for_silence(world, run, names):
            raise Refused(
                f"{stage} is not tried again while an earlier pod still runs: {', '.join(sorted(names))}; "
                "end that pod first"
            )
        settle_external(world, run, run.start, names)
        others = ledger.state(account).reservations.keys() - names
        settle_lost_pods(
            ledger, world.store, partial(lifetime_of, world), account, run.run_id, exclude=others
        )
        write_lost_receipts(world, run, run.start)
        state = ledger.state(account)
    return retry_context(world, settled_receipts(world, run, state, stage), can_move=can_move)


def settled_receipts(world: World, run: Run, state: AccountState, stage: str) -> list[Receipt]:
    """Return the receipts of this start's settled attempts at a stage, in order. An attempt may lack a
    receipt.
    """
    attempts = sorted(AttemptId.parse(run.run_id, name) for name in state.settled_usd)
    keys = [store_layout.receipt(run.run_id, attempt) for attempt in attempts if attempt.stage == stage]
    return [read_record(world.store, key, Receipt) for key in keys if any(world.store.list(key))]


def retry_context(world: World, receipts: list[Receipt], *, can_move: bool = True) -> RetryContext:
    """Return the lessons of these receipts, the newest last, for the next attempt. `can_move` false: that has
    no more memory than they had.

    Raises:
        Refused: the next attempt would end as the last one did.
    """
    notes, min_memory_gb = [], 0.0
    for receipt in receipts:
        if receipt.status == "done":
            continue
        out_of_memory = ran_out_of_memory(world, receipt)
        ended = f"attempt {receipt.attempt} {receipt.status}: {receipt.reason}"
        is_last_word = (not can_move) if out_of_memory else is_final(world, receipts)
        if receipt is receipts[-1] and is_last_word:
            raise Refused(f"{receipt.stage} is not tried again, since it would end in the same way: {ended}")
        notes.append(ended)
        if out_of_memory:
            had_gb = pod_memory_gb(world, receipt)
            min_memory_gb = max(min_memory_gb, had_gb * world.policy.memory_growth)
            notes.append(
                f"it ran out of the {had_gb:g} GB of memory that it had on {receipt.pool}: "
                f"the next attempt gets at least {min_memory_gb:g} GB"
            )
    done = receipts[-1].outcome if receipts and receipts[-1].status == "done" else None
    return RetryContext(tuple(notes), min_memory_gb, done)


def is_final(world: World, receipts: list[Receipt]) -> bool:
    """Return whether another attempt would end as the last one did."""
    last = receipts[-1]
    if last.cause == "silent":
        return sum(receipt.cause == "silent" for receipt in receipts) > MAX_SILENT_RETRIES
    # A supervisor that was told to stop writes that, and not why its pod was ended.
    was_asked = last.cause == "stop-requested" and last.pod is not None
    pod_reason = world.cluster.lifetime(last.pod).reason if was_asked and last.pod else ""
    return last.cause in FINAL_CAUSES or pod_reason.startswith(OUT_OF_MONEY)


def ran_out_of_memory(world: World, receipt: Receipt) -> bool:
    """Return whether an attempt ran out of memory, according to its receipt or the cluster."""
    if receipt.cause == "memory" or receipt.pod is None:
        return receipt.cause == "memory"
    attempt = AttemptId(receipt.run_id, receipt.stage, receipt.attempt)
    heartbeat = last_heartbeat(world.store, receipt.run_id, attempt)
    return is_out_of_memory(world.cluster.lifetime(receipt.pod).reason, heartbeat)


def pod_memory_gb(world: World, receipt: Receipt) -> float:
    """Return the memory of the attempt's pod."""
    decision = read_record(world.store, receipt.decision_key, Decision)
    return decision.question.pool(receipt.pool).memory_gb


def wait_for_exit(
    world: World, run: Run, ledger: Ledger, names: Collection[str], wait_s: float = EXIT_WAIT_S
) -> bool:
    """Wait until the pods of these reservations have settled and written their receipts, or died, at most
    `wait_s`; return whether they have.
    """
    deadline_s = world.clock.monotonic_s() + wait_s
    while running := still_exiting(world, run, ledger.state(run.start.account), names):
        if world.clock.monotonic_s() >= deadline_s:
            break
        world.clock.sleep(0.2)
    return not running


def wait_for_silence(world: World, run: Run, names: Collection[str]) -> bool:
    """Wait until those of these attempts that may still run, although their pods count as dead, have written
    their receipts, or no heartbeat for an interval and SILENT_EXIT_S; return whether they have.

    A pod that is deleted by force is gone from its cluster before its containers end. Heartbeats are watched,
    not compared with this machine's clock, which may differ from that of the pod's node.
    """
    began_s = world.clock.monotonic_s()
    seen: dict[str, tuple[datetime, float]] = {}
    while True:
        now_s = world.clock.monotonic_s()
        limits_s = []
        for name, heartbeat in unseen_ends(world, run, names):
            if name not in seen or seen[name][0] != heartbeat.at:
                seen[name] = heartbeat.at, now_s
            if now_s - seen[name][1] < heartbeat.interval_s + SILENT_EXIT_S:
                limits_s.append(heartbeat.interval_s + SILENT_EXIT_S + LOST_POD_WAIT_S)
        if not limits_s or now_s - began_s >= max(limits_s):
            return not limits_s
        world.clock.sleep(0.5)


def unseen_ends(world: World, run: Run, names: Collection[str]) -> list[tuple[str, Heartbeat]]:
    """Return the last heartbeats of those of these attempts that have no receipt, and whose containers no
    cluster has seen ending."""
    written = set(world.store.list(store_layout.receipts(run.run_id)))
    left = (name for name in names if store_layout.receipt(run.run_id, name) not in written)
    found = [(name, last_heartbeat(world.store, run.run_id, name)) for name in left]
    return [
        (name, each)
        for name, each in found
        if each and each.state in RUNNING_STATES and world.cluster.lifetime(each.pod).finished_at is None
    ]


def still_exiting(world: World, run: Run, state: AccountState, names: Collection[str]) -> bool:
    """Return whether a pod that is exiting has one of these reservations, or a live one has settled it and
    not written its receipt.
    """
    held = (last_heartbeat(world.store, run.run_id, name) for name in names if name in state.reservations)
    return any(is_exiting(world, run, each) for each in held if each) or receipt_is_due(world, run, state)


def receipt_is_due(world: World, run: Run, state: AccountState) -> bool:
    """Return whether a live pod has settled its reservation and not written its receipt yet."""
    written = set(world.store.list(store_layout.receipts(run.run_id)))
    names = (name for name in state.settled_usd if store_layout.receipt(run.run_id, name) not in written)
    heartbeats = (last_heartbeat(world.store, run.run_id, name) for name in names)
    return any(lifetime_of(world, each).alive for each in heartbeats if each)


def is_exiting(world: World, run: Run, heartbeat: Heartbeat) -> bool:
    """Return whether a pod is alive, or its run's launcher is about to end what its dead supervisor left, or
    the cluster does not report the end of an external component's containers yet.
    """
    launcher, life = run.start.launcher, lifetime_of(world, heartbeat)
    is_alive = life.alive
    if heartbeat.state == UNSUPERVISED:
        return is_alive or (life.started_at is not None and life.finished_at is None)
    if is_alive or heartbeat.state not in RUNNING_STATES or launcher in (None, world.pod):
        return is_alive
    return launcher_is_alive(world, run)
