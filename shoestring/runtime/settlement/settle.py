"""The exit step of a run, and the cleanup that the next run does: no reservation stays open."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from html import escape
from pathlib import Path

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import ShoestringError, UnknownName
from shoestring.core.interfaces import Store
from shoestring.data.run_records import Run, RunStart, open_run, read_step_error
from shoestring.reporting.publish import publish
from shoestring.runtime.admission.stage_budgets import account_states
from shoestring.runtime.records.engine_times import record_engine_times
from shoestring.runtime.records.lifetimes import launcher_is_alive, lifetime_of
from shoestring.runtime.records.overhead import (
    EXIT_STEP,
    overhead_reservation,
    overhead_timer,
    read_overhead,
)
from shoestring.runtime.records.receipts import write_lost_receipts
from shoestring.runtime.records.world_ledger import world_ledger
from shoestring.runtime.route_step.external_components import settle_external
from shoestring.runtime.route_step.retry import receipt_is_due, wait_for_exit
from shoestring.runtime.settlement.adjust import adjust_to_pod_times
from shoestring.runtime.settlement.engine_end import record_engine_end
from shoestring.spending.audit.run_records import record_digests
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.ledger.parent_accounts import campaign_account
from shoestring.spending.ledger.settlement import absorb_overruns
from shoestring.spending.lost_pods import settle_lost_pods

EXIT_STEP_REQUESTS = 50
"""Requests to the store that the exit step waits for, one after another, once its time is recorded."""


def settle_start(world: World, run: Run, start: RunStart) -> list[str]:
    """Settle every open reservation of one start of a run and close its account; return what was done.

    A pod that is still alive keeps its reservation, and the account stays open; also until a pod that has
    settled has written its receipt.
    """
    ledger, overhead = world_ledger(world), overhead_reservation(start)
    try:
        messages = settle_external(world, run, start)
        messages += settle_lost_pods(
            ledger, world.store, partial(lifetime_of, world), start.account, run.run_id, exclude={overhead}
        )
    except UnknownName:
        # The process that admitted it died before it opened the account, so nothing was reserved.
        return []
    state = ledger.state(start.account)
    if receipt_is_due(world, run, state):
        return messages
    write_lost_receipts(world, run, start)
    if state.closed:
        return messages
    reservation = state.reservations.get(overhead)
    if reservation and len(state.reservations) > 1:
        return messages
    found = read_overhead(world, run, start)
    if reservation:
        ledger.settle(start.account, overhead, min(found.spent_usd, reservation.amount_usd))
    messages += [found.note] if found.note else []
    messages += adjust_to_pod_times(world, run, start, found.spent_usd)
    messages += record_engine_times(world.store, run, start, found.measured_pods_s)
    absorb_overruns(ledger, start.account)
    ledger.close(start.account, record_digests(world.store, run.run_id))
    return messages


def for_open_starts(
    world: World, ledger: Ledger, month: str, settle: Callable[[Run, RunStart], list[str]]
) -> list[str]:
    """Call `settle` for each start whose account in a month is still open; return its messages.

    An error in one run becomes a message: it must not keep the others from being settled.
    """
    messages: list[str] = []
    for account in ledger.state(month).reservations:
        try:
            run, start = start_of_account(world.store, account)
            if run and start:
                messages += settle(run, start)
        except ShoestringError as error:
            messages.append(f"{account} could not be settled: {error}")
    return messages


def recent_months(world: World) -> list[str]:
    """Return the accounts of this month and the last one, where a run that began before the month's turn has
    its account.
    """
    now = world.clock.now()
    names = (f"{moment:%Y-%m}" for moment in (now.replace(day=1) - timedelta(days=1), now))
    return [name for name in names if any(world.store.list(store_layout.account(name)))]


def settle_abandoned(world: World) -> list[str]:
    """Settle runs whose launcher is gone, and repair what crashed between two accounts; return what was done.

    A new run does this: a run whose launcher is gone had no exit step.
    """
    ledger = world_ledger(world)
    messages: list[str] = []
    ended: set[str] = set()

    def settle(run: Run, start: RunStart) -> list[str]:
        if not start.launcher or launcher_is_alive(world, run):
            return []
        ended.add(start.account)
        found = settle_start(world, run, start)
        publish(world.store, run.run_id)
        return found

    for month in recent_months(world):
        messages += for_open_starts(world, ledger, month, settle)
        messages += ledger.repair_parent(month, ended)
    for campaign in map(campaign_account, world.budgets.campaigns):
        if any(world.store.list(store_layout.account(campaign))):
            messages += ledger.repair_parent(campaign, ended)
    return messages


def start_of_account(store: Store, account: str) -> tuple[Run, RunStart] | tuple[None, None]:
    """Return the start of a run that has this account; (None, None): there is none."""
    for run_id in (account, account.rpartition(".")[0]):
        if run_id and any(store.list(store_layout.starts(run_id))):
            run = open_run(store, run_id)
            return next(((run, start) for start in run.starts if start.account == account), (None, None))
    return None, None


def settle_run(world: World, run_id: str) -> list[str]:
    """Wait for supervisors that are exiting, settle dead pods, release the rest and close the account; return
    what was done.
    """
    return settle_opened(world, open_run(world.store, run_id))


def settle_opened(world: World, run: Run) -> list[str]:
    """Do `settle_run` for a run that was read."""
    if not run.starts:
        return []
    ledger = world_ledger(world)
    if states := account_states(ledger, (run.start,)):
        wait_for_exit(world, run, ledger, states[0].reservations.keys() - {overhead_reservation(run.start)})
    return settle_start(world, run, run.start)


def exit_step(world: World, run: Run) -> list[str]:
    """Do `settle_run` in a pod of its own. Its time so far is charged to the overhead, and what the rest is
    expected to wait for the store; the rest itself takes milliseconds.
    """
    if run.starts:
        with overhead_timer(world, run, EXIT_STEP, EXIT_STEP_REQUESTS):
            record_engine_end(world, run)
    return settle_opened(world, run)


def finish(world: World, run_id: str, page_path: str, summary_path: str) -> None:
    """Do the exit step, and write the run's report and summary into the store, and to the paths that are not
    empty.

    A run that its first route step did not begin has no record. There is nothing to settle then, and the
    summary is empty: an error of this step would hide the reason that the route step gave.
    """
    try:
        run = open_run(world.store, run_id)
    except UnknownName:
        error = read_step_error(world.store, run_id)
        why = error.reason if error else "see its first route step"
        print(never_begun := f"{run_id} was never begun, so there is nothing to settle: {why}", flush=True)
        page, summary = f"<p>{escape(never_begun)}</p>\n", b""
    else:
        for message in exit_step(world, run):
            print(message, flush=True)
        page = publish(world.store, run_id)
        summary = world.store.fetch(store_layout.summary(run_id)).read_bytes()
    if page_path:
        Path(page_path).write_text(page, encoding="utf-8")
    if summary_path:
        Path(summary_path).write_bytes(summary)
