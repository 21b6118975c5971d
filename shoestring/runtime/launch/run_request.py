"""The request of a person for a run on this machine, as a request for the admission check."""

from __future__ import annotations

import secrets
from dataclasses import replace
from decimal import Decimal
from getpass import getuser
from typing import get_args

from pydantic import ValidationError

from shoestring.config.engines import Engine
from shoestring.config.policy import Priority
from shoestring.config.world import World
from shoestring.core.errors import UnknownName, UsageError
from shoestring.core.record import validation_message
from shoestring.data.recipe import Recipe
from shoestring.data.recipe_files import find_recipe
from shoestring.data.run_records import open_run
from shoestring.models.run_models import is_prediction
from shoestring.routing.decision import Decision
from shoestring.runtime.admission.admit import admission_decision
from shoestring.runtime.admission.approvals import previous_request
from shoestring.runtime.admission.first_request import RunRequest, recipe_request
from shoestring.runtime.admission.stage_budgets import stage_budgets
from shoestring.runtime.admission.stages import training_needs

PLAN_ID = "plan"
"""The run id in a plan's question: a plan is no run."""


def new_run_id(world: World, name: str) -> str:
    return f"{name}-{world.clock.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def recipe_in_campaign(campaign: str | None, recipe: str | Recipe) -> Recipe:
    """Return the recipe of this name or path, assigned to the campaign if one is given.

    Raises:
        UsageError: the campaign's name is not valid.
        UnknownName, RecipeError: there is no such recipe, or it is not valid.
    """
    found = recipe if isinstance(recipe, Recipe) else find_recipe(recipe)
    try:
        return (
            found if campaign is None else Recipe.model_validate(found.model_dump() | {"campaign": campaign})
        )
    except ValidationError as error:
        raise UsageError(validation_message(error)) from None


def new_request(
    world: World, recipe: Recipe, budget_usd: Decimal | None, deadline_s: float | None, seed: int | None
) -> RunRequest:
    """Return the request of a new run. What is None comes from the recipe."""
    run_id = new_run_id(world, recipe.name)
    request = recipe_request(run_id, recipe, training_needs(), budget_usd, deadline_s, seed)
    return request.with_terms(owner=getuser())


def resumed_request(
    world: World, run_id: str, budget_usd: Decimal | None, deadline_s: float | None, seed: int | None
) -> RunRequest:
    """Return the request of a resumed run.

    It keeps its recipe and seed; it also keeps its budget and deadline unless they are given again.

    Raises:
        UsageError: another seed is given, the run predicts new rows, or there is no such run in this store.
    """
    try:
        run = open_run(world.store, run_id)
    except UnknownName as error:
        raise UsageError(
            f"{error}; a resumed run keeps its store: name the one in which it began (--world or --store)"
        ) from None
    if is_prediction(world.store, run_id):
        model = run.record.recipe.model if run.record.recipe else ""
        raise UsageError(
            f"{run_id} is a run of shoestring-predict, which a cluster runs again; on this machine: "
            f"`shoestring predict {model} DATA`"
        )
    if run.record.command is not None:
        raise UsageError(f"{run_id} is a run of a command: `shoestring exec --resume {run_id}`")
    if seed not in (None, run.record.job.seed):
        raise UsageError(
            f"{run_id} was started with seed {run.record.job.seed}: a resumed run keeps its seed"
        )
    last_budget_usd, last_deadline_s = previous_request(world, run)
    request = RunRequest(run_id, run.record.job, run.record.task, training_needs())
    return request.with_terms(
        budget_usd=last_budget_usd if budget_usd is None else budget_usd,
        deadline_s=deadline_s or last_deadline_s,
    )


def with_priority(request: RunRequest, priority: str | None) -> RunRequest:
    """Return the request with this priority. Raises UsageError."""
    if priority not in (None, *get_args(Priority)):
        raise UsageError(f"priority {priority}: choose one of {', '.join(get_args(Priority))}")
    return (
        request
        if priority is None
        else replace(request, task=request.recipe.model_copy(update={"priority": priority})).with_terms(
            priority=priority
        )
    )


def planned_engine(name: str | None, *, in_cluster: bool) -> Engine:
    """Return the engine of this name; None: Argo in a cluster's world, else this machine's. Raises
    UsageError.
    """
    engines: dict[str, Engine] = {engine: engine for engine in get_args(Engine)}
    if name is None:
        return "argo" if in_cluster else "local"
    if name not in engines:
        raise UsageError(f"engine {name}: choose one of {', '.join(engines)}")
    return engines[name]


def planned_decision(
    world: World, recipe: Recipe, budget_usd: Decimal | None, deadline_s: float | None, engine: Engine
) -> Decision:
    """Return the decision with which a run on an engine would begin. Starts and stores nothing.

    Raises:
        Refused: the budget is above what one run may have, or its campaign is not open.
        RecipeError: the recipe names a stage that does not exist.
    """
    request = new_request(world, recipe, budget_usd, deadline_s, seed=None)
    request = replace(request, run_id=PLAN_ID, engine=engine)
    return admission_decision(world, request, Decimal(0), stage_budgets(world, request.job))
