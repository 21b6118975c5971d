"""Simulate admission: when a run starts, and the account that it opens."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from shoestring.core.errors import NotYet, Refused
from shoestring.routing.policy.migration import exploration_sd
from shoestring.runtime.admission.admit import reserve_overhead
from shoestring.runtime.admission.approvals import check_run_limits
from shoestring.runtime.admission.extension_headroom import decide_with_headroom
from shoestring.runtime.admission.start_gate import Headroom, check_start_time, max_wait_s
from shoestring.simulation.event_loop import Process
from shoestring.simulation.processes.overhead import overhead_pod, state_of
from shoestring.simulation.questions import new_run, overhead_at_start, question, recipe_of, time_left
from shoestring.simulation.results import ZERO_USD
from shoestring.simulation.simulated_world import PipelineRun, Simulation
from shoestring.spending.ledger.parent_accounts import campaign_account


def admit_pipeline(simulation: Simulation, pipeline: PipelineRun) -> Process[None]:
    """Open the run's account if the whole pipeline fits; wait for money if the policy allows that.

    Raises:
        Refused: the pipeline does not fit.
        BudgetExceeded: the month or the campaign has too little left, even with all reservations released.
    """
    yield from overhead_pod(simulation, pipeline)
    while not pipeline.outcome.admitted:
        try:
            if pipeline.headroom:
                # Check the headroom before deciding again: most checks find too little money.
                pipeline.headroom.check(simulation.world(), simulation.loop.ledger)
            open_account(simulation, pipeline)
        except NotYet as error:
            pipeline.outcome.waited = True
            pipeline.outcome.delayed |= error.urgently
            if pipeline.headroom:
                left_s = (
                    pipeline.headroom.max_wait_s
                    - (error.until - simulation.world().clock.now()).total_seconds()
                )
                pipeline.headroom = replace(pipeline.headroom, max_wait_s=left_s)
            yield simulation.loop.now_s + max(
                1.0, (error.until - simulation.world().clock.now()).total_seconds()
            )


def open_account(simulation: Simulation, pipeline: PipelineRun) -> None:
    """Decide about the whole pipeline and open its account. Raises as `admit` does, and NotYet."""
    world, ledger, request = simulation.world(), simulation.loop.ledger, pipeline.request
    before = [state for run in pipeline.starts if (state := state_of(ledger, run.start.account)) is not None]
    if pipeline.starts and before and before[-1].account == pipeline.account and not before[-1].closed:
        pipeline.outcome.admitted = True
        reserve_overhead(ledger, pipeline.run.start, ledger.state(pipeline.account))
        return
    spent_usd = sum((state.used_usd for state in before), ZERO_USD)
    waited_s = max(0.0, simulation.loop.now_s - request.arrival_s)
    deadline_s = (
        pipeline.deadline_s
        if pipeline.deadline_s is None or not pipeline.outcome.waited
        else max(1.0, pipeline.deadline_s - waited_s)
    )
    pipeline.headroom = headroom = required_headroom(simulation, pipeline, spent_usd, deadline_s, waited_s)
    headroom.check(world, ledger)
    pipeline.starts.append(
        new_run(simulation, request, len(pipeline.starts) + 1, pipeline.outcome.budget_usd, deadline_s)
    )
    simulation.open_accounts[pipeline.account] = pipeline
    campaign = request.kind.campaign
    simulation.parent_accounts |= {f"{pipeline.run.start.started_at:%Y-%m}"} | (
        {campaign_account(campaign)} if campaign else set()
    )
    headroom.open_account(world, ledger, pipeline.run.start, world.budgets.stages)
    pipeline.outcome.admitted, pipeline.outcome.admitted_s = True, simulation.loop.now_s
    reserve_overhead(ledger, pipeline.run.start, ledger.state(pipeline.account))


def required_headroom(
    simulation: Simulation,
    pipeline: PipelineRun,
    spent_usd: Decimal,
    deadline_s: float | None,
    waited_s: float,
) -> Headroom:
    """Decide about the whole pipeline, and return what its month and campaign must have left.

    Raises Refused.
    """
    world, request, budget_usd = simulation.world(), pipeline.request, pipeline.outcome.budget_usd
    check_run_limits(world, budget_usd, request.kind.campaign)
    asked = question(
        simulation,
        request,
        0,
        None,
        budget_usd=budget_usd,
        spent_usd=spent_usd,
        held_usd=overhead_at_start(simulation, request.kind),
        stage_budgets=world.budgets.stages,
        **time_left(simulation, len(request.kind.needs), deadline_s, is_start=True),
        exploration_sd=exploration_sd(world.policy, request.kind.needs[0], 0),
        pools=simulation.cluster.queued_pools(),
    )
    decision = decide_with_headroom(asked, simulation.offers(request, asked), world.policy)
    if decision.choice is None:
        raise Refused(f"the smallest budget that is enough is ${decision.smallest_budget_usd}")
    if not pipeline.starts:
        check_start_time(world, decision, decision.choice, recipe_of(request.kind).priority, waited_s)
    wait_s = max_wait_s(world, decision, decision.choice, waited_s)
    return Headroom(budget_usd - spent_usd, request.kind.campaign, wait_s)
