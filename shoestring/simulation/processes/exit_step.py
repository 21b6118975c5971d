"""Simulate the exit step and the reaper: they settle what dead processes left, and close accounts.

Each may die at any write: then its memory is lost, and what it wrote remains.
"""

from __future__ import annotations

from decimal import Decimal
from functools import partial

from shoestring.core.receipt import PricePoint
from shoestring.data.run_records import Run
from shoestring.runtime.records.lifetimes import lifetime_of
from shoestring.runtime.records.overhead import overhead_reservation
from shoestring.runtime.settlement.adjust import adjust_reservation
from shoestring.simulation.event_loop import Process
from shoestring.simulation.processes.overhead import overhead_pod, state_of
from shoestring.simulation.results import ZERO_USD
from shoestring.simulation.simulated_world import PipelineRun, Simulation
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.ledger.settlement import absorb_overruns
from shoestring.spending.lost_pods import settle_lost_pods
from shoestring.spending.meter import cost_between_usd


def run_exit_step(simulation: Simulation, pipeline: PipelineRun) -> Process[None]:
    """Run the exit step of a pipeline."""
    yield from overhead_pod(simulation, pipeline)
    settle_pipeline_start(simulation, pipeline, pipeline.run)


def settle_pipeline_start(simulation: Simulation, pipeline: PipelineRun, run: Run) -> None:
    """Settle the reservations of dead pods in one start, adjust them to the pods' actual times, and close
    the account.

    Reservations of live pods stay open, and with them the account.
    """
    world, ledger, account = simulation.world(), simulation.loop.ledger, run.start.account
    if (state := state_of(ledger, account)) is None or state.closed:
        return
    overhead = overhead_reservation(run.start)
    settle_lost_pods(
        ledger, world.store, partial(lifetime_of, world), account, pipeline.request.run_id, exclude={overhead}
    )
    state = ledger.state(account)
    if reservation := state.reservations.get(overhead):
        if len(state.reservations) > 1:
            return
        ledger.settle(account, overhead, min(pipeline.overhead_usd, reservation.amount_usd))
    adjust_attempts(simulation, pipeline, ledger, account)
    absorb_overruns(ledger, account)
    ledger.close(account)
    pipeline.outcome.held_s = simulation.loop.now_s - pipeline.outcome.admitted_s


def adjust_attempts(simulation: Simulation, pipeline: PipelineRun, ledger: Ledger, account: str) -> None:
    """Adjust each settled attempt to the actual times of its pod, decreases first."""
    settled_usd = ledger.state(account).settled_usd
    actual_usd: dict[str, Decimal] = {}
    for (owner, reservation_name), pod in pipeline.pods.items():
        life = simulation.cluster.lifetime(pod.ref)
        if owner == account and reservation_name in settled_usd and life.started_at and life.finished_at:
            prices = pod.prices or (PricePoint(at=life.started_at, usd_per_hour=pod.choice.usd_per_hour),)
            actual_usd[reservation_name] = (
                max(ZERO_USD, cost_between_usd(prices, life.started_at, life.finished_at) - pod.committed_usd)
                + pod.fees_usd
            )
    changed = [
        reservation_name
        for reservation_name in actual_usd
        if actual_usd[reservation_name] != settled_usd[reservation_name]
    ]
    for reservation_name in sorted(
        changed, key=lambda reservation_name: actual_usd[reservation_name] - settled_usd[reservation_name]
    ):
        adjust_reservation(ledger, account, reservation_name, actual_usd[reservation_name])


def reap_once(simulation: Simulation) -> Process[None]:
    """Run the reaper once: settle what dead engines left, and complete entries between two accounts."""
    yield simulation.loop.now_s + 1.0
    ledger = simulation.loop.ledger
    unfinished = {account: run for account, run in simulation.open_accounts.items() if run.engine_done}
    for account, pipeline in unfinished.items():
        run = next(run for run in pipeline.starts if run.start.account == account)
        settle_pipeline_start(simulation, pipeline, run)
    reserved: set[str] = set()
    for parent in sorted(simulation.parent_accounts):
        simulation.counters.reaped += len(ledger.repair_parent(parent))
        reserved |= found.reservations.keys() if (found := state_of(ledger, parent)) else set()
    for account in unfinished.keys() - reserved:
        del simulation.open_accounts[account]
