"""RecordedMarket and made-up workloads and prices through the real router and the real books, by a clock that does not wait."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from decimal import Decimal

from shoestring.core.errors import LedgerCorrupt
from shoestring.core.interfaces import Store
from shoestring.simulation.pipeline import reaper, run_pipeline
from shoestring.simulation.processes import state_of
from shoestring.simulation.results import NOTHING, SimulationReport, by_kind, fitting, outcome_counts, share
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
    """So many pipelines, until the last is over and reaped. `on_progress`: called with how many have begun. The same arguments, the same report.

    `check`: verify every hash, sequence and balance of the books at the end.

    Raises:
        WorldError: the scenario's world, trace or record is not what it should be.
        Refused: no pool can take one of its stages, whatever the budget.
    """
    return run_simulation(Simulation(scenario, seed), pipelines, check, on_progress)


def run_simulation(
    simulation: Simulation, pipelines: int, check: bool, on_progress: Callable[[int], object]
) -> SimulationReport:
    scenario, seed = simulation.scenario, simulation.seed
    simulation.pipelines_to_start = pipelines
    for one in pipeline_requests(scenario, pipelines, seed):
        simulation.loop.start(run_pipeline(simulation, one), one.arrival_s, home=one.number)
    simulation.loop.start(reaper(simulation), 0.0)
    simulation.loop.run(lambda: on_progress(pipelines - simulation.pipelines_to_start))
    return report(simulation, pipelines, check_ledger(simulation.store) if check else "not verified")


def check_ledger(store: Store) -> str:
    """What `shoestring ledger verify` would say last."""
    try:
        found = verify(store, {})
    except LedgerCorrupt as error:
        return f"broken: {error}"
    pending = f", {len(found.unfinished)} pending" if found.unfinished else ""
    return f"every hash, sequence and balance holds: {found.entries} entries{pending}"


def report(simulation: Simulation, pipelines: int, ledger_check: str) -> SimulationReport:
    outcomes = [pipeline.outcome for pipeline in simulation.pipeline_runs]
    runs, parent_accounts = (
        [account for pipeline in simulation.pipeline_runs for account in accounts_of(simulation, pipeline)],
        parent_states(simulation),
    )
    stage_usd = [
        sum((account.released_usd for account in runs), NOTHING),
        sum((account.spent_usd for account in runs), NOTHING),
    ]
    cap_usd = sum((account.cap_usd or NOTHING for account in runs), NOTHING)
    over = [
        max(0.0, float(outcome.billed_usd / outcome.budget_usd) - 1)
        for outcome in outcomes
        if outcome.admitted
    ]
    fit, counters = fitting(outcomes, simulation.scenario.budgets), simulation.counters
    return SimulationReport(
        scenario=simulation.scenario.name,
        seed=simulation.seed,
        pipelines=pipelines,
        outcomes=outcome_counts(outcomes),
        admitted=sum(outcome.admitted for outcome in outcomes),
        would_fit=len(fit),
        would_fit_admitted=sum(outcome.admitted for outcome in fit),
        admitted_share=share(sum(outcome.admitted for outcome in fit), len(fit)),
        accounts_over_cap=sum(over_cap(state) for state in (*runs, *parent_accounts)),
        max_share_of_cap=max(
            (share(state.spent_usd, state.cap_usd or 0) or 0.0 for state in runs), default=None
        ),
        cap_usd=cap_usd,
        spent_usd=stage_usd[1],
        billed_usd=sum((outcome.billed_usd for outcome in outcomes), NOTHING),
        runs_billed_over_budget=sum(each > 0 for each in over),
        max_billed_over_share=round(max(over, default=0.0), 6),
        unspent_share=share(cap_usd - stage_usd[1], cap_usd),
        released_share=share(stage_usd[0], sum(stage_usd)),
        **waiting_figures(simulation.pipeline_runs),
        p95_coverage=share(counters.within_p95, counters.finished),
        p95_stages=counters.finished,
        attempts=sum(outcome.attempts for outcome in outcomes),
        preempted=sum(outcome.preempted for outcome in outcomes),
        crashes=counters.crashes,
        races=simulation.loop.overlaps,
        reaped=counters.reaped,
        parent_accounts={state.account: account_text(state) for state in parent_accounts},
        spent_by_target=spent_by_target(simulation, runs),
        pipeline_kinds=by_kind(outcomes, fit),
        ledger_entries=sum(state.entries for state in (*runs, *parent_accounts)),
        ledger_check=ledger_check,
        days=round(simulation.loop.now_s / 86400, 3),
    )


def waiting_figures(pipeline_runs: Sequence[PipelineRun]) -> dict[str, float | None]:
    """How long runs waited for money, and how long that which they did not spend was away."""
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


def accounts_of(simulation: Simulation, pipeline: PipelineRun) -> list[AccountState]:
    """The accounts of a pipeline's starts, its spending taken in."""
    ledger = simulation.loop.ledger_of_slot(pipeline.request.number)
    found = [state for run in pipeline.starts if (state := state_of(ledger, run.start.account)) is not None]
    pipeline.outcome.spent_usd = sum((state.spent_usd for state in found), NOTHING)
    return found


def parent_states(simulation: Simulation) -> list[AccountState]:
    return [
        state
        for name in sorted(simulation.parent_accounts)
        if (state := state_of(simulation.loop.ledger, name)) is not None
    ]


def over_cap(state: AccountState) -> bool:
    return state.cap_usd is not None and state.spent_usd + state.held_usd > state.cap_usd


def account_text(state: AccountState) -> str:
    cap = "no cap" if state.cap_usd is None else f"a cap of ${state.cap_usd}"
    return f"${state.spent_usd} spent and ${state.held_usd} held, {cap}"


def spent_by_target(simulation: Simulation, runs: Sequence[AccountState]) -> dict[str, Decimal]:
    """What the books say was spent, by pool and market."""
    chosen = {key: pod.choice for pipeline in simulation.pipeline_runs for key, pod in pipeline.pods.items()}
    found: defaultdict[str, Decimal] = defaultdict(Decimal)
    for state in runs:
        for hold, spent_usd in state.settled_usd.items():
            choice = chosen.get((state.account, hold))
            found["overhead" if choice is None else f"{choice.pool} {choice.market}"] += spent_usd
    return dict(sorted(found.items()))
