"""Simulate the route step: it decides about a stage and reserves its money."""

from __future__ import annotations

from functools import partial

from shoestring.config.engines import PLACE_SHARE
from shoestring.core.attempt_id import AttemptId
from shoestring.core.errors import BudgetExceeded, Refused
from shoestring.routing.decide import choose
from shoestring.routing.decision import Choice, Decision
from shoestring.routing.policy.migration import exploration_sd
from shoestring.runtime.admission.extension_headroom import leaving_exits
from shoestring.runtime.records.lifetimes import lifetime_of
from shoestring.runtime.route_step.retry import ROUTER_RETRY_S
from shoestring.runtime.route_step.route import MAX_RACES, may_be_late, reservation_usd
from shoestring.simulation.event_loop import Process
from shoestring.simulation.processes.overhead import engine_wait, overhead_pod
from shoestring.simulation.questions import question, time_left
from shoestring.simulation.results import ZERO_USD
from shoestring.simulation.simulated_world import PipelineRun, Simulation
from shoestring.spending.heartbeat import last_heartbeat
from shoestring.spending.ledger.account import AccountState
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.lost_pods import settle_lost_pods


def route_stage(simulation: Simulation, pipeline: PipelineRun, index: int) -> Process[Decision]:
    """Decide about one stage and reserve its money.

    Raises:
        Refused: nothing fits the remaining budget and time.
        BudgetExceeded: other writers took the money MAX_RACES times.
    """
    yield from engine_wait(simulation, 1 - PLACE_SHARE)
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
            ledger,
            world.store,
            partial(lifetime_of, world),
            pipeline.account,
            pipeline.request.run_id,
            exclude=others,
        )
    for race in range(MAX_RACES):
        decision = decide_stage(simulation, pipeline, index, ledger.state(pipeline.account))
        if decision.choice is None:
            raise Refused(f"no offer for {need.stage} fits the remaining budget and time")
        key = f"decision/{decision.question.attempt_id}/{len(pipeline.decisions_by_key)}"
        pipeline.decisions_by_key[key] = decision
        pipeline.outcome.by_candidate |= decision.question.arm == "candidate"
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
    left_s = pipeline.run.deadline_left_s(simulation.world().clock.now())
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
        spent_usd=start.budget_usd - (state.cap_usd or ZERO_USD) + state.used_usd - state.held_usd,
        held_usd=state.held_usd,
        stage_budgets=caps,
        exploration_sd=exploration_sd(
            simulation.scenario.policy, pipeline.request.kind.needs[index], pipeline.migrations
        ),
        **time_left(simulation, len(pipeline.request.kind.needs) - index, left_s, is_start=False),
    )
    offers = simulation.offers(pipeline.request, asked)
    asked = leaving_exits(asked, offers, simulation.scenario.policy)
    decision = choose(asked, offers)
    if decision.choice is None and may_be_late(pipeline.run, asked):
        decision = choose(asked.without_deadline(), offers)
        pipeline.outcome.late |= decision.choice is not None
    return decision
