"""What a command line asks for, made into a wish."""

from __future__ import annotations

import secrets
from decimal import Decimal
from typing import Any

from pydantic import ValidationError

from shoestring.config.world import World
from shoestring.core.errors import UsageError
from shoestring.core.money import budget as budget_in
from shoestring.core.types import validation_message
from shoestring.data.recipe import Recipe, find_recipe
from shoestring.data.run_records import open_run
from shoestring.runtime.admission.admit import Wish
from shoestring.runtime.admission.approvals import asked_before


def budget_of(text: str | None, default_usd: Decimal, option: str = "--budget") -> Decimal:
    """Raises UsageError for what is not an amount above zero."""
    try:
        return default_usd if text is None else budget_in(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def new_run_id(world: World, recipe: Recipe) -> str:
    return f"{recipe.name}-{world.clock.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def chain() -> Any:
    """The stages' NEEDs, from the pipeline itself. Raises UsageError without kfp."""
    try:
        from pipelines.train import CHAIN
    except ImportError as error:
        raise UsageError(
            f"running needs kfp and torch ({error.name} is missing): pip install 'shoestring[kfp,train]'"
        ) from None
    return CHAIN


def recipe_in(campaign: str | None, name_or_path: str) -> Recipe:
    """A recipe, in the campaign that the command line names. Raises UsageError for what cannot be a campaign's name."""
    found = find_recipe(name_or_path)
    try:
        return (
            found if campaign is None else Recipe.model_validate(found.model_dump() | {"campaign": campaign})
        )
    except ValidationError as error:
        raise UsageError(f"--{validation_message(error)}") from None


def wish_for(
    world: World,
    recipe: str,
    resume: str | None,
    budget: str | None,
    deadline: float | None,
    seed: int | None,
    campaign: str | None,
) -> Wish:
    """What the command line asks for; a resumed run keeps its recipe and seed, and its budget and deadline unless told otherwise."""
    if resume is None:
        found = recipe_in(campaign, recipe)
        return Wish(
            run_id=new_run_id(world, found),
            recipe=found,
            needs=chain(),
            budget_usd=budget_of(budget, found.budget_usd),
            deadline_s=deadline or found.deadline_s,
            seed=found.seed if seed is None else seed,
        )
    if campaign is not None:
        raise UsageError(
            f"{resume} was begun with its recipe, and keeps the campaign in it: --campaign is for a new run"
        )
    run = open_run(world.store, resume)
    if seed not in (None, run.record.seed):
        raise UsageError(f"{resume} was begun with seed {run.record.seed}: a resumed run keeps it")
    before_usd, allowed_s = asked_before(world, run)
    return Wish(
        run_id=resume,
        recipe=run.record.recipe,
        needs=chain(),
        budget_usd=budget_of(budget, before_usd),
        deadline_s=deadline or allowed_s,
        seed=run.record.seed,
    )
