"""The questions that simulated route steps ask, and the records of the runs that they belong to."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from shoestring.config.policy import Priority
from shoestring.core.types import STANDARD_CLASS
from shoestring.data.recipe import Recipe
from shoestring.data.run_records import Run, RunRecord
from shoestring.routing.decision import Choice
from shoestring.routing.question import Question
from shoestring.runtime.records.commitments import with_used_hours
from shoestring.runtime.records.overhead import overhead_s
from shoestring.runtime.records.run_setup import new_start
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
    record = RunRecord(
        run_id=run_id,
        recipe=recipe_of(request.kind),
        recipe_sha256="",
        seed=simulation.seed,
        world=simulation.scenario.name,
        world_sha256="",
        created_at=now,
        environment={},
    )
    return Run(record, (new_start(simulation.world(), run_id, number, budget_usd, deadline_s, None),))


RECIPES: dict[Priority, Recipe] = {
    priority: Recipe.model_validate(
        {
            "name": "simulated",
            "priority": priority,
            "source": {"rows": {"path": "rows.csv"}},
            "target": {"column": "y"},
        }
    )
    for priority in ("low", "normal", "high")
}


def recipe_of(kind: PipelineKind) -> Recipe:
    """Return the recipe of a kind of pipeline: its priority counts, nothing else of it."""
    return RECIPES[kind.priority]


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
        "tariffs": book.tariffs,
        "speeds": simulation.scenario.speeds,
        "stockouts": simulation.current_stockouts(now),
        "learned": simulation.learned(request.kind),
        "preferences": simulation.preferences,
        "commitments": with_used_hours(world.store, book.committed),
        "candidate_policy": simulation.scenario.policy.candidate,
        "rollback_reason": rollback.reason if (rollback := simulation.rollback()) else "",
    } | asked
    return Question.model_construct(**fields)


def deadline_left_s(simulation: Simulation, run: Run, stages: int) -> float | None:
    """Return the seconds to the deadline, less the time of the remaining route steps and the exit step;
    None without one.
    """
    left_s = run.deadline_left_s(simulation.world().clock.now())
    return None if left_s is None else max(0.0, left_s - overhead_s(simulation.world(), stages))
