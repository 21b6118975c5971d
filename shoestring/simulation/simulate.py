"""Simulate pipelines, recorded or random, with the real router and the real ledger on a simulated clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from shoestring.core.errors import LedgerCorrupt
from shoestring.core.interfaces import Store
from shoestring.simulation.processes.engine import reaper, run_pipeline
from shoestring.simulation.processes.overhead import state_of
from shoestring.simulation.results import (
    ZERO_USD,
    PipelineOutcome,
    SimulationReport,
    by_kind,
    outcome_counts,
    pipelines_that_fit,
    share,
)
from shoestring.simulation.scenario import Scenario
from shoestring.simulation.simulated_world import PipelineRun, Simulation
from shoestring.simulation.workload import pipeline_requests
from shoestring.spending.audit.verify import verify
from shoestring.spending.ledger.account import AccountState


def simulate(
    scenario: Scenario,
    pipelines: int,
    seed: int,
    *,
    check: bool = True,
    on_progress: Callable[[int], None] = lambda done: None,
) -> SimulationReport:
    """Run this many pipelines until the last one has ended. The same arguments give the same report.

    Args:
        check: verify every hash, sequence and balance of the ledger at the end.
        on_progress: called with the number of pipelines that have started.

    Raises:
        WorldError: the scenario's world, trace or recording is invalid, or its policy caps memory.
        Refused: no pool can run one of its stages, whatever the budget.
    """
    return run_simulation(Simulation(scenario, seed), pipelines, check, on_progress)


def run_simulation(
    simulation: Simulation, pipelines: int, check: bool, on_progress: Callable[[int], object]
) -> SimulationReport:
    """Run the pipelines of an opened simulation and return its report."""
    scenario, seed = simulation.scenario, simulation.seed
    simulation.pipelines_to_start = pipelines
    for request in pipeline_requests(scenario, pipelines, seed):
        simulation.loop.start(run_pipeline(simulation, request), request.arrival_s, home_slot=request.number)
    simulation.loop.start(reaper(simulation), 0.0)
    simulation.loop.run(lambda: on_progress(pipelines - simulation.pipelines_to_start))
    return build_report(simulation, pipelines, check_ledger(simulation.store) if check else "not verified")


def check_ledger(store: Store) -> str:
    """Return the last line that `shoestring ledger verify` would print."""
    try:
        found = verify(store, {})
    except LedgerCorrupt as error:
        return f"broken: {error}"
    pending = f", {len(found.unfinished)} pending" if found.unfinished else ""
    return f"every hash, sequence and balance holds: {found.entries} entries{pending}"


def build_report(simulation: Simulation, pipelines: int, ledger_check: str) -> SimulationReport:
    outcomes = [pipeline.outcome for pipeline in simulation.pipeline_runs]
    runs = [state for pipeline in simulation.pipeline_runs for state in accounts_of(simulation, pipeline)]
    parents = parent_states(simulation)
    fit, counters = pipelines_that_fit(outcomes, simulation.scenario.budgets), simulation.counters
    return SimulationReport(
        scenario=simulation.scenario.name,
        seed=simulation.seed,
        pipelines=pipelines,
        outcomes=outcome_counts(outcomes),
        admitted=sum(outcome.admitted for outcome in outcomes),
        would_fit=len(fit),
        would_fit_admitted=sum(outcome.admitted for outcome in fit),
        admitted_share=share(sum(outcome.admitted for outcome in fit), len(fit)),
        accounts_over_cap=sum(over_cap(state) for state in (*runs, *parents)),
        **spending_figures(runs),
        **billing_figures(outcomes),
        **waiting_figures(simulation.pipeline_runs),
        **policy_figures(simulation, outcomes),
        p95_coverage=share(counters.within_p95, counters.finished),
        p95_stages=counters.finished,
        attempts=sum(outcome.attempts for outcome in outcomes),
        preempted=sum(outcome.preempted for outcome in outcomes),
        crashes=counters.crashes,
        races=simulation.loop.overlaps,
        reaped=counters.reaped,
        parent_accounts={state.account: account_text(state) for state in parents},
        spent_by_target=spent_by_target(simulation, runs),
        pipeline_kinds=by_kind(outcomes, fit),
        ledger_entries=sum(state.entries for state in (*runs, *parents)),
        ledger_check=ledger_check,
        days=round(simulation.loop.now_s / 86400, 3),
    )


def spending_figures(runs: Sequence[AccountState]) -> dict[str, Any]:
    """Return the figures about caps, spending and released money of all runs."""
    released_usd = sum((state.released_usd for state in runs), ZERO_USD)
    spent_usd = sum((state.spent_usd for state in runs), ZERO_USD)
    cap_usd = sum((state.cap_usd or ZERO_USD for state in runs), ZERO_USD)
    shares = (share(state.spent_usd, state.cap_usd or 0) or 0.0 for state in runs)
    return {
        "max_share_of_cap": max(shares, default=None),
        "cap_usd": cap_usd,
        "spent_usd": spent_usd,
        "unspent_share": share(cap_usd - spent_usd, cap_usd),
        "released_share": share(released_usd, released_usd + spent_usd),
    }


def billing_figures(outcomes: Sequence[PipelineOutcome]) -> dict[str, Any]:
    """Return the figures about the provider's bill, compared with the run budgets."""
    admitted = [outcome for outcome in outcomes if outcome.admitted]
    excess = [max(0.0, float(outcome.billed_usd / outcome.budget_usd) - 1) for outcome in admitted]
    return {
        "billed_usd": sum((outcome.billed_usd for outcome in outcomes), ZERO_USD),
        "runs_billed_over_budget": sum(each > 0 for each in excess),
        "max_billed_over_share": round(max(excess, default=0.0), 6),
    }


def waiting_figures(pipeline_runs: Sequence[PipelineRun]) -> dict[str, float | None]:
    """Return how long runs waited before their start, and how long their unspent money stayed reserved."""
    waits_s = [
        pipeline.outcome.admitted_s - pipeline.request.arrival_s
        for pipeline in pipeline_runs
        if pipeline.outcome.waited and pipeline.outcome.admitted
    ]
    unspent = [
        (float(pipeline.outcome.budget_usd - pipeline.outcome.spent_usd), pipeline.outcome.held_s)
        for pipeline in pipeline_runs
        if pipeline.outcome.held_s
    ]
    dollar_hours = sum(unspent_usd * held_s / 3600 for unspent_usd, held_s in unspent)
    return {
        "waited": len(waits_s),
        "longest_wait_h": round(max(waits_s, default=0.0) / 3600, 3),
        "mean_release_h": share(dollar_hours, sum(unspent_usd for unspent_usd, _ in unspent)),
    }


def policy_figures(simulation: Simulation, outcomes: Sequence[PipelineOutcome]) -> dict[str, Any]:
    """Return the figures about start times, migrations, training, the policy on trial and commitments."""
    counters, rollback = simulation.counters, simulation.rollback()
    return {
        "delayed": sum(outcome.delayed and outcome.admitted for outcome in outcomes),
        "late": sum(outcome.late for outcome in outcomes),
        "migrations": sum(outcome.migrations for outcome in outcomes),
        "trained_share": share(counters.trained_samples, counters.useful_samples),
        "candidate_runs": sum(outcome.by_candidate for outcome in outcomes),
        "rollback": rollback.reason if rollback else "",
        "committed_usd": sum((outcome.committed_usd for outcome in outcomes), ZERO_USD),
    }


def accounts_of(simulation: Simulation, pipeline: PipelineRun) -> list[AccountState]:
    """Return the accounts of a pipeline's starts, and record their spending in its outcome."""
    ledger = simulation.loop.ledger_of_slot(pipeline.request.number)
    found = [state for run in pipeline.starts if (state := state_of(ledger, run.start.account)) is not None]
    pipeline.outcome.spent_usd = sum((state.spent_usd for state in found), ZERO_USD)
    return found


def parent_states(simulation: Simulation) -> list[AccountState]:
    return [
        state
        for name in sorted(simulation.parent_accounts)
        if (state := state_of(simulation.loop.ledger, name)) is not None
    ]


def over_cap(state: AccountState) -> bool:
    """Return True if the account spent and holds more than its cap."""
    return state.cap_usd is not None and state.spent_usd + state.held_usd > state.cap_usd


def account_text(state: AccountState) -> str:
    cap = "no cap" if state.cap_usd is None else f"a cap of ${state.cap_usd}"
    return f"${state.spent_usd} spent and ${state.held_usd} held, {cap}"


def spent_by_target(simulation: Simulation, runs: Sequence[AccountState]) -> dict[str, Decimal]:
    """Return the dollars in the ledger by pool and market."""
    chosen = {key: pod.choice for pipeline in simulation.pipeline_runs for key, pod in pipeline.pods.items()}
    found: defaultdict[str, Decimal] = defaultdict(Decimal)
    for state in runs:
        for name, spent_usd in state.settled_usd.items():
            choice = chosen.get((state.account, name))
            found["overhead" if choice is None else f"{choice.pool} {choice.market}"] += spent_usd
    return dict(sorted(found.items()))
