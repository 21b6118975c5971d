"""A stage that an engine tries again in the same start: what its earlier attempts left is settled, and what they taught is asked for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

from shoestring.config.world import World
from shoestring.core.errors import Refused
from shoestring.core.receipt import Receipt
from shoestring.core.types import record_bytes
from shoestring.data.run_records import Run, read
from shoestring.routing.decision import Decision
from shoestring.runtime.records.receipts import OUT_OF_MEMORY, decision_key, receipt_key, write_lost_receipts
from shoestring.runtime.route_step.external_components import settle_strangers
from shoestring.spending.heartbeat import LET_GO, last_heartbeat
from shoestring.spending.ledger.account import AccountState, Hold
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.lost_pods import sweep

# A frame that was told to stop takes its grace and then settles for itself; whoever comes after it waits that long.
PATIENCE_S = 8.0
# A router whose answer was lost is run again within this time; a stage's pod that has not begun by then never will.
SAME_ROUTER_S = 60.0
NO_USE_AGAIN = ("money", "code", "guardrail", "")


@dataclass(frozen=True, slots=True)
class Earlier:
    """What earlier attempts of this start taught: sentences, and the memory that the next one has to have."""

    notes: tuple[str, ...] = ()
    memory_gb: float = 0.0


def number_of(hold: str) -> int:
    return int(hold.rpartition("-")[2])


def adopt(world: World, run: Run, hold: str, held: Hold) -> tuple[Decision, str]:
    """The decision that this money was reserved by, and its key: its router may have died before it was written down there."""
    key = decision_key(run.run_id, hold)
    decision = read(world.store, held.why, Decision)
    world.store.put(key, record_bytes(decision), if_absent=True)
    return decision, key


def undelivered(world: World, run: Run, ledger: Ledger, stage: str) -> tuple[Decision, str] | None:
    """A decision of a moment ago whose pod has not begun: its router was run again, and gives the same answer."""
    newest = timedelta(seconds=SAME_ROUTER_S)
    for hold, held in open_holds(ledger.state(run.start.account), stage).items():
        beat, young = last_heartbeat(world.store, run.run_id, hold), world.clock.now() - held.since < newest
        if held.why and young and (beat is None or beat.state == LET_GO):
            return adopt(world, run, hold, held)
    return None


def open_holds(state: AccountState, stage: str) -> dict[str, Hold]:
    return {hold: held for hold, held in state.holds.items() if held.stage == stage}


def look_back(world: World, run: Run, ledger: Ledger, stage: str) -> Earlier:
    """Settle what dead pods of this stage still hold, and learn from what became of all of its attempts in this start.

    Raises:
        Refused: an attempt still runs, or the last one ended in a way that another would end in, too.
    """
    account = run.start.account
    if held := open_holds(ledger.state(account), stage):
        if not wait_until_left(world, run, ledger, held):
            raise Refused(
                f"{stage} is not routed again while its pod of before still runs: {', '.join(held)}; end that first"
            )
        settle_strangers(world, run, run.start)
        others = ledger.state(account).holds.keys() - held.keys()
        sweep(ledger, world.store, world.cluster, account, run.run_id, except_holds=others)
        write_lost_receipts(world, run, run.start)
    return learned_from(world, run, attempts(world, run, ledger, stage))


def attempts(world: World, run: Run, ledger: Ledger, stage: str) -> list[Receipt]:
    """Receipts of this start's attempts at a stage, in order. One that was never written down has none."""
    settled = sorted(
        (hold for hold in ledger.state(run.start.account).settled_usd if hold.rpartition("-")[0] == stage),
        key=number_of,
    )
    keys = [receipt_key(run.run_id, hold) for hold in settled]
    return [read(world.store, key, Receipt) for key in keys if any(world.store.list(key))]


def learned_from(world: World, run: Run, receipts: list[Receipt]) -> Earlier:
    notes, memory_gb = [], 0.0
    for receipt in receipts:
        if receipt.status == "done":
            continue
        starved = ran_out_of_memory(world, receipt)
        if receipt is receipts[-1] and receipt.cause in NO_USE_AGAIN and not starved:
            ended = f"attempt {receipt.attempt} {receipt.status}: {receipt.reason}"
            raise Refused(f"{receipt.stage} is not tried again, since it would end in the same way: {ended}")
        notes.append(f"attempt {receipt.attempt} {receipt.status}: {receipt.reason}")
        if starved:
            had_gb = memory_of(world, run, receipt)
            memory_gb = max(memory_gb, had_gb * world.policy.memory_growth)
            notes.append(
                f"it ran out of the {had_gb:g} GB that it had on {receipt.pool}: now {memory_gb:g} GB are asked for, at least"
            )
    return Earlier(tuple(notes), memory_gb)


def ran_out_of_memory(world: World, receipt: Receipt) -> bool:
    return receipt.cause == "memory" or bool(
        receipt.pod_uid and world.cluster.lifetime(receipt.pod_uid).reason == OUT_OF_MEMORY
    )


def memory_of(world: World, run: Run, receipt: Receipt) -> float:
    """GB that an attempt's pod was given."""
    question = read(world.store, receipt.decision_key, Decision).question
    return next(pool.memory_gb for pool in question.pools if pool.name == receipt.pool)


def wait_until_left(world: World, run: Run, ledger: Ledger, holds: Collection[str]) -> bool:
    """Until the pods behind these holds have settled or died, for as long as a frame takes to leave; whether they have."""

    def still_leaving() -> bool:
        still = ledger.state(run.start.account).holds.keys() & set(holds)
        beats = [last_heartbeat(world.store, run.run_id, hold) for hold in still]
        return any(world.cluster.lifetime(beat.pod_uid).alive for beat in beats if beat)

    deadline_s = world.clock.monotonic_s() + PATIENCE_S
    while leaving := still_leaving():
        if world.clock.monotonic_s() >= deadline_s:
            break
        world.clock.sleep(0.2)
    return not leaving
