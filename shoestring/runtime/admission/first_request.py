"""The request for a run, and the stage that admission decides about: the first one that is not cached."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from itertools import takewhile
from typing import Any

from shoestring.config.engines import Engine, EngineTimes
from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.attempt_id import AttemptId
from shoestring.core.interfaces import Store
from shoestring.core.text import join_names
from shoestring.core.types import Need
from shoestring.data.formats.volume_probe import time_requests
from shoestring.data.job import Job, OfTask, Task, job_of_recipe
from shoestring.data.recipe import Recipe
from shoestring.routing.dag import build_dag
from shoestring.routing.loop_items import LoopItem
from shoestring.runtime.admission.data_look import look_at_data
from shoestring.runtime.admission.result_keys import StageWork
from shoestring.runtime.admission.stage_request import StageInputs, StageRequest, cached_chain
from shoestring.runtime.admission.stages import is_builtin
from shoestring.runtime.records.engine_times import engine_times
from shoestring.runtime.records.overhead import assumed_pod_s, overhead_usd
from shoestring.stages.work import Origin

# Between admission and the first router, the local engine compiles the pipeline and starts. On a busy laptop
# that takes up to this long. Elsewhere the first router admits the run.
ENGINE_START_S = 5.0


@dataclass(frozen=True, slots=True)
class RunRequest(OfTask):
    """A person's request for a run. `job` holds the terms of this start.

    `job_id` is the engine's own id for the run, where it has one. `waited_s` is how long the run has waited
    to start. `metered` is false for an external component, which no supervisor meters. `target_notes` is
    what will be predicted; None: nobody has looked at the data yet. `engine` is what will run it.
    `may_return_all`: the engine starts no more steps where this one has returned the results of all stages.
    `item`: the one of the loops around the first stage; None outside of loops.
    """

    run_id: str
    job: Job
    task: Task
    needs: tuple[Need, ...]
    origin: Origin | None = None
    metered: bool = True
    job_id: str = ""
    waited_s: float = 0.0
    target_notes: tuple[str, ...] | None = None
    engine: Engine = "local"
    may_return_all: bool = False
    item: LoopItem | None = None

    @property
    def runs_in_launcher(self) -> bool:
        """True if its launcher is its supervisor: no engine starts pods for it."""
        return self.command is not None and self.engine == "local"

    @property
    def budget_usd(self) -> Decimal:
        return self.job.budget_usd

    @property
    def deadline_s(self) -> float | None:
        return self.job.deadline_s

    def with_terms(self, **changed: Any) -> RunRequest:
        """Return the request with other terms, by the names of a job's fields."""
        return replace(self, job=self.job.model_copy(update=changed))


def recipe_request(
    run_id: str,
    recipe: Recipe,
    needs: tuple[Need, ...],
    budget_usd: Decimal | None,
    deadline_s: float | None,
    seed: int | None,
    **more: Any,
) -> RunRequest:
    """Return the request for a run of a recipe. What is None comes from the recipe; `more`: other fields."""
    return RunRequest(run_id, job_of_recipe(recipe, budget_usd, deadline_s, seed), recipe, needs, **more)


def after_waiting(request: RunRequest, waited_s: float) -> RunRequest:
    """Return the request after a wait, with that much less time to the deadline."""
    left_s = None if request.deadline_s is None else max(1.0, request.deadline_s - waited_s)
    return replace(request, waited_s=waited_s).with_terms(deadline_s=left_s)


def next_attempt(store: Store, run_id: str, stage: str, reserved: Collection[str] = ()) -> int:
    """Return the number of a stage's next attempt: one more than every decision's, and every name in
    `reserved`.
    """
    decided = (
        key.rpartition("/")[2].removesuffix(".json")
        for key in store.list(store_layout.decisions(run_id, stage))
    )
    attempts = (AttemptId.parse(run_id, name) for name in (*decided, *reserved))
    return 1 + max((attempt.number for attempt in attempts if attempt.stage == stage), default=0)


def stages_to_pay(world: World, request: RunRequest) -> tuple[tuple[Need, ...], StageInputs]:
    """Return the stages from the first one that is not cached, and what that one reads.

    Results are looked up as long as each stage reads the one before it, and none after a branch.
    The next stage has to be built-in: only its own router knows the code of an author's stage.
    """
    needs, inputs = request.needs, StageInputs()
    if request.origin is None and request.metered and not request.command:
        rests = (request.needs[index:] for index in range(len(request.needs) - 1))
        chain = (rest[0] for rest in takewhile(is_only_successor, rests))
        first = StageWork(request.recipe, request.job.seed, request.run_id, needs[0].stage, "", inputs)
        for _, _, inputs in cached_chain(world, first, chain):  # noqa: B007  the last one is returned
            needs = needs[1:]
    return needs, inputs


def is_only_successor(needs: tuple[Need, ...]) -> bool:
    """Return whether the second stage is built-in, and the only one that can begin after the first."""
    return is_builtin(needs[1].stage) and build_dag(needs).not_after(1) == [0]


def times_of_engine(
    world: World, engine: Engine, until: datetime | None = None, request_s: float = 0.0
) -> tuple[EngineTimes, tuple[str, ...]]:
    """Return what an engine takes between stages, measured until a moment (None: now), and notes.

    `request_s`: of a request to the store, for the pods without a stage while few were measured.
    """
    return engine_times(world.store, engine, assumed_pod_s(world, request_s), until or world.clock.now())


def overhead_at_start(world: World, request: RunRequest, paid_stages: int, engine: EngineTimes) -> Decimal:
    """Return what deciding and settling cost in a whole run: a router for each stage, a pod for each cached
    stage, the exit step, and a second pod that gets no attempt.
    """
    if request.runs_in_launcher:
        return Decimal(0)
    steps = sum(need.items for need in request.needs) + 1
    return overhead_usd(world, steps, len(request.needs) - paid_stages, engine)


def stage_request_at_start(
    world: World, request: RunRequest, spent_usd: Decimal, stage_budgets: dict[str, Decimal]
) -> StageRequest:
    """Return the request for the first stage that is not cached, with overhead and engine time held back."""
    needs, inputs = stages_to_pay(world, request)
    looked = request.target_notes
    if looked is None:
        # A plan starts nothing, and stores no result.
        page = look_at_data(world, request.task, request.needs, keeps_page=False)
        looked = page.notes if page else ()
    cached = [need.stage for need in request.needs[: len(request.needs) - len(needs)]]
    _, request_s = time_requests(world.store, world.clock)
    engine, notes = times_of_engine(world, request.engine, request_s=request_s)
    starts_s = ENGINE_START_S if request.engine == "local" else 0.0
    engine_s = starts_s + engine.step_s * build_dag(request.needs).depth
    return StageRequest(
        run_id=request.run_id,
        task=request.task,
        seed=request.job.seed,
        needs=needs,
        inputs=inputs,
        attempt=next_attempt(world.store, request.run_id, needs[0].stage),
        budget_usd=request.budget_usd,
        spent_usd=spent_usd,
        held_usd=overhead_at_start(world, request, len(needs), engine),
        stage_budgets=stage_budgets,
        deadline_left_s=request.deadline_s,
        deadline_used_s=0.0,
        engine=engine,
        engine_s=0.0 if request.runs_in_launcher else engine_s,
        began_at=world.clock.now(),
        notes=(
            *looked,
            *([f"nothing is paid for {join_names(cached)}: the results are cached"] if cached else []),
            *notes,
        ),
        origin=request.origin,
        metered=request.metered,
        item_sha256=request.item.sha256 if request.item else "",
    )
