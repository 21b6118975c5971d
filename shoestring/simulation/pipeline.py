"""One pipeline from its new_pipeline_run to its end, as an engine drives it, and an oracle that knows how long everything takes."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import numpy as np

from shoestring.core.errors import BudgetExceeded, LedgerConflict, Refused, ShoestringError, StoreError
from shoestring.core.money import MAX_USD, MICRO, from_microusd
from shoestring.routing.candidates import MS_PER_HOUR, NONE
from shoestring.routing.decide import choose
from shoestring.routing.candidates import Candidates
from shoestring.routing.decision import Decision
from shoestring.routing.offers.offer_costs import Block
from shoestring.runtime.records.overhead import overhead_usd_per_hour
from shoestring.runtime.route_step.retry import FINAL_CAUSES
from shoestring.simulation.event_loop import Process, ProcessDied, Result
from shoestring.simulation.processes import ROUTER_S, admit, exit_step, reap_once, route
from shoestring.simulation.results import PipelineOutcome
from shoestring.simulation.simulated_world import PipelineRun, Simulation, question
from shoestring.simulation.stage_attempt import AttemptEnd, run_attempt
from shoestring.simulation.workload import PipelineRequest
from shoestring.spending.meter import cost_usd

# An engine tries a step so often, and waits so long in between.
MAX_TRIES = 3
RETRY_DELAY_S = (5.0, 60.0)


def run_pipeline(simulation: Simulation, request: PipelineRequest) -> Process[None]:
    """Looks at the plan, sets a budget, begins, and goes on until the exit step, or until its engine is gone."""
    pipeline = new_pipeline_run(simulation, request)
    simulation.pipeline_runs.append(pipeline)
    simulation.pipelines_to_start -= 1
    outcome = pipeline.outcome
    try:
        yield from with_retries(simulation, pipeline, lambda: admit(simulation, pipeline))
        if outcome.admitted:
            yield from run_stages(simulation, pipeline)
    except BudgetExceeded as error:
        outcome.ended, outcome.reason = ("stopped" if outcome.admitted else "cap-reached"), str(error)
    except Refused as error:
        outcome.ended, outcome.reason = ("stopped" if outcome.admitted else "refused"), str(error)
    except ShoestringError as error:
        outcome.ended, outcome.reason = "failed", str(error)
    if pipeline.starts and outcome.ended != "abandoned":
        try:
            yield from with_retries(simulation, pipeline, lambda: exit_step(simulation, pipeline))
        except ShoestringError:
            pipeline.clean = False
    pipeline.engine_done = True
    simulation.forget_offers(request)
    if pipeline.clean and outcome.ended != "abandoned":
        for run in pipeline.starts:
            simulation.open_accounts.pop(run.start.account, None)


def with_retries(
    simulation: Simulation, pipeline: PipelineRun, make: Callable[[], Process[Result]]
) -> Process[Result]:
    """A step by a process of its own, and again when that died. Raises StoreError: again and again."""
    for left in reversed(range(MAX_TRIES)):
        try:
            return (yield from simulation.loop.as_process(simulation.skew_s(), make()))
        except (ProcessDied, StoreError) as error:
            simulation.counters.crashes += 1
            pipeline.clean = False
            if not left:
                raise StoreError("the engine tried often enough") from error
        yield simulation.loop.now_s + simulation.dice.uniform(*RETRY_DELAY_S)
    raise AssertionError("the last try returns or raises")


def run_stages(simulation: Simulation, pipeline: PipelineRun) -> Process[None]:
    """Route and run each; an engine tries the route_and_run again. Raises what refuses a stage."""
    for index in range(len(pipeline.request.kind.needs)):
        for left in reversed(range(MAX_TRIES)):
            if simulation.dice.random() < simulation.scenario.faults.abandoned_share:
                return
            ended = yield from route_and_run(simulation, pipeline, index)
            if ended.done:
                break
            if ended.cause in FINAL_CAUSES or not left:
                pipeline.outcome.ended = "stopped" if ended.cause == "money" else "failed"
                return
            yield simulation.loop.now_s + simulation.dice.uniform(*RETRY_DELAY_S)
    pipeline.outcome.ended = "done"


def route_and_run(simulation: Simulation, pipeline: PipelineRun, index: int) -> Process[AttemptEnd]:
    """A router and the stage's pod; what dies with its process may be tried again."""
    decision = yield from with_retries(simulation, pipeline, lambda: route(simulation, pipeline, index))
    try:
        return (
            yield from simulation.loop.as_process(
                simulation.skew_s(), run_attempt(simulation, pipeline, decision)
            )
        )
    except (ProcessDied, StoreError):
        simulation.counters.crashes += 1
        pipeline.clean = False
        return AttemptEnd(False, "lost")
    except LedgerConflict:
        return AttemptEnd(False, "lost")


def new_pipeline_run(simulation: Simulation, request: PipelineRequest) -> PipelineRun:
    """What a person makes of the plan: a budget that is some times what the router expects."""
    asked = question(simulation, request, 0, None, budget_usd=Decimal(MAX_USD - 1))
    ample = choose(asked, simulation.offers(request, asked))
    if ample.choice is None:
        raise Refused(f"no pool can take {request.kind.name}: {ample.refusals[0].sentence}")
    expected_usd = ample.choice.est_usd + sum((later.est_usd for later in ample.plan), Decimal(0))
    expected_s = ample.choice.est_s + sum(later.est_s for later in ample.plan)
    times = request.kind.deadline_factor
    deadline_s = None if times is None else round(times * expected_s, 3)
    budget_usd = (expected_usd * Decimal(str(round(request.budget_factor, 6)))).quantize(MICRO)
    min_usd, fits = oracle(simulation, request, ample, budget_usd, deadline_s)
    month = f"{simulation.loop.moment(request.arrival_s):%Y-%m}"
    return PipelineRun(
        request,
        PipelineOutcome(request.kind.name, month, request.kind.campaign, budget_usd, fits, min_usd),
        deadline_s,
    )


def oracle(
    simulation: Simulation,
    request: PipelineRequest,
    ample: Decision,
    budget_usd: Decimal,
    deadline_s: float | None,
) -> tuple[Decimal, bool]:
    """The least that the pipeline can truly cost on any pools at today's prices, nothing being taken away; and does it fit?

    An elastic stage counts with its least. Formats are free to differ between neighbours, and the cheapest pools need not be the fastest
    ones: it lets in rather too much than too little.
    """
    costs = [
        actual_costs(simulation, request, ample.candidates, stage) for stage in range(len(request.kind.needs))
    ]
    least_micro, least_ms = (sum(int(each[column].min()) for each in costs) for column in (0, 1))
    routers = len(request.kind.needs) + 1
    min_usd = from_microusd(least_micro) + cost_usd(
        overhead_usd_per_hour(simulation.world()), routers * sum(ROUTER_S) / 2
    )
    return min_usd, min_usd <= budget_usd and (deadline_s is None or least_ms <= deadline_s * 1000)


def actual_costs(
    simulation: Simulation, request: PipelineRequest, names: Candidates, stage: int
) -> tuple[np.ndarray, np.ndarray]:
    """Of every offer that can be taken: micro-dollars and milliseconds of the stage's least work."""
    offers = names.offers[stage]
    block = Block(names, stage, np.flatnonzero(offers.objection == NONE))
    name = names.stages[stage]
    times = np.array(
        [
            simulation.bias(name, names.pools[pool]) * request.duration_factors[name]
            for pool in names.pool[block.slots].tolist()
        ]
    )
    prior_us = block.fixed_us() + block.setup_us + offers.least_work_us_by_machine[block.machine]
    ms = block.startup_ms + times * prior_us / 1e3
    return block.price * ms / MS_PER_HOUR + block.fees_microusd(), ms


def reaper(simulation: Simulation) -> Process[None]:
    """Now and then, until nothing is left to do. One that dies comes again."""
    while simulation.pipelines_to_start or simulation.open_accounts:
        yield simulation.loop.now_s + simulation.scenario.reap_every_s
        if any(pipeline.engine_done for pipeline in simulation.open_accounts.values()):
            try:
                yield from simulation.loop.as_process(simulation.skew_s(), reap_once(simulation))
            except (ProcessDied, StoreError):
                simulation.counters.crashes += 1
