"""`shoestring run`."""

from __future__ import annotations

import sys
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from shoestring.backends.local import default_world_path
from shoestring.cli.argo_runs import check_local_only, resume_on, run_on
from shoestring.cli.named_runs import named_run_id
from shoestring.cli.options import (
    DEFAULT_NAMESPACE,
    BudgetOption,
    CampaignOption,
    DeadlineOption,
    JsonOption,
    NamespaceOption,
    OnOption,
    PriorityOption,
    SeedOption,
    StoreOption,
    TemplateOption,
    WaitOption,
    WorldOption,
    budget_from_option,
    given_options,
)
from shoestring.cli.run_end import print_run_end
from shoestring.cli.world_source import WorldSource, absolute
from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import Refused, UsageError
from shoestring.data.recipe import Recipe
from shoestring.reporting.publish import export
from shoestring.reporting.run_reader import read_run_story
from shoestring.reporting.summary import summarise_run
from shoestring.runtime.admission.first_request import RunRequest
from shoestring.runtime.launch.local_run import LaunchOptions, is_done, run_here
from shoestring.runtime.launch.local_world import check_runnable
from shoestring.runtime.launch.run_request import (
    new_request,
    recipe_in_campaign,
    resumed_request,
    with_priority,
)


def check_arguments(
    recipe: str, resume: str | None, on: str | None, template: str | None, campaign: str | None
) -> None:
    """Raises UsageError for arguments that do not go together."""
    runs_commands = bool(template and on) and campaign is None
    if bool(recipe) == bool(resume) and not (runs_commands and not recipe):
        raise UsageError(
            "name a recipe, like `shoestring run flights`, or a run to resume: `shoestring run --resume RUN`"
        )
    if resume and campaign is not None:
        raise UsageError(
            f"{resume} was started with a recipe and keeps the campaign in it: "
            "--campaign applies to new runs only"
        )
    if template and not on:
        raise UsageError(
            f"--template {template} is a pipeline on a cluster: name the kubeconfig context with --on"
        )


RECIPE_HELP = "name of a recipe, or path of your own .yaml file; none for a --template of commands"
RecipeArgument = Annotated[str, typer.Argument(help=RECIPE_HELP)]
OutOption = Annotated[Path | None, typer.Option(help="folder for the run's files; default: runs/RUN_ID")]
ResumeOption = Annotated[str | None, typer.Option(help="resume a run that did not finish")]


def run(
    recipe: RecipeArgument = "",
    budget: BudgetOption = None,
    deadline: DeadlineOption = None,
    world: WorldOption = None,
    store: StoreOption = None,
    out: OutOption = None,
    seed: SeedOption = None,
    campaign: CampaignOption = None,
    priority: PriorityOption = None,
    wait: WaitOption = False,
    resume: ResumeOption = None,
    on: OnOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    template: TemplateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a recipe, from raw data to an evaluated model, inside its budget."""
    check_arguments(recipe, resume, on, template, campaign)
    if on:
        check_local_only(world=world, store=store, out=out, priority=priority, wait=wait)
        if resume:
            resume_on(on, namespace, template, resume, budget, deadline, seed, as_json)
            return
        run_on(on, namespace, template, named_recipe(campaign, recipe), budget, deadline, seed, as_json)
        return
    opened, path = WorldSource(world, store).open_to_run(), check_runnable(world or default_world_path())
    resume = named_run_id(opened.store, resume) if resume else None
    request = with_priority(
        requested_run(opened, recipe, resume, budget_from_option(budget), deadline, seed, campaign), priority
    )
    folder, progress = out or Path("runs") / request.run_id, None if as_json else sys.stderr
    options = LaunchOptions(path, absolute(store), folder, progress, wait, partial(typer.echo, err=True))
    again = f"shoestring run --resume {request.run_id}{given_options(world, store, out)}"
    hints = (f"output of its steps: {folder / 'log.txt'}", f"resume it: {again}")
    if resume and is_done(opened, resume):
        typer.echo(f"{resume} is done: nothing was started, and nothing was spent", err=True)
    else:
        why = f"shoestring explain {request.run_id}{given_options(world, store, None)}"
        run_unless_refused(opened, request, options, why, as_json)
    print_run_end(export(opened.store, request.run_id, folder), str(folder / "report.html"), hints, as_json)


def named_recipe(campaign: str | None, recipe: str) -> Recipe | None:
    """Return the recipe of the command line; None: it names none."""
    return recipe_in_campaign(campaign, recipe) if recipe else None


def run_unless_refused(
    world: World, request: RunRequest, options: LaunchOptions, why: str, as_json: bool
) -> None:
    """Drive the run to its end. A refusal by a routing decision ends the command as its summary says.

    `why`: the command that explains the decision.

    Raises:
        Refused: there is no decision that explains it.
    """
    try:
        run_here(world, request, options)
    except Refused:
        if not was_refused_by_router(world, request.run_id):
            raise
        summary = summarise_run(read_run_story(world.store, request.run_id))
        if summary.status == "refused":
            print_run_end(summary, "", (f"every offer, and why it was rejected: {why}",), as_json)


def requested_run(
    world: World,
    recipe: str,
    resume: str | None,
    budget_usd: Decimal | None,
    deadline_s: float | None,
    seed: int | None,
    campaign: str | None,
) -> RunRequest:
    """Return the request of the command line. Raises UsageError, UnknownName, RecipeError."""
    if resume is None:
        return new_request(world, recipe_in_campaign(campaign, recipe), budget_usd, deadline_s, seed)
    return resumed_request(world, resume, budget_usd, deadline_s, seed)


def was_refused_by_router(world: World, run_id: str) -> bool:
    """Return whether the run's last record is a decision without a choice, which explains the refusal."""
    known = any(world.store.list(store_layout.decisions(run_id)))
    attempts = read_run_story(world.store, run_id).attempts if known else ()
    return bool(attempts) and attempts[-1].state == "refused"
