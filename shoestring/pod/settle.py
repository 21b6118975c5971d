"""The exit step, and the next run's look around: no money is left behind."""

from __future__ import annotations

import shutil
from decimal import Decimal
from pathlib import Path

from shoestring.data.runs import Run, Start, open_run, read
from shoestring.errors import ShoestringError, UnknownName
from shoestring.model import record
from shoestring.money import usd
from shoestring.pod.admission import overhead_hold
from shoestring.pod.asking import overhead_pod_s
from shoestring.pod.receipts import receipt_for
from shoestring.pod.route import OverheadTime, overhead
from shoestring.reporting.publish import publish
from shoestring.routing.decision import Decision
from shoestring.seams import Store, World
from shoestring.spending.heartbeat import last_heartbeat
from shoestring.spending.ledger import MONTH, Ledger, accounts
from shoestring.spending.sweep import sweep

# A frame that was told to stop takes its grace and then settles for itself; the exit step waits that long for it.
PATIENCE_S = 8.0
# A run that lasts over the turn of a month is in the account of the month before.
MONTHS_BACK = 2


def overhead_spent_usd(world: World, run: Run, start: Start) -> Decimal:
    """What deciding and settling took. A pod that never said when it ended is charged its whole allowance."""
    total_usd = Decimal(0)
    for key in world.store.list(f"runs/{run.run_id}/overhead/{start.number}/"):
        pod = read(world.store, key, OverheadTime)
        seconds = (pod.finished_at - pod.started_at).total_seconds() if pod.finished_at else overhead_pod_s(world)
        total_usd += pod.usd_per_hour * Decimal(str(seconds)) / 3600
    return usd(total_usd)


def settle_start(world: World, run: Run, start: Start) -> list[str]:
    """Settle every open hold of one start of a run and close its account; says what it did. A pod that still lives is left alone."""
    ledger = Ledger(world.store, world.clock, world.pod_uid)
    try:
        said = sweep(ledger, world.store, world.cluster, start.account, run.run_id, except_holds={overhead_hold(start)})
    except UnknownName:
        # Whoever admitted it died before its account was opened: nothing was reserved in it.
        return []
    state = ledger.state(start.account)
    if held := state.holds.get(overhead_hold(start)):
        if len(state.holds) > 1:
            return said
        ledger.settle(start.account, overhead_hold(start), min(overhead_spent_usd(world, run, start), held.amount_usd))
    if not state.closed:
        ledger.close(start.account)
    write_lost_receipts(world, run, start)
    return said


def write_lost_receipts(world: World, run: Run, start: Start) -> None:
    """An attempt that was settled without its frame gets a receipt all the same, from its last heartbeat.

    Without a decision there was no attempt: its router died between the reservation and writing it down.
    """
    state = Ledger(world.store, world.clock, world.pod_uid).state(start.account)
    for hold, spent_usd in state.settled_usd.items():
        key, receipt_key = (f"runs/{run.run_id}/{kind}/{hold}.json" for kind in ("decisions", "receipts"))
        if any(world.store.list(receipt_key)) or not any(world.store.list(key)):
            continue
        beat = last_heartbeat(world.store, run.run_id, hold)
        began = beat.started_at if beat else world.clock.now()
        ended = beat.at if beat else began
        lost = receipt_for(
            read(world.store, key, Decision),
            decision_key=key,
            pod_uid=beat.pod_uid if beat else "",
            status="lost",
            why="its pod was gone without a word" if beat else "its pod never began",
            spent_usd=spent_usd,
            started_at=began,
            finished_at=ended,
            ledger_head=state.head_hash,
        )
        world.store.put(receipt_key, record(lost))


def settle_abandoned(world: World) -> list[str]:
    """What a new run settles of runs whose launcher is gone: they had no exit step. Mends what crashed between two accounts."""
    ledger = Ledger(world.store, world.clock, world.pod_uid)
    said: list[str] = []
    for month in list(filter(MONTH.fullmatch, accounts(world.store)))[-MONTHS_BACK:]:
        for account in ledger.state(month).holds:
            run, start = started(world.store, account)
            if run and start and start.supervisor and not world.cluster.life(start.supervisor).alive:
                try:
                    said += settle_start(world, run, start)
                except ShoestringError as error:
                    # Somebody else's run: what is wrong with it must not stop this one.
                    said.append(f"{account} could not be settled: {error}")
        said += ledger.sweep_parent(month)
    return said


def started(store: Store, account: str) -> tuple[Run, Start] | tuple[None, None]:
    """The start of a run whose account this is."""
    for run_id in (account, account.rpartition(".")[0]):
        if run_id and any(store.list(f"runs/{run_id}/starts/")):
            run = open_run(store, run_id)
            return next(((run, start) for start in run.starts if start.account == account), (None, None))
    return None, None


def settle_run(world: World, run_id: str) -> list[str]:
    """The end of a run: wait for frames that are still leaving, settle what dead pods left, release the rest, close the account."""
    run = open_run(world.store, run_id)
    if not run.starts:
        return []
    deadline_s = world.clock.monotonic_s() + PATIENCE_S
    while still_leaving(world, run) and world.clock.monotonic_s() < deadline_s:
        world.clock.sleep(0.2)
    return settle_start(world, run, run.start)


def still_leaving(world: World, run: Run) -> bool:
    """Does a pod of this start live that has not settled yet?"""
    try:
        holds = Ledger(world.store, world.clock, world.pod_uid).state(run.start.account).holds
    except UnknownName:
        return False
    beats = [last_heartbeat(world.store, run.run_id, hold) for hold in holds if hold != overhead_hold(run.start)]
    return any(world.cluster.life(beat.pod_uid).alive for beat in beats if beat)


def exit_step(world: World, run_id: str) -> list[str]:
    """`settle_run` in a pod of its own, which goes on the overhead line up to here; what is left to do takes milliseconds."""
    run = open_run(world.store, run_id)
    if run.starts:
        with overhead(world, run, "settle"):
            pass
    return settle_run(world, run_id)


def finish(world: World, run_id: str, page_path: str, summary_path: str) -> None:
    """The exit step, and what people read of the run: in the store, and in files where paths are given."""
    for sentence in exit_step(world, run_id):
        print(sentence, flush=True)
    page = publish(world.store, run_id)
    if page_path:
        Path(page_path).write_text(page, encoding="utf-8")
    if summary_path:
        shutil.copyfile(world.store.fetch(f"runs/{run_id}/summary.json"), summary_path)
