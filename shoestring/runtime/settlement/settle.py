"""The exit step, and the next run's look around: no money is left behind."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from shoestring.config.world import World
from shoestring.core.errors import ShoestringError, UnknownName
from shoestring.core.interfaces import Store
from shoestring.data.run_records import Run, Start, open_run
from shoestring.reporting.publish import publish
from shoestring.runtime.admission.admit import opened
from shoestring.runtime.records.overhead import overhead, overhead_hold, overhead_spent_usd
from shoestring.runtime.records.receipts import write_lost_receipts
from shoestring.runtime.route_step.external_components import settle_strangers
from shoestring.runtime.route_step.retry import wait_until_left
from shoestring.runtime.settlement.adjust import adjust_to_pods
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.ledger.parent_accounts import campaign_account
from shoestring.spending.lost_pods import sweep


def settle_start(world: World, run: Run, start: Start) -> list[str]:
    """Settle every open hold of one start of a run and close its account; says what it did. A pod that still lives is left alone."""
    ledger = Ledger(world.store, world.clock, world.pod_uid)
    try:
        said = settle_strangers(world, run, start)
        said += sweep(
            ledger, world.store, world.cluster, start.account, run.run_id, except_holds={overhead_hold(start)}
        )
    except UnknownName:
        # Whoever admitted it died before its account was opened: nothing was reserved in it.
        return []
    state = ledger.state(start.account)
    write_lost_receipts(world, run, start)
    if held := state.holds.get(overhead_hold(start)):
        if len(state.holds) > 1:
            return said
        ledger.settle(
            start.account, overhead_hold(start), min(overhead_spent_usd(world, run, start), held.amount_usd)
        )
    if not state.closed:
        said += adjust_to_pods(world, run, start)
        ledger.close(start.account)
    return said


def for_open_starts(
    world: World, ledger: Ledger, month: str, settle: Callable[[Run, Start], list[str]]
) -> list[str]:
    """Do something about each start whose account in a month is still open; says what was done.

    They are somebody else's runs: what is wrong with one must not stop whoever looks at all of them.
    """
    said: list[str] = []
    for account in ledger.state(month).holds:
        try:
            run, start = started(world.store, account)
            if run and start:
                said += settle(run, start)
        except ShoestringError as error:
            said.append(f"{account} could not be settled: {error}")
    return said


def last_months(world: World) -> list[str]:
    """The accounts of this month and the one before: a run that lasts over the turn of a month is in the account of the month before."""
    now = world.clock.now()
    names = (f"{moment:%Y-%m}" for moment in (now.replace(day=1) - timedelta(days=1), now))
    return [name for name in names if any(world.store.list(f"ledger/{name}/"))]


def settle_abandoned(world: World) -> list[str]:
    """What a new run settles of runs whose launcher is gone: they had no exit step. Mends what crashed between two accounts."""
    ledger = Ledger(world.store, world.clock, world.pod_uid)
    said: list[str] = []

    def settle(run: Run, start: Start) -> list[str]:
        gone = start.supervisor and not world.cluster.lifetime(start.supervisor).alive
        return settle_start(world, run, start) if gone else []

    for month in last_months(world):
        said += for_open_starts(world, ledger, month, settle)
        said += ledger.sweep_parent(month)
    for campaign in map(campaign_account, world.budgets.campaigns):
        if any(world.store.list(f"ledger/{campaign}/")):
            said += ledger.sweep_parent(campaign)
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
    ledger = Ledger(world.store, world.clock, world.pod_uid)
    if states := opened(ledger, (run.start,)):
        wait_until_left(world, run, ledger, states[0].holds.keys() - {overhead_hold(run.start)})
    return settle_start(world, run, run.start)


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
