"""The exit step, and the next run's look around: no money is left behind."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from shoestring.config.world import World
from shoestring.core.errors import ShoestringError, UnknownName
from shoestring.core.interfaces import Store
from shoestring.data.run_records import Run, RunStart, open_run
from shoestring.reporting.publish import publish
from shoestring.runtime.admission.admit import account_states
from shoestring.runtime.records.overhead import overhead_hold, overhead_spent_usd, overhead_timer
from shoestring.runtime.records.receipts import write_lost_receipts
from shoestring.runtime.route_step.external_components import settle_external
from shoestring.runtime.route_step.retry import wait_for_exit
from shoestring.runtime.settlement.adjust import adjust_to_pod_times
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.ledger.parent_accounts import campaign_account
from shoestring.spending.lost_pods import settle_lost_pods


def settle_start(world: World, run: Run, start: RunStart) -> list[str]:
    """Settle every open hold of one start of a run and close its account; says what it did. A pod that still lives is left alone."""
    ledger = Ledger(world.store, world.clock, str(world.pod))
    try:
        said = settle_external(world, run, start)
        said += settle_lost_pods(
            ledger, world.store, world.cluster, start.account, run.run_id, exclude={overhead_hold(start)}
        )
    except UnknownName:
        # Whoever admitted it died before its account was opened: nothing was reserved in it.
        return []
    state = ledger.state(start.account)
    write_lost_receipts(world, run, start)
    if held := state.reservations.get(overhead_hold(start)):
        if len(state.reservations) > 1:
            return said
        ledger.settle(
            start.account, overhead_hold(start), min(overhead_spent_usd(world, run, start), held.amount_usd)
        )
    if not state.closed:
        said += adjust_to_pod_times(world, run, start)
        ledger.close(start.account)
    return said


def for_open_starts(
    world: World, ledger: Ledger, month: str, settle: Callable[[Run, RunStart], list[str]]
) -> list[str]:
    """Do something about each start whose account in a month is still open; says what was done.

    They are somebody else's runs: what is wrong with one must not stop whoever looks at all of them.
    """
    said: list[str] = []
    for account in ledger.state(month).reservations:
        try:
            run, start = start_of_account(world.store, account)
            if run and start:
                said += settle(run, start)
        except ShoestringError as error:
            said.append(f"{account} could not be settled: {error}")
    return said


def recent_months(world: World) -> list[str]:
    """The accounts of this month and the one before: a run that lasts over the turn of a month is in the account of the month before."""
    now = world.clock.now()
    names = (f"{moment:%Y-%m}" for moment in (now.replace(day=1) - timedelta(days=1), now))
    return [name for name in names if any(world.store.list(f"ledger/{name}/"))]


def settle_abandoned(world: World) -> list[str]:
    """What a new run settles of runs whose launcher is gone: they had no exit step. Mends what crashed between two accounts."""
    ledger = Ledger(world.store, world.clock, str(world.pod))
    said: list[str] = []

    def settle(run: Run, start: RunStart) -> list[str]:
        gone = start.launcher and not world.cluster.lifetime(start.launcher).alive
        return settle_start(world, run, start) if gone else []

    for month in recent_months(world):
        said += for_open_starts(world, ledger, month, settle)
        said += ledger.repair_parent(month)
    for campaign in map(campaign_account, world.budgets.campaigns):
        if any(world.store.list(f"ledger/{campaign}/")):
            said += ledger.repair_parent(campaign)
    return said


def start_of_account(store: Store, account: str) -> tuple[Run, RunStart] | tuple[None, None]:
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
    ledger = Ledger(world.store, world.clock, str(world.pod))
    if states := account_states(ledger, (run.start,)):
        wait_for_exit(world, run, ledger, states[0].reservations.keys() - {overhead_hold(run.start)})
    return settle_start(world, run, run.start)


def exit_step(world: World, run_id: str) -> list[str]:
    """`settle_run` in a pod of its own, which goes on the overhead line up to here; what is left to do takes milliseconds."""
    run = open_run(world.store, run_id)
    if run.starts:
        with overhead_timer(world, run, "settle"):
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
