"""`shoestring run`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from shoestring.backends.local import default_world_path, read_world_file
from shoestring.cli.argo_runs import check_local_only
from shoestring.cli.launch import start_run
from shoestring.cli.local_world import open_world_at
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
)
from shoestring.cli.run_end import print_run_end
from shoestring.cli.run_request import recipe_in_campaign, run_request, with_priority
from shoestring.config.world import World
from shoestring.core.errors import UsageError
from shoestring.data.run_records import Run, open_run
from shoestring.reporting.publish import export
from shoestring.reporting.run_reader import read_run_story
from shoestring.reporting.summary import summarise_run
from shoestring.runtime.admission.admit import LAUNCHER_VARIABLE
from shoestring.runtime.settlement.settle import settle_abandoned, settle_run


def check_not_running(world: World, run: Run) -> None:
    """Raises UsageError if another process still drives the run; otherwise settle what it left."""
    launcher = run.start.launcher if run.starts else None
    if launcher and launcher != world.pod and world.cluster.lifetime(launcher).alive:
        raise UsageError(f"{run.run_id} is still running: follow it with `shoestring watch {run.run_id}`")
    settle_run(world, run.run_id)


def prepare_launch(world: World, folder: Path) -> Path:
    """Settle what abandoned runs left, create the run's folder and return it."""
    os.environ[LAUNCHER_VARIABLE] = str(world.pod)
    for sentence in settle_abandoned(world):
        typer.echo(sentence, err=True)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def check_arguments(recipe: str, resume: str | None, on: str | None, template: str | None) -> None:
    """Raises UsageError for arguments that do not go together."""
    if bool(recipe) == bool(resume):
        raise UsageError(
            "name a recipe, like `shoestring run flights`, or a run to resume: `shoestring run --resume RUN`"
        )
    if template and not on:
        raise UsageError(
            f"--template {template} is a pipeline on a cluster: name the kubeconfig context with --on"
        )


def check_runnable(path: Path) -> Path:
    """Return the path of the world. Raises UsageError if the world is for planning only."""
    if read_world_file(path).purpose == "plan":
        raise UsageError(
            f"{path} is a world for planning only, so nothing can run on it: "
            "create one with `shoestring world init`"
        )
    return path


RecipeArgument = Annotated[str, typer.Argument(help="name of a recipe, or path of your own .yaml file")]
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
    """Run a recipe, from raw data to an evaluated model.

    The run stays inside its budget.
    """
    check_arguments(recipe, resume, on, template)
    if on:
        from shoestring.cli.argo_runs import run_on

        check_local_only(world=world, store=store, out=out, resume=resume, priority=priority, wait=wait)
        run_on(on, namespace, template, recipe_in_campaign(campaign, recipe), budget, deadline, seed, as_json)
        return
    opened = open_world_at(world, store)
    path = check_runnable(world or default_world_path())
    request = run_request(opened, recipe, resume, budget, deadline, seed, campaign)
    if resume:
        check_not_running(opened, open_run(opened.store, resume))
    folder = prepare_launch(opened, out or Path("runs") / request.run_id)
    if not (resume and summarise_run(read_run_story(opened.store, resume)).status == "done"):
        start_run(opened, with_priority(request, priority), str(path.absolute()), folder, as_json, wait)
    hints = (
        f"output of its steps: {folder / 'log.txt'}",
        f"resume it: shoestring run --resume {request.run_id}{given_options(world, store, out)}",
    )
    print_run_end(export(opened.store, request.run_id, folder), str(folder / "report.html"), hints, as_json)


def given_options(world: Path | None, store: Path | None, out: Path | None) -> str:
    """Return these options as the user gave them, for the command that resumes the run."""
    options = (("--world", world), ("--store", store), ("--out", out))
    return "".join(f" {name} {value}" for name, value in options if value)
