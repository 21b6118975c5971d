"""`shoestring route`: called by the route step of an engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from shoestring.cli.options import RunIdOption, WorldPathOption
from shoestring.config.world import World
from shoestring.core.errors import DataError, Refused, UsageError
from shoestring.core.text import join_names
from shoestring.data.storage.import_closure import sources_read_once
from shoestring.routing.decision import Decision
from shoestring.routing.pages.explain import as_markdown, as_text
from shoestring.routing.placement import argo_patch
from shoestring.runtime.admission.first_request import RunRequest
from shoestring.runtime.admission.stage_request import StageInputs
from shoestring.runtime.engine_step import engine_step
from shoestring.runtime.route_step.engine_request import parse_run_request
from shoestring.runtime.route_step.pod_deadline import pod_deadline_s
from shoestring.runtime.route_step.route import route as route_stage


def route(
    needs: Annotated[str, typer.Option(help="NEEDs of the stage and of those after it, in order, as JSON")],
    run_id: RunIdOption,
    recipe: Annotated[str, typer.Option(help="the recipe, as JSON")],
    out: Annotated[Path, typer.Option(help="folder for patch, decision_key, decision.json and page.md")],
    budget: Annotated[str, typer.Option(help="dollars for the whole run; empty: the recipe's")] = "",
    deadline: Annotated[float, typer.Option(min=0, help="seconds for the whole run; 0: the recipe's")] = 0.0,
    seed: Annotated[int, typer.Option(min=-1, help="random seed; -1: the recipe's")] = -1,
    upstream: Annotated[
        str, typer.Option(help="key of the manifest that the stage reads; empty for the first")
    ] = "",
    side_input: Annotated[str, typer.Option(help="key of a second object that the stage reads")] = "",
    items: Annotated[
        str, typer.Option(help="list of the innermost loop around the stage, as JSON; empty: none")
    ] = "",
    world: WorldPathOption = "",
) -> None:
    """Choose where the next stage runs, and reserve its cost.

    `patch` is the placement, as a patch of the pod's spec. A file `refused` means that a retry would not
    help. A file `complete` means that the results of all stages were in the cache, and that the engine has to
    start none of them.
    """
    out.mkdir(parents=True, exist_ok=True)
    decision_path = out / "decision.json"
    inputs, paths = StageInputs(upstream, side_input), (str(decision_path), str(out / "page.md"))
    try:
        with engine_step(world, run_id, "route") as opened, sources_read_once():
            found = parse_items(items) if items else None
            request = parse_run_request(needs, run_id, recipe, budget, deadline, seed, "", found)
            if request.may_return_all and return_all(opened, request, out):
                return
            values = route_stage(opened, request, inputs, *paths)
    except (Refused, UsageError, DataError):
        (out / "refused").write_text("yes")
        raise
    decision = Decision.model_validate_json(decision_path.read_bytes())
    (out / "patch").write_text(patch_of(opened, request, decision))
    (out / "decision_key").write_text(values["decision_key"])
    typer.echo(as_text(decision))


def parse_items(text: str) -> list[Any]:
    """Return the list of a loop. Raises UsageError."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list):
        raise UsageError(f"a loop needs a list as JSON, such as [1, 2], and --items is {text[:100]}")
    return found


def patch_of(world: World, request: RunRequest, decision: Decision) -> str:
    """Return the patch of the pod that a decision places."""
    command = request.command
    return argo_patch(
        decision,
        pod_deadline_s(world, decision, request.job.campaign),
        own_image=command is not None or not request.metered,
        command_grace_s=command.grace_s if command and request.metered else 0.0,
    )


def return_all(world: World, request: RunRequest, out: Path) -> bool:
    """Return the results of all stages, and write the files of the step; return False if one is missing."""
    # Imported late: only the first route step of a run needs what writes receipts.
    from shoestring.runtime.launch.cached_run import route_all_cached

    if not (decisions := route_all_cached(world, request)):
        return False
    (out / "page.md").write_text("\n\n".join(map(as_markdown, decisions)))
    (out / "complete").write_text("yes")
    names = join_names([decision.question.stage for decision in decisions])
    typer.echo(f"the results of {names} were in the cache: no stage starts")
    return True
