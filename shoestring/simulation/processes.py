"""Simulate the processes around a stage: admission, route step, exit step and reaper.

They call the functions that the real processes call. Each may die at any write: then its memory is lost,
and what it wrote remains.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from shoestring.core.attempt_id import AttemptId
from shoestring.core.errors import BudgetExceeded, NotYet, Refused, UnknownName
from shoestring.core.receipt import PricePoint
from shoestring.data.run_records import Run
from shoestring.routing.decide import choose
from shoestring.routing.decision import Choice, Decision
from shoestring.runtime.admission.admit import decide_with_headroom, reserve_overhead
from shoestring.runtime.admission.approvals import check_run_limits
from shoestring.runtime.admission.start_gate import Headroom, max_wait_s
from shoestring.runtime.records.overhead import overhead_reservation, overhead_usd
from shoestring.runtime.route_step.retry import ROUTER_RETRY_S
from shoestring.runtime.route_step.route import MAX_RACES, reservation_usd
from shoestring.runtime.settlement.adjust import adjust_reservation
from shoestring.simulation.event_loop import Process
from shoestring.simulation.results import ZERO_USD
from shoestring.simulation.simulated_world import PipelineRun, Simulation, deadline_left_s, new_run, question
from shoestring.spending.heartbeat import last_heartbeat
from shoestring.spending.ledger.account import AccountState
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.ledger.parent_accounts import campaign_account
from shoestring.spending.lost_pods import settle_lost_pods
from shoestring.spending.meter import cost_between_usd, cost_usd

ROUTE_STEP_S = (0.5, 1.5)
"""Shortest and longest duration in seconds of the pod of a route step or an exit step."""


def overhead_pod(simulation: Simulation, pipeline: PipelineRun) -> Process[None]:
    """Run and bill an overhead pod: one of a route step or an exit step."""
    seconds = simulation.rng.uniform(*ROUTE_STEP_S)
    if pipeline.starts:
        spent_usd = cost_usd(pipeline.run.start.overhead_usd_per_hour, seconds)
        pipeline.overhead_usd += spent_usd
        pipeline.outcome.billed_usd += spent_usd
    yield simulation.loop.now_s + seconds


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
        reserve_overhead(world, ledger, pipeline.run.start, len(request.kind.needs))
        return
    spent_usd = sum((state.spent_usd + state.held_usd for state in before), ZERO_USD)
    stages, waited_s = len(request.kind.needs), max(0.0, simulation.loop.now_s - request.arrival_s)
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
    reserve_overhead(world, ledger, pipeline.run.start, stages)


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
        held_usd=overhead_usd(world, len(request.kind.needs)),
        stage_budgets=world.budgets.stages,
        deadline_left_s=deadline_s,
    )
    decision = decide_with_headroom(asked, simulation.offers(request, asked))
    if decision.choice is None:
        raise Refused(f"the smallest budget that is enough is ${decision.smallest_budget_usd}")
    wait_s = max_wait_s(world, decision, decision.choice, waited_s)
    return Headroom(budget_usd - spent_usd, request.kind.campaign, wait_s)


def state_of(ledger: Ledger, account: str) -> AccountState | None:
    """Return the state of an account; None if it does not exist."""
    try:
        return ledger.state(account)
    except UnknownName:
        return None


def route_stage(simulation: Simulation, pipeline: PipelineRun, index: int) -> Process[Decision]:
    """Decide about one stage and reserve its money.

    Raises:
        Refused: nothing fits the remaining budget and time.
        BudgetExceeded: other writers took the money MAX_RACES times.
    """
    yield from overhead_pod(simulation, pipeline)
    world, ledger, need = simulation.world(), simulation.loop.ledger, pipeline.request.kind.needs[index]
    if (
        found := undelivered_decision(simulation, pipeline, ledger.state(pipeline.account), need.stage)
    ) is not None:
        return found
    state = ledger.state(pipeline.account)
    others = {name for name, reservation in state.reservations.items() if reservation.stage != need.stage}
    if len(others) < len(state.reservations):
        settle_lost_pods(
            ledger, world.store, world.cluster, pipeline.account, pipeline.request.run_id, exclude=others
        )
    for race in range(MAX_RACES):
        decision = decide_stage(simulation, pipeline, index, ledger.state(pipeline.account))
        if decision.choice is None:
            raise Refused(f"no offer for {need.stage} fits the remaining budget and time")
        key = f"decision/{decision.question.attempt_id}/{len(pipeline.decisions_by_key)}"
        pipeline.decisions_by_key[key] = decision
        try:
            reserve(ledger, pipeline.account, decision, decision.choice, key)
            return decision
        except BudgetExceeded:
            if race == MAX_RACES - 1:
                raise
    raise AssertionError("the last race returns or raises")


def reserve(ledger: Ledger, account: str, decision: Decision, choice: Choice, key: str) -> None:
    """Reserve the money of a decision. Raises BudgetExceeded."""
    asked = decision.question
    amount_usd = reservation_usd(asked, choice)
    attempt_id = str(asked.attempt_id)
    ledger.reserve(
        account, attempt_id, asked.stage, asked.attempt, amount_usd, choice.reserved_later_usd, key
    )


def undelivered_decision(
    simulation: Simulation, pipeline: PipelineRun, state: AccountState, stage: str
) -> Decision | None:
    """Return the decision of a route step that died just after reserving, before its engine read the
    decision.
    """
    now = simulation.world().clock.now()
    for reservation_name, reservation in state.reservations.items():
        is_recent = (now - reservation.reserved_at).total_seconds() < ROUTER_RETRY_S
        if (
            reservation.stage == stage
            and is_recent
            and last_heartbeat(simulation.store, pipeline.request.run_id, reservation_name) is None
        ):
            return pipeline.decisions_by_key.get(reservation.decision_key)
    return None


def decide_stage(simulation: Simulation, pipeline: PipelineRun, index: int, state: AccountState) -> Decision:
    """Ask the router about one stage, with the money and time that are left."""
    start, stage = pipeline.run.start, pipeline.request.kind.needs[index].stage
    names = (*state.reservations, *state.settled_usd)
    attempts = [AttemptId.parse(pipeline.request.run_id, name) for name in names]
    caps = {
        name: max(ZERO_USD, cap_usd - state.stages[name].spent_usd - state.stages[name].held_usd)
        if name in state.stages
        else cap_usd
        for name, cap_usd in simulation.world().budgets.stages.items()
    }
    asked = question(
        simulation,
        pipeline.request,
        index,
        pipeline.upstream,
        attempt=1 + max((each.number for each in attempts if each.stage == stage), default=0),
        budget_usd=start.budget_usd,
        spent_usd=start.budget_usd - (state.cap_usd or ZERO_USD) + state.spent_usd,
        held_usd=state.held_usd,
        stage_budgets=caps,
        deadline_left_s=deadline_left_s(simulation, pipeline.run, len(pipeline.request.kind.needs) - index),
    )
    return choose(asked, simulation.offers(pipeline.request, asked))


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
    settle_lost_pods(ledger, world.store, world.cluster, account, pipeline.request.run_id, exclude={overhead})
    state = ledger.state(account)
    if reservation := state.reservations.get(overhead):
        if len(state.reservations) > 1:
            return
        ledger.settle(account, overhead, min(pipeline.overhead_usd, reservation.amount_usd))
    adjust_attempts(simulation, pipeline, ledger, account)
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
                cost_between_usd(prices, life.started_at, life.finished_at) + pod.fees_usd
            )
    changed = [
        reservation_name
        for reservation_name in actual_usd
        if actual_usd[reservation_name] != settled_usd[reservation_name]
    ]
    for reservation_name in sorted(
        changed, key=lambda reservation_name: actual_usd[reservation_name] - settled_usd[reservation_name]
    ):
        adjust_reservation(
            ledger, account, reservation_name, settled_usd[reservation_name], actual_usd[reservation_name]
        )


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
