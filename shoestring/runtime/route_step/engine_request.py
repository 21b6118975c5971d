"""The request for a run, from the arguments that an engine passes to its route step."""

from __future__ import annotations

import os
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from shoestring.core.errors import RecipeError, UsageError
from shoestring.core.money import budget
from shoestring.core.pod_ref import NODE_VARIABLE
from shoestring.core.record import parse_argument
from shoestring.core.types import Need
from shoestring.data.recipe import Recipe
from shoestring.routing.loop_items import LoopItem, loop_item, needs_of_item
from shoestring.runtime.admission.first_request import RunRequest, recipe_request
from shoestring.runtime.admission.stage_request import RemainingStages


def parse_run_request(
    needs: str,
    run_id: str,
    recipe: str,
    budget_usd: str,
    deadline_s: float,
    seed: int,
    job_id: str,
    items: Sequence[Any] | None = None,
) -> RunRequest:
    """Return the request that an engine passed to `route`. Raises UsageError, RecipeError.

    `items`: the list of the innermost loop around the stage, where the run has made it.
    """
    stages = parse_argument("the compiled pipeline's list of stages", needs, RemainingStages)
    needs_left, item = routed_needs(stages, items)
    more: dict[str, Any] = {"metered": stages.metered, "job_id": job_id, "item": item}
    more["engine"] = stages.engine or "kubeflow"
    if stages.job is not None and stages.command is not None:
        if recipe:
            raise UsageError("this pipeline runs commands and reads no recipe: leave `recipe` empty")
        request = RunRequest(run_id, stages.job, stages.command, needs_left, **more)
        return request.with_terms(
            **({"budget_usd": parse_budget(budget_usd)} if budget_usd else {}),
            **({"deadline_s": deadline_s} if deadline_s else {}),
            **({"seed": seed} if seed >= 0 else {}),
        )
    return recipe_request(
        run_id,
        parse_argument("the recipe", recipe, Recipe),
        needs_left,
        parse_budget(budget_usd) if budget_usd else None,
        deadline_s,
        seed if seed >= 0 else None,
        origin=stages.origin,
        may_return_all=stages.may_return_all,
        **more,
    )


def routed_needs(
    stages: RemainingStages, items: Sequence[Any] | None
) -> tuple[tuple[Need, ...], LoopItem | None]:
    """Return the stages that a router plans, and the item that it routes; None outside of loops. Raises
    RecipeError, UsageError.
    """
    if not stages.needs:
        raise RecipeError(
            "route was given no stages: pass it the NEED of the stage that it routes, and of those after it"
        )
    if not stages.loops:
        return stages.needs, None
    item = loop_item(stages.needs[0], stages.loops, items, os.environ.get(NODE_VARIABLE, ""))
    return needs_of_item(stages.needs, item), item


def parse_budget(text: str) -> Decimal:
    """Return the budget in dollars. Raises UsageError."""
    try:
        return budget(text)
    except ValueError as error:
        raise UsageError(f"budget_usd: {error}") from None
