"""The questions that simulated route steps ask, and the records of the runs that they belong to."""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from typing import Any

from shoestring.config.retention import held_tariffs
from shoestring.core.types import STANDARD_CLASS
from shoestring.data.job import job_of_recipe
from shoestring.data.recipe import Recipe
from shoestring.data.run_records import Run, RunRecord
from shoestring.routing.decision import Choice
from shoestring.routing.question import Question
from shoestring.runtime.records.commitments import with_used_hours
from shoestring.runtime.records.overhead import overhead_usd
from shoestring.runtime.records.run_setup import StartTerms, elastic_stage, new_start
from shoestring.simulation.scenario import PipelineKind
from shoestring.simulation.simulated_world import Simulation
from shoestring.simulation.workload import PipelineRequest


def new_run(
    simulation: Simulation,
    request: PipelineRequest,
    number: int,
    budget_usd: Decimal,
    deadline_s: float | None,
) -> Run:
    """Return the record of a start, as admission writes it."""
    now, run_id = simulation.world().clock.now(), request.run_id
    recipe = recipe_of(request.kind)
    record = RunRecord(
        run_id=run_id,
        job=job_of_recipe(recipe, seed=simulation.seed),
        recipe=recipe,
        world=simulation.scenario.name,
        world_sha256="",
        created_at=now,
        environment={},
    )
    terms = StartTerms(
        budget_usd=budget_usd,
        deadline_s=deadline_s,
        launcher=None,
        engine=simulation.engine,
        overhead_usd=overhead_at_start(simulation, request.kind),
        elastic_stage=elastic_stage(request.kind.needs),
    )
    return Run(record, (new_start(simulation.world(), run_id, number, terms),))


def overhead_at_start(simulation: Simulation, kind: PipelineKind) -> Decimal:
    """Return what deciding and settling may cost: a router for each stage, the exit step, and a second pod
    that gets no attempt.
    """
    return overhead_usd(simulation.world(), len(kind.needs) + 1, 0, simulation.engine)


@cache
def recipe_of(kind: PipelineKind) -> Recipe:
    """Return the recipe of a kind of pipeline: its priority and the kind of its deadline count, nothing else
    of it.
    """
    return Recipe.model_validate(
        {
            "name": "simulated",
            "priority": kind.priority,
            "deadline_kind": kind.deadline_kind,
            "source": {"rows": {"path": "rows.csv"}},
            "target": {"column": "y"},
        }
    )


def question(
    simulation: Simulation, request: PipelineRequest, index: int, upstream: Choice | None, **asked: object
) -> Question:
    """Return the question for the stage with this index and the stages after it.

    `upstream` is the choice of the last stage that wrote a data set. `asked` holds the fields of Question
    that depend on ledger and clock.
    """
    world, needs = simulation.world(), request.kind.needs
    book, writer = (
        world.prices.book(),
        next((need for need in reversed(needs[:index]) if need.writes_bytes_per_row), None),
    )
    now = world.clock.now()
    # All parts are validated records, so the question is not validated again.
    fields: dict[str, Any] = {
        "run_id": request.run_id,
        "stage": needs[index].stage,
        "seed": simulation.seed,
        "asked_at": now,
        "needs": needs[index:],
        "rows": request.rows,
        "row_bytes": writer.writes_bytes_per_row if writer else request.kind.row_bytes,
        "reads_format": upstream.format if upstream else None,
        "reads_storage_class": upstream.storage_class if upstream else STANDARD_CLASS,
        "data_region": book.tariffs.store_region,
        "pools": world.cluster.pools(),
        "quotes": book.quotes,
        "rejected_prices": book.rejected,
        "tariffs": held_tariffs(book.tariffs, simulation.scenario.policy.retention),
        "speeds": simulation.scenario.speeds,
        "stockouts": simulation.current_stockouts(now),
        "learned": simulation.learned(request.kind),
        "preferences": simulation.preferences,
        "commitments": with_used_hours(world.store, book.committed),
        "candidate_policy": simulation.scenario.policy.candidate,
        "rollback_reason": rollback.reason if (rollback := simulation.rollback()) else "",
    } | asked
    return Question.model_construct(**fields)


def time_left(
    simulation: Simulation, stages: int, left_s: float | None, *, is_start: bool
) -> dict[str, object]:
    """Return the fields of a question that tell how much time is left, with `stages` steps of the engine."""
    times = simulation.engine
    engine_s = times.step_s * stages if is_start else times.left_s(stages)
    return {
        "deadline_left_s": None if left_s is None else max(0.0, left_s - engine_s),
        "engine": times,
        "engine_s": engine_s,
    }
