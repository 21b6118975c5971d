"""The command line of a run, parsed into a request for the admission check."""

from __future__ import annotations

import secrets
from dataclasses import replace
from decimal import Decimal
from typing import Any, get_args

from pydantic import ValidationError

from shoestring.config.policy import Priority
from shoestring.config.world import World
from shoestring.core.errors import UsageError
from shoestring.core.money import budget as parse_budget
from shoestring.core.record import validation_message
from shoestring.data.recipe import Recipe, find_recipe
from shoestring.data.run_records import open_run
from shoestring.runtime.admission.admit import RunRequest
from shoestring.runtime.admission.approvals import previous_request


def budget_from_option(text: str | None, default_usd: Decimal, option: str = "--budget") -> Decimal:
    """Return the amount in dollars. Raises UsageError unless it is above zero."""
    try:
        return default_usd if text is None else parse_budget(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def new_run_id(world: World, recipe: Recipe) -> str:
    return f"{recipe.name}-{world.clock.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def pipeline_needs() -> Any:
    """Return the NEEDs of the stages, from the pipeline itself. Raises UsageError without kfp."""
    try:
        from shoestring.pipelines.train import CHAIN
    except ImportError as error:
        raise UsageError(
            f"running needs kfp and torch ({error.name} is missing): pip install 'shoestring[kfp,train]'"
        ) from None
    return CHAIN


def recipe_in_campaign(campaign: str | None, name_or_path: str) -> Recipe:
    """Return the recipe, assigned to the campaign of the command line. Raises UsageError for an invalid
    campaign name.
    """
    found = find_recipe(name_or_path)
    try:
        return (
            found if campaign is None else Recipe.model_validate(found.model_dump() | {"campaign": campaign})
        )
    except ValidationError as error:
        raise UsageError(f"--{validation_message(error)}") from None


def run_request(
    world: World,
    recipe: str,
    resume: str | None,
    budget: str | None,
    deadline: float | None,
    seed: int | None,
    campaign: str | None,
) -> RunRequest:
    """Return what the command line requests.

    A resumed run keeps its recipe and seed; it also keeps its budget and deadline unless they are given
    again.

    Raises:
        UsageError, UnknownName, RecipeError.
    """
    if resume is None:
        found = recipe_in_campaign(campaign, recipe)
        return RunRequest(
            run_id=new_run_id(world, found),
            recipe=found,
            needs=pipeline_needs(),
            budget_usd=budget_from_option(budget, found.budget_usd),
            deadline_s=deadline or found.deadline_s,
            seed=found.seed if seed is None else seed,
        )
    if campaign is not None:
        raise UsageError(
            f"{resume} was started with a recipe and keeps the campaign in it: "
            "--campaign applies to new runs only"
        )
    return resumed_request(world, resume, budget, deadline, seed)


def resumed_request(
    world: World, resume: str, budget: str | None, deadline: float | None, seed: int | None
) -> RunRequest:
    """Return the request of a resumed run. Raises UsageError, UnknownName."""
    run = open_run(world.store, resume)
    if seed not in (None, run.record.seed):
        raise UsageError(f"{resume} was started with seed {run.record.seed}: a resumed run keeps its seed")
    last_budget_usd, last_deadline_s = previous_request(world, run)
    return RunRequest(
        run_id=resume,
        recipe=run.record.recipe,
        needs=pipeline_needs(),
        budget_usd=budget_from_option(budget, last_budget_usd),
        deadline_s=deadline or last_deadline_s,
        seed=run.record.seed,
    )


def with_priority(request: RunRequest, priority: str | None) -> RunRequest:
    """Return the request with this priority. Raises UsageError."""
    if priority not in (None, *get_args(Priority)):
        raise UsageError(f"--priority {priority}: choose one of {', '.join(get_args(Priority))}")
    return (
        request
        if priority is None
        else replace(request, recipe=request.recipe.model_copy(update={"priority": priority}))
    )
