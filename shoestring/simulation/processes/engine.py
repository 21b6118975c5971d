"""Run one pipeline from request to end, as an engine does; and an oracle that knows all actual durations."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import numpy as np

from shoestring.config.engines import PLACE_SHARE
from shoestring.core.errors import BudgetExceeded, LedgerConflict, Refused, ShoestringError, StoreError
from shoestring.core.money import MAX_USD, MICRO, from_microusd
from shoestring.core.receipt import Cause
from shoestring.routing.candidates import MS_PER_HOUR, NONE, Candidates
from shoestring.routing.decide import choose
from shoestring.routing.decision import Decision
from shoestring.routing.offers.offer_costs import OfferBlock
from shoestring.runtime.records.overhead import overhead_usd_per_hour
from shoestring.simulation.attempt.attempt_end import AttemptEnd
from shoestring.simulation.attempt.stage_attempt import simulate_attempt
from shoestring.simulation.event_loop import Process, ProcessDied, Result
from shoestring.simulation.processes.admission import admit_pipeline
from shoestring.simulation.processes.exit_step import reap_once, run_exit_step
from shoestring.simulation.processes.overhead import ROUTE_STEP_S, engine_wait
from shoestring.simulation.processes.route_step import route_stage
from shoestring.simulation.questions import question
from shoestring.simulation.results import Ending, PipelineOutcome
from shoestring.simulation.simulated_world import PipelineRun, Simulation
from shoestring.simulation.workload import PipelineRequest
from shoestring.spending.ends import FINAL_CAUSES
from shoestring.spending.meter import cost_usd

MAX_TRIES = 3
"""How often an engine tries a step."""

ENDINGS: dict[Cause, Ending] = {"money": "stopped", "guardrail": "guardrail"}
"""How a pipeline ends, by the cause of its last attempt; "failed" for every other cause."""

RETRY_DELAY_S = (5.0, 60.0)
"""Shortest and longest delay in seconds between two tries."""


def run_pipeline(simulation: Simulation, request: PipelineRequest) -> Process[None]:
    """Plan a pipeline, set its budget, and run it until the exit step, or until its engine abandons it."""
    pipeline = new_pipeline_run(simulation, request)
    simulation.pipeline_runs.append(pipeline)
    simulation.pipelines_to_start -= 1
    outcome = pipeline.outcome
    try:
        yield from with_retries(simulation, pipeline, lambda: admit_pipeline(simulation, pipeline))
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
            yield from with_retries(simulation, pipeline, lambda: run_exit_step(simulation, pipeline))
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
    """Run a step as a process of its own, and again if that dies. Raises StoreError after MAX_TRIES."""
    for left in reversed(range(MAX_TRIES)):
        try:
            return (yield from simulation.loop.run_inline(simulation.skew_s(), make()))
        except (ProcessDied, StoreError) as error:
            simulation.counters.crashes += 1
            pipeline.clean = False
            if not left:
                raise StoreError("the engine made its last try") from error
        yield simulation.loop.now_s + simulation.rng.uniform(*RETRY_DELAY_S)
    raise AssertionError("the last try returns or raises")


def run_stages(simulation: Simulation, pipeline: PipelineRun) -> Process[None]:
    """Route and run each stage, with retries by the engine. Raises what refuses a stage."""
    for index in range(len(pipeline.request.kind.needs)):
        for left in reversed(range(MAX_TRIES)):
            if simulation.rng.random() < simulation.scenario.faults.abandoned_share:
                return
            ended = yield from route_and_run(simulation, pipeline, index)
            if ended.done:
                break
            if ended.cause in FINAL_CAUSES or not left:
                pipeline.outcome.ended = ENDINGS.get(ended.cause, "failed")
                return
            yield simulation.loop.now_s + simulation.rng.uniform(*RETRY_DELAY_S)
    pipeline.outcome.ended = "done"


def route_and_run(simulation: Simulation, pipeline: PipelineRun, index: int) -> Process[AttemptEnd]:
    """Route one stage and run its pod.

    An attempt that dies with its process ends as "lost" and may be tried again.
    """
    decision = yield from with_retries(simulation, pipeline, lambda: route_stage(simulation, pipeline, index))
    yield from engine_wait(simulation, PLACE_SHARE)
    try:
        return (
            yield from simulation.loop.run_inline(
                simulation.skew_s(), simulate_attempt(simulation, pipeline, decision)
            )
        )
    except (ProcessDied, StoreError):
        simulation.counters.crashes += 1
        pipeline.clean = False
        return AttemptEnd(False, "lost")
    except LedgerConflict:
        return AttemptEnd(False, "lost")


def new_pipeline_run(simulation: Simulation, request: PipelineRequest) -> PipelineRun:
    """Plan a pipeline without a budget limit, then set budget and deadline as multiples of the estimates.

    The estimates are those of the live policy, at prices without commitments.

    Raises:
        Refused: no pool can run one of the stages.
    """
    asked = question(
        simulation, request, 0, None, budget_usd=Decimal(MAX_USD - 1), commitments=(), candidate_policy=None
    )
    unlimited = choose(asked, simulation.offers(request, asked))
    if unlimited.choice is None:
        raise Refused(f"no pool can run {request.kind.name}: {unlimited.refusals[0].sentence}")
    expected_usd = unlimited.choice.est_usd + sum((later.est_usd for later in unlimited.plan), Decimal(0))
    expected_s = unlimited.choice.est_s + sum(later.est_s for later in unlimited.plan)
    factor = request.kind.deadline_factor
    deadline_s = None if factor is None else round(factor * expected_s, 3)
    budget_usd = (expected_usd * Decimal(str(round(request.budget_factor, 6)))).quantize(MICRO)
    min_usd, fits = oracle(simulation, request, unlimited, budget_usd, deadline_s)
    month = f"{simulation.loop.moment(request.arrival_s):%Y-%m}"
    return PipelineRun(
        request,
        PipelineOutcome(request.kind.name, month, request.kind.campaign, budget_usd, fits, min_usd),
        deadline_s,
    )


def oracle(
    simulation: Simulation,
    request: PipelineRequest,
    unlimited: Decision,
    budget_usd: Decimal,
    deadline_s: float | None,
) -> tuple[Decimal, bool]:
    """Return the minimum actual cost of the pipeline on any pools, and whether it fits budget and deadline.

    It assumes current prices and no preemptions. An elastic stage counts with its minimum of samples. The
    oracle is optimistic: it ignores that formats must match between stages, and takes minimum cost and
    minimum time from different pools.
    """
    costs = [
        actual_costs(simulation, request, unlimited.candidates, stage)
        for stage in range(len(request.kind.needs))
    ]
    min_micro, min_ms = (sum(int(each[column].min()) for each in costs) for column in (0, 1))
    overhead_pods = len(request.kind.needs) + 1
    min_usd = from_microusd(min_micro) + cost_usd(
        overhead_usd_per_hour(simulation.world()), overhead_pods * sum(ROUTE_STEP_S) / 2
    )
    return min_usd, min_usd <= budget_usd and (deadline_s is None or min_ms <= deadline_s * 1000)


def actual_costs(
    simulation: Simulation, request: PipelineRequest, candidates: Candidates, stage: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return micro-dollars and milliseconds of the stage's minimum work, for every usable offer."""
    offers = candidates.offers[stage]
    block = OfferBlock(candidates, stage, np.flatnonzero(offers.exclusion == NONE))
    name = candidates.stages[stage]
    factors = np.array(
        [
            simulation.bias(name, candidates.pools[pool]) * request.duration_factors[name]
            for pool in candidates.pool[block.targets].tolist()
        ]
    )
    prior_us = block.fixed_us() + block.setup_us + offers.min_work_us_by_machine[block.machine]
    ms = block.startup_ms + factors * prior_us / 1e3
    return block.usd_per_hour_micro * ms / MS_PER_HOUR + block.fees_microusd(), ms


def reaper(simulation: Simulation) -> Process[None]:
    """Run the reaper periodically until no pipeline is left. If it dies, it runs again."""
    while simulation.pipelines_to_start or simulation.open_accounts:
        yield simulation.loop.now_s + simulation.scenario.reap_every_s
        if any(pipeline.engine_done for pipeline in simulation.open_accounts.values()):
            try:
                yield from simulation.loop.run_inline(simulation.skew_s(), reap_once(simulation))
            except (ProcessDied, StoreError):
                simulation.counters.crashes += 1
