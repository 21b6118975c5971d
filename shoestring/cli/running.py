"""`shoestring run` and `watch`."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from shoestring.backends.local import default_world_path, read_world_file
from shoestring.cli.launching import begin, prioritised
from shoestring.cli.wishes import recipe_in, wish_for
from shoestring.cli.worlds import ensure_default_world
from shoestring.config.world import World
from shoestring.core.errors import UsageError
from shoestring.core.types import record_bytes
from shoestring.data.run_records import Run, open_run
from shoestring.reporting.live import follow
from shoestring.reporting.publish import export
from shoestring.reporting.run_story import gather
from shoestring.reporting.summary import Summary, summarise
from shoestring.runtime.admission.admit import SUPERVISOR_VARIABLE
from shoestring.runtime.open_world import STORE_VARIABLE, open_world
from shoestring.runtime.settlement.settle import settle_abandoned, settle_run

# A year; and what every generator of random numbers here takes.
MOST_DEADLINE_S, MOST_SEED = 366 * 86400.0, 2**32 - 1

WorldOption = Annotated[
    Path | None,
    typer.Option(
        "--world", help="world file; default: $SHOESTRING_WORLD, else ~/.config/shoestring/world.yaml"
    ),
]
StoreOption = Annotated[
    Path | None, typer.Option("--store", help="folder of the object store, instead of the world file's")
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON alone on stdout")]
BudgetOption = Annotated[
    str | None, typer.Option("--budget", help="dollars for the whole run, like 0.003; default: the recipe's")
]
DeadlineOption = Annotated[
    float | None,
    typer.Option(
        "--deadline", min=1, max=MOST_DEADLINE_S, help="seconds for the whole run; default: the recipe's"
    ),
]
SeedOption = Annotated[int | None, typer.Option("--seed", min=0, max=MOST_SEED, help="default: the recipe's")]

CampaignOption = Annotated[
    str | None,
    typer.Option("--campaign", help="the campaign that pays for it as well; default: the recipe's"),
]

PriorityOption = Annotated[
    str | None,
    typer.Option("--priority", help="low, normal or high: whether it may wait; default: the recipe's"),
]
WaitOption = Annotated[
    bool,
    typer.Option(
        "--wait", help="where the policy puts its start off, or its data is not there yet: wait here"
    ),
]
OnOption = Annotated[
    str | None, typer.Option("--on", help="context of your kubeconfig: on that cluster, by Argo Workflows")
]
NamespaceOption = Annotated[
    str, typer.Option(help="with --on: the namespace there that Shoestring is installed in")
]
TemplateOption = Annotated[
    str | None,
    typer.Option(help="with --on: a pipeline of your own, by the name of its WorkflowTemplate there"),
]
NAMESPACE = "shoestring"


def world_at(path: Path | None, store: Path | None) -> World:
    """Open the world for this command and every pod it starts; the default file is made when it is missing."""
    if path is None and (made := ensure_default_world()):
        typer.echo(made, err=True)
    if store is not None:
        os.environ[STORE_VARIABLE] = str(store.expanduser().absolute())
    world = open_world(str(path) if path else "")
    for doubted in world.prices.book().rejected:
        typer.echo(f"a price is not believed: {doubted.row}: {doubted.reason}", err=True)
    return world


def leave_no_other(world: World, run: Run) -> None:
    """A run that is still being driven is not started again. Raises UsageError."""
    supervisor = run.start.supervisor if run.starts else None
    if supervisor and supervisor != world.pod_uid and world.cluster.lifetime(supervisor).alive:
        raise UsageError(f"{run.run_id} is still running: follow it with `shoestring watch {run.run_id}`")
    settle_run(world, run.run_id)


def made_ready(world: World, folder: Path) -> Path:
    """The folder of a run that this process launches, after what others left behind is settled."""
    os.environ[SUPERVISOR_VARIABLE] = world.pod_uid
    for sentence in settle_abandoned(world):
        typer.echo(sentence, err=True)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def run(
    recipe: Annotated[str, typer.Argument(help="a recipe's name, or the path of your own .yaml")] = "",
    budget: BudgetOption = None,
    deadline: DeadlineOption = None,
    world: WorldOption = None,
    store: StoreOption = None,
    out: Annotated[Path | None, typer.Option(help="folder for the run's files; default: runs/RUN_ID")] = None,
    seed: SeedOption = None,
    campaign: CampaignOption = None,
    priority: PriorityOption = None,
    wait: WaitOption = False,
    resume: Annotated[str | None, typer.Option(help="go on with a run that did not finish")] = None,
    on: OnOption = None,
    namespace: NamespaceOption = NAMESPACE,
    template: TemplateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a recipe from raw data to an evaluated model inside its budget."""
    if bool(recipe) == bool(resume):
        raise UsageError(
            "name a recipe, like `shoestring run flights`, or a run to go on with: `shoestring run --resume RUN`"
        )
    if on:
        from shoestring.cli.clusters import run_on

        here_only(world=world, store=store, out=out, resume=resume, priority=priority, wait=wait)
        run_on(on, namespace, template, recipe_in(campaign, recipe), budget, deadline, seed, as_json)
        return
    if template:
        raise UsageError(f"--template {template} is a pipeline on a cluster: name its context with --on")
    opened = world_at(world, store)
    path = world or default_world_path()
    if read_world_file(path).purpose == "plan":
        raise UsageError(
            f"{path} is a price list to plan with, and nothing can run on it: make a world with `shoestring world init`"
        )
    wish = wish_for(opened, recipe, resume, budget, deadline, seed, campaign)
    if resume:
        leave_no_other(opened, open_run(opened.store, resume))
    folder = made_ready(opened, out or Path("runs") / wish.run_id)
    if not (resume and summarise(gather(opened.store, resume)).status == "done"):
        begin(opened, prioritised(wish, priority), str(path.absolute()), folder, as_json, wait)
    options = "".join(
        f" {name} {value}"
        for name, value in (("--world", world), ("--store", store), ("--out", out))
        if value
    )
    hints = (
        f"what its steps printed: {folder / 'log.txt'}",
        f"go on with it: shoestring run --resume {wish.run_id}{options}",
    )
    tell(export(opened.store, wish.run_id, folder), str(folder / "report.html"), hints, as_json)


def tell(summary: Summary, report: str, hints: tuple[str, ...], as_json: bool) -> None:
    """The last words of a run, and its exit code. `report`: where it is. `hints`: what to do about a run that did not finish."""
    if as_json:
        sys.stdout.buffer.write(record_bytes(summary))
    elif summary.status != "refused":
        spent = f"${summary.spent_usd} of ${summary.budget_usd}"
        quality = ", ".join(f"{name} {value:.4f}" for name, value in summary.quality.items())
        typer.echo(f"{summary.run_id}: {summary.status}, {spent} spent" + (f"; {quality}" if quality else ""))
        typer.echo(f"report: {report}")
    if summary.status != "done":
        typer.echo(f"shoestring: {summary.sentence}", err=True)
        if summary.status != "refused":
            typer.echo("\n".join(hints), err=True)
        raise typer.Exit(1)


def here_only(**options: object) -> None:
    """Raises UsageError for an option that has no meaning where a run is on a cluster."""
    if given := [f"--{name}" for name, value in options.items() if value]:
        raise UsageError(
            f"{', '.join(given)} is for a run on this machine: with --on the cluster's own world and store are used"
        )


def watch(
    run_id: str,
    world: WorldOption = None,
    store: StoreOption = None,
    on: OnOption = None,
    namespace: NamespaceOption = NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Follow a run live, by what its pods write into the store; with --on, by what the cluster says of them."""
    if on:
        from shoestring.cli.clusters import watch_on

        here_only(world=world, store=store)
        watch_on(on, namespace, run_id, as_json)
        return
    opened = world_at(world, store)
    run = open_run(opened.store, run_id)
    supervisor = run.start.supervisor if run.starts else None

    def abandoned() -> bool:
        return supervisor is not None and not opened.cluster.lifetime(supervisor).alive

    with contextlib.suppress(KeyboardInterrupt):
        follow(opened.store, run_id, opened.clock, abandoned, sys.stdout, as_json=as_json)
    if summarise(gather(opened.store, run_id)).status == "running" and abandoned():
        typer.echo(
            f"whoever launched {run_id} is gone: go on with it: shoestring run --resume {run_id}", err=True
        )
        raise typer.Exit(1)


def add_to(app: typer.Typer) -> None:
    app.command()(run)
    app.command()(watch)
