"""A stage that an engine tries again in the same start: its earlier attempts are settled, and the next one
learns from them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.attempt_id import AttemptId
from shoestring.core.errors import Refused
from shoestring.core.receipt import Receipt
from shoestring.core.record import record_bytes
from shoestring.data.run_records import Run, read_record
from shoestring.routing.decision import Decision
from shoestring.runtime.records.receipts import OUT_OF_MONEY, write_lost_receipts
from shoestring.runtime.route_step.external_components import settle_external
from shoestring.spending.heartbeat import UNSUPERVISED, is_out_of_memory, last_heartbeat
from shoestring.spending.ledger.account import AccountState, Reservation
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.lost_pods import settle_lost_pods

# A supervisor that receives TERM waits for its child's grace period and then settles; the next attempt waits
# this long for it.
EXIT_WAIT_S = 8.0
# An engine runs a router again within this time if its answer was lost. A stage's pod that has not begun by
# then never will.
ROUTER_RETRY_S = 60.0
# Another attempt would end in the same way.
FINAL_CAUSES = ("money", "code", "guardrail", "")
# A supervisor that hangs once may not hang again. One that hangs twice would cost the whole budget.
MAX_SILENT_RETRIES = 1


@dataclass(frozen=True, slots=True)
class RetryContext:
    """The lessons of this start's earlier attempts: notes, and the minimum memory of the next attempt."""

    notes: tuple[str, ...] = ()
    min_memory_gb: float = 0.0


def write_reserved_decision(
    world: World, run: Run, name: str, reservation: Reservation
) -> tuple[Decision, str]:
    """Return the decision that a reservation was made for, and its key.

    The decision is written under that key if its router died before it did so.
    """
    key = store_layout.decision(run.run_id, name)
    decision = read_record(world.store, reservation.decision_key, Decision)
    world.store.put(key, record_bytes(decision), if_absent=True)
    return decision, key


def undelivered_decision(world: World, run: Run, ledger: Ledger, stage: str) -> tuple[Decision, str] | None:
    """Return a recent decision whose pod has not begun: a router that is run again gives the same answer."""
    now, max_age = world.clock.now(), timedelta(seconds=ROUTER_RETRY_S)
    for name, reservation in open_reservations(ledger.state(run.start.account), stage).items():
        heartbeat = last_heartbeat(world.store, run.run_id, name)
        has_not_begun = heartbeat is None or heartbeat.state == UNSUPERVISED
        if reservation.decision_key and now - reservation.reserved_at < max_age and has_not_begun:
            return write_reserved_decision(world, run, name, reservation)
    return None


def open_reservations(state: AccountState, stage: str) -> dict[str, Reservation]:
    """Return a stage's open reservations by name."""
    return {name: each for name, each in state.reservations.items() if each.stage == stage}


def settle_earlier_attempts(world: World, run: Run, ledger: Ledger, stage: str) -> RetryContext:
    """Settle what dead pods of this stage still hold, and return the lessons of its attempts in this start.

    Raises:
        Refused: an attempt still runs, or the next one would end as the last one did.
    """
    account = run.start.account
    if reserved := open_reservations(ledger.state(account), stage):
        if not wait_for_exit(world, run, ledger, reserved):
            raise Refused(
                f"{stage} is not routed again while an earlier pod still runs: {', '.join(reserved)}; "
                "end that pod first"
            )
        settle_external(world, run, run.start)
        others = ledger.state(account).reservations.keys() - reserved.keys()
        settle_lost_pods(ledger, world.store, world.cluster, account, run.run_id, exclude=others)
        write_lost_receipts(world, run, run.start)
    return retry_context(world, settled_receipts(world, run, ledger, stage))


def settled_receipts(world: World, run: Run, ledger: Ledger, stage: str) -> list[Receipt]:
    """Return the receipts of this start's settled attempts at a stage, in order. An attempt may lack a
    receipt.
    """
    names = ledger.state(run.start.account).settled_usd
    attempts = sorted(AttemptId.parse(run.run_id, name) for name in names)
    keys = [store_layout.receipt(run.run_id, attempt) for attempt in attempts if attempt.stage == stage]
    return [read_record(world.store, key, Receipt) for key in keys if any(world.store.list(key))]


def retry_context(world: World, receipts: list[Receipt]) -> RetryContext:
    """Return the lessons of these receipts, the newest last, for the next attempt.

    Raises:
        Refused: the next attempt would end as the last one did.
    """
    notes, min_memory_gb = [], 0.0
    for receipt in receipts:
        if receipt.status == "done":
            continue
        out_of_memory = ran_out_of_memory(world, receipt)
        ended = f"attempt {receipt.attempt} {receipt.status}: {receipt.reason}"
        if receipt is receipts[-1] and not out_of_memory and is_final(world, receipts):
            raise Refused(f"{receipt.stage} is not tried again, since it would end in the same way: {ended}")
        notes.append(ended)
        if out_of_memory:
            had_gb = pod_memory_gb(world, receipt)
            min_memory_gb = max(min_memory_gb, had_gb * world.policy.memory_growth)
            notes.append(
                f"it ran out of the {had_gb:g} GB of memory that it had on {receipt.pool}: "
                f"the next attempt gets at least {min_memory_gb:g} GB"
            )
    return RetryContext(tuple(notes), min_memory_gb)


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


def wait_for_exit(world: World, run: Run, ledger: Ledger, names: Collection[str]) -> bool:
    """Wait until the pods of these reservations have settled or died, at most EXIT_WAIT_S; return whether
    they have.
    """

    def still_running() -> bool:
        open_names = ledger.state(run.start.account).reservations.keys() & set(names)
        heartbeats = [last_heartbeat(world.store, run.run_id, name) for name in open_names]
        return any(world.cluster.lifetime(each.pod).alive for each in heartbeats if each)

    deadline_s = world.clock.monotonic_s() + EXIT_WAIT_S
    while running := still_running():
        if world.clock.monotonic_s() >= deadline_s:
            break
        world.clock.sleep(0.2)
    return not running
