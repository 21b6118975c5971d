"""What a pod does first and last. A component's body, an Argo template and `shoestring stage` each make one of these three calls.

A pod is paid for from its first import on, so each call imports what it alone needs.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, TypeVar

from pydantic import ValidationError

from shoestring.core.errors import RecipeError, UsageError
from shoestring.core.money import budget
from shoestring.core.record import validation_message
from shoestring.data.recipe import Recipe
from shoestring.runtime.admission.admit import RunRequest
from shoestring.runtime.admission.build_question import RemainingStages, StageInputs
from shoestring.runtime.open_world import open_world
from shoestring.runtime.route_step.route import route as route_stage
from shoestring.stages.work import Origin

Argument = TypeVar("Argument", Recipe, RemainingStages, Origin)


def parse_argument(what: str, text: str, noun: type[Argument]) -> Argument:
    """A noun that an engine hands on as text. Raises RecipeError."""
    try:
        return noun.model_validate_json(text)
    except ValidationError as error:
        raise RecipeError(f"{what}, as JSON: {validation_message(error)}") from None


def parse_budget(text: str) -> Decimal:
    """Raises UsageError."""
    try:
        return budget(text)
    except ValueError as error:
        raise UsageError(f"budget_usd: {error}") from None


def route(
    needs: str,
    world: str,
    run_id: str,
    recipe: str,
    budget_usd: str,
    deadline_s: float,
    seed: int,
    upstream: str,
    also: str,
    decision_path: str,
    page_path: str,
    job_id: str = "",
) -> dict[str, Any]:
    """Decide where the first stage of `needs` (JSON, this stage and those after it) runs, and reserve its P95.

    `upstream` is the key of the manifest that the stage reads, `also` of whatever else it reads; empty for none. `recipe` is JSON.
    `budget_usd` empty, `deadline_s` 0 and a `seed` below 0 mean the recipe's own. `job_id` is what Kubeflow calls the run.
    Returns the values for the stage's pod.

    Raises:
        UsageError: `budget_usd` is no amount above zero, or `run_id` cannot be a run's id.
        RecipeError: `recipe` or `needs` is not what it should be.
        Refused: nothing fits; the decision with its sentences is in the store all the same.
    """
    opened = open_world(world)
    parsed, stages = parse_argument("the recipe", recipe, Recipe), parse_argument("the list of stages", needs, RemainingStages)
    wish = RunRequest(
        run_id=run_id,
        recipe=parsed,
        needs=stages.needs,
        budget_usd=parse_budget(budget_usd) if budget_usd else parsed.budget_usd,
        deadline_s=deadline_s or parsed.deadline_s,
        seed=seed if seed >= 0 else parsed.seed,
        origin=stages.origin,
        metered=stages.metered,
        job_id=job_id,
    )
    if not wish.needs:
        raise RecipeError(
            "route was given no stages: pass it the NEED of the stage it stands before, and of those after it"
        )
    return route_stage(opened, wish, StageInputs(upstream, also), decision_path, page_path)


def run(
    stage: str,
    *,
    world: str,
    run_id: str,
    decision_key: str,
    inputs: Mapping[str, str],
    artifact: Any = None,
    origin: str = "",
) -> str:
    """Run one routed stage; returns the key of what it left in the store. `origin` is the JSON that an author's own stage is given.

    `artifact` is an engine's output artifact (`.path`, `.metadata`), filled with a copy for people: the manifest, the model, the metrics.
    """
    from shoestring.runtime.supervisor.run_stage import run_stage

    opened = open_world(world)
    outcome = run_stage(
        opened,
        world,
        run_id,
        decision_key,
        inputs,
        parse_argument("the stage's origin", origin, Origin) if origin else None,
    )
    if artifact is not None:
        shutil.copyfile(opened.store.fetch(outcome.artifact or outcome.key), artifact.path)
        artifact.metadata.update(
            {"key": outcome.key, "stage": stage, "rows": outcome.rows, **outcome.metrics}
        )
    return outcome.key


def settle(*, world: str, run_id: str, page_path: str = "") -> None:
    """The exit step: settle what dead pods left, close the account, write the summary and the report."""
    from shoestring.runtime.settlement.settle import finish

    finish(open_world(world), run_id, page_path, summary_path="")
