"""A run of which every result is in the cache: its launcher, or its first route step, returns them all."""

from __future__ import annotations

from dataclasses import replace

from shoestring.config.world import World
from shoestring.core.errors import StageFailed
from shoestring.data.run_records import Run
from shoestring.data.storage.import_closure import sources_read_once
from shoestring.routing.decision import Decision
from shoestring.runtime.admission.first_request import RunRequest
from shoestring.runtime.admission.result_keys import StageInputs, StageWork
from shoestring.runtime.admission.stage_request import cached_chain, next_inputs
from shoestring.runtime.records.overhead import WALK, overhead_timer
from shoestring.runtime.route_step.route import begin_run, decide_and_reserve, step_name
from shoestring.runtime.supervisor.run_stage import deliver_cached


def return_all_cached(world: World, run: Run, request: RunRequest) -> bool:
    """Decide about each stage, and return its cached result, as its router and its pod would.

    Returns False, with nothing returned, where a result is missing; also where one vanishes meanwhile: the
    engine then routes each stage again.
    """
    with sources_read_once():
        if not is_all_cached(world, request):
            return False
        with overhead_timer(world, run, WALK):
            return bool(return_each(world, run, request))


def route_all_cached(world: World, request: RunRequest) -> tuple[Decision, ...]:
    """Do `return_all_cached` in the first route step of a run, and return the decisions.

    Empty where a result is missing: the step then routes its own stage. Raises what `begin_run` does.
    """
    if not is_all_cached(world, request):
        return ()
    run = begin_run(world, request)
    with overhead_timer(world, run, step_name(request)):
        return return_each(world, run, request)


def return_each(world: World, run: Run, request: RunRequest) -> tuple[Decision, ...]:
    """Return the decision about each stage, whose result was returned; empty: one vanished."""
    inputs, decisions = StageInputs(), list[Decision]()
    for index in range(len(request.needs)):
        rest = replace(request, needs=request.needs[index:])
        decision, key = decide_and_reserve(world, run, rest, inputs)
        if decision.choice is None or not decision.choice.cached:
            return ()
        try:
            outcome = deliver_cached(world, run, decision, key, world.clock.monotonic_s())
        except StageFailed:
            return ()
        inputs = next_inputs(inputs, outcome)
        decisions.append(decision)
    return tuple(decisions)


def is_all_cached(world: World, request: RunRequest) -> bool:
    """Return whether the store has the result of every stage of a run's chain."""
    work = StageWork(
        request.recipe, request.job.seed, request.run_id, request.needs[0].stage, "", StageInputs()
    )
    return sum(1 for _ in cached_chain(world, work, request.needs)) == len(request.needs)
