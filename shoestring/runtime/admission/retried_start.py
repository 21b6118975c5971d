"""The next start of a run whose engine runs a stage again after the run has ended: Kubeflow's Retry.

It creates the pod of the failed stage, and no route step and no exit step. The pod begins the start itself.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import BudgetTooSmall
from shoestring.core.record import record_bytes
from shoestring.data.run_records import Run, RunStart, open_run
from shoestring.runtime.admission.admit import reserve_overhead
from shoestring.runtime.admission.approvals import approval_for
from shoestring.runtime.admission.stage_budgets import account_states, stage_budgets_left
from shoestring.runtime.admission.start_gate import Headroom
from shoestring.runtime.records.run_setup import has_ended
from shoestring.runtime.records.world_ledger import world_ledger


def begin_retry(world: World, run: Run) -> Run:
    """Return the run as it is while its last start goes on; else with a new start, which two pods that come
    at once share. A launcher's run is left to its resume.

    The new start has the rest of the budget and the whole deadline. Its pods are charged with the prices of
    the last one, since a stage may read no nodes.

    Raises:
        BudgetTooSmall: nothing is left of the budget.
        ApprovalNeeded, BudgetExceeded, NotYet: as for a start by a router.
    """
    ledger, last = world_ledger(world), run.start
    states = account_states(ledger, run.starts)
    if not has_ended(world, run):
        return run
    spent_usd = sum((state.used_usd for state in states), Decimal(0))
    budget_usd = last.budget_usd + states[-1].cap_raised_usd
    left_usd = budget_usd - spent_usd
    if left_usd <= 0:
        spent = f"{run.run_id} has spent ${spent_usd} of its ${budget_usd}"
        raise BudgetTooSmall(budget_usd, spent_usd, f"{spent}: {continue_text(run)}")
    start = next_start(world, run, budget_usd, left_usd)
    headroom, job = Headroom(left_usd, run.record.job.campaign, 0.0), run.record.job
    approval = approval_for(world, run.run_id, budget_usd, start_deadline_s(last), job.campaign)
    headroom.check(world, ledger)
    key = store_layout.start(run.run_id, start.number)
    world.store.put(key, record_bytes(start), if_absent=True)
    run = open_run(world.store, run.run_id)
    caps = stage_budgets_left(world, ledger, job, run.starts[:-1])
    headroom.open_account(world, ledger, run.start, caps, approval)
    reserve_overhead(ledger, run.start, ledger.state(run.start.account))
    return run


def next_start(world: World, run: Run, budget_usd: Decimal, left_usd: Decimal) -> RunStart:
    """Return the start after the last one, which begins now. It reserves for its overhead what the last one
    did, or what is left.
    """
    last, number, now = run.start, run.start.number + 1, world.clock.now()
    deadline_s = start_deadline_s(last)
    return last.model_copy(
        update={
            "number": number,
            "account": f"{run.run_id}.{number}",
            "budget_usd": budget_usd,
            "started_at": now,
            "deadline_at": None if deadline_s is None else now + timedelta(seconds=deadline_s),
            "overhead_usd": min(last.overhead_usd, left_usd),
            "command": None,
        }
    )


def start_deadline_s(start: RunStart) -> float | None:
    """Return the seconds that a start was given; None: it has no deadline."""
    return (start.deadline_at - start.started_at).total_seconds() if start.deadline_at else None


def continue_text(run: Run) -> str:
    """Return what a person does about a pod without money: its engine gives it no other budget."""
    return f"continue it with a larger budget: `shoestring upload --run --run-id {run.run_id} --budget USD`"
