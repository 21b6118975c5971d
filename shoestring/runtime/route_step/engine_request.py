"""The request for a run, from the arguments that an engine passes to its route step."""

from __future__ import annotations

from decimal import Decimal

from shoestring.core.errors import RecipeError, UsageError
from shoestring.core.money import budget
from shoestring.core.record import parse_argument
from shoestring.data.recipe import Recipe
from shoestring.runtime.admission.first_request import RunRequest, recipe_request
from shoestring.runtime.admission.stage_request import RemainingStages


def parse_run_request(
    needs: str, run_id: str, recipe: str, budget_usd: str, deadline_s: float, seed: int, job_id: str
) -> RunRequest:
    """Return the request that an engine passed to `route`. Raises UsageError, RecipeError."""
    stages = parse_argument("the compiled pipeline's list of stages", needs, RemainingStages)
    if not stages.needs:
        raise RecipeError(
            "route was given no stages: pass it the NEED of the stage that it routes, and of those after it"
        )
    if stages.job is not None and stages.command is not None:
        if recipe:
            raise UsageError("this pipeline runs commands and reads no recipe: leave `recipe` empty")
        request = RunRequest(
            run_id,
            stages.job,
            stages.command,
            stages.needs,
            metered=stages.metered,
            job_id=job_id,
            engine=stages.engine or "kubeflow",
        )
        return request.with_terms(
            **({"budget_usd": parse_budget(budget_usd)} if budget_usd else {}),
            **({"deadline_s": deadline_s} if deadline_s else {}),
            **({"seed": seed} if seed >= 0 else {}),
        )
    return recipe_request(
        run_id,
        parse_argument("the recipe", recipe, Recipe),
        stages.needs,
        parse_budget(budget_usd) if budget_usd else None,
        deadline_s,
        seed if seed >= 0 else None,
        origin=stages.origin,
        metered=stages.metered,
        job_id=job_id,
        engine=stages.engine or "kubeflow",
        may_return_all=stages.may_return_all,
    )


def parse_budget(text: str) -> Decimal:
    """Return the budget in dollars. Raises UsageError."""
    try:
        return budget(text)
    except ValueError as error:
        raise UsageError(f"budget_usd: {error}") from None
