"""A stage that an engine tries again in the same start: what its earlier attempts left is settled, and what they taught is asked for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

from shoestring.config.world import World
from shoestring.core.errors import Refused
from shoestring.core.receipt import Receipt
from shoestring.core.record import record_bytes
from shoestring.data.run_records import Run, read_record
from shoestring.routing.decision import Decision
from shoestring.runtime.records.receipts import OUT_OF_MEMORY, decision_key, receipt_key, write_lost_receipts
from shoestring.runtime.route_step.external_components import settle_external
from shoestring.spending.heartbeat import UNSUPERVISED, last_heartbeat
from shoestring.spending.ledger.account import AccountState, Reservation
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.lost_pods import settle_lost_pods

# A frame that was told to stop takes its grace and then settles for itself; whoever comes after it waits that long.
EXIT_WAIT_S = 8.0
# A router whose answer was lost is run again within this time; a stage's pod that has not begun by then never will.
ROUTER_RETRY_S = 60.0
FINAL_CAUSES = ("money", "code", "guardrail", "")


@dataclass(frozen=True, slots=True)
class RetryContext:
    """What earlier attempts of this start taught: sentences, and the memory that the next one has to have."""

    notes: tuple[str, ...] = ()
    memory_gb: float = 0.0


def number_of(hold: str) -> int:
    return int(hold.rpartition("-")[2])


def decision_of_hold(world: World, run: Run, hold: str, held: Reservation) -> tuple[Decision, str]:
    """The decision that this money was reserved by, and its key: its router may have died before it was written down there."""
    key = decision_key(run.run_id, hold)
    decision = read_record(world.store, held.decision_key, Decision)
    world.store.put(key, record_bytes(decision), if_absent=True)
    return decision, key


def undelivered_decision(world: World, run: Run, ledger: Ledger, stage: str) -> tuple[Decision, str] | None:
    """A decision of a moment ago whose pod has not begun: its router was run again, and gives the same answer."""
    newest = timedelta(seconds=ROUTER_RETRY_S)
    for hold, held in open_holds(ledger.state(run.start.account), stage).items():
        beat, young = last_heartbeat(world.store, run.run_id, hold), world.clock.now() - held.reserved_at < newest
        if held.decision_key and young and (beat is None or beat.state == UNSUPERVISED):
            return decision_of_hold(world, run, hold, held)
    return None


def open_holds(state: AccountState, stage: str) -> dict[str, Reservation]:
    return {hold: held for hold, held in state.reservations.items() if held.stage == stage}


def settle_earlier_attempts(world: World, run: Run, ledger: Ledger, stage: str) -> RetryContext:
    """Settle what dead pods of this stage still hold, and learn from what became of all of its attempts in this start.

    Raises:
        Refused: an attempt still runs, or the last one ended in a way that another would end in, too.
    """
    account = run.start.account
    if held := open_holds(ledger.state(account), stage):
        if not wait_for_exit(world, run, ledger, held):
            raise Refused(
                f"{stage} is not routed again while its pod of before still runs: {', '.join(held)}; end that first"
            )
        settle_external(world, run, run.start)
        others = ledger.state(account).reservations.keys() - held.keys()
        settle_lost_pods(ledger, world.store, world.cluster, account, run.run_id, exclude=others)
        write_lost_receipts(world, run, run.start)
    return retry_context(world, run, settled_receipts(world, run, ledger, stage))


def settled_receipts(world: World, run: Run, ledger: Ledger, stage: str) -> list[Receipt]:
    """Receipts of this start's attempts at a stage, in order. One that was never written down has none."""
    settled = sorted(
        (hold for hold in ledger.state(run.start.account).settled_usd if hold.rpartition("-")[0] == stage),
        key=number_of,
    )
    keys = [receipt_key(run.run_id, hold) for hold in settled]
    return [read_record(world.store, key, Receipt) for key in keys if any(world.store.list(key))]


def retry_context(world: World, run: Run, receipts: list[Receipt]) -> RetryContext:
    notes, memory_gb = [], 0.0
    for receipt in receipts:
        if receipt.status == "done":
            continue
        starved = ran_out_of_memory(world, receipt)
        if receipt is receipts[-1] and receipt.cause in FINAL_CAUSES and not starved:
            ended = f"attempt {receipt.attempt} {receipt.status}: {receipt.reason}"
            raise Refused(f"{receipt.stage} is not tried again, since it would end in the same way: {ended}")
        notes.append(f"attempt {receipt.attempt} {receipt.status}: {receipt.reason}")
        if starved:
            had_gb = pod_memory_gb(world, run, receipt)
            memory_gb = max(memory_gb, had_gb * world.policy.memory_growth)
            notes.append(
                f"it ran out of the {had_gb:g} GB that it had on {receipt.pool}: now {memory_gb:g} GB are asked for, at least"
            )
    return RetryContext(tuple(notes), memory_gb)


def ran_out_of_memory(world: World, receipt: Receipt) -> bool:
    return receipt.cause == "memory" or bool(
        receipt.pod and world.cluster.lifetime(receipt.pod).reason == OUT_OF_MEMORY
    )


def pod_memory_gb(world: World, run: Run, receipt: Receipt) -> float:
    """GB that an attempt's pod was given."""
    question = read_record(world.store, receipt.decision_key, Decision).question
    return next(pool.memory_gb for pool in question.pools if pool.name == receipt.pool)


def wait_for_exit(world: World, run: Run, ledger: Ledger, holds: Collection[str]) -> bool:
    """Until the pods behind these holds have settled or died, for as long as a frame takes to leave; whether they have."""

    def still_leaving() -> bool:
        still = ledger.state(run.start.account).reservations.keys() & set(holds)
        beats = [last_heartbeat(world.store, run.run_id, hold) for hold in still]
        return any(world.cluster.lifetime(beat.pod).alive for beat in beats if beat)

    deadline_s = world.clock.monotonic_s() + EXIT_WAIT_S
    while leaving := still_leaving():
        if world.clock.monotonic_s() >= deadline_s:
            break
        world.clock.sleep(0.2)
    return not leaving
