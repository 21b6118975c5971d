"""`shoestring runs` and `shoestring runs compare`."""

from __future__ import annotations

import json
from typing import Annotated, get_args

import typer

from shoestring.cli.named_runs import named_run_id
from shoestring.cli.options import JsonOption
from shoestring.cli.times import parse_time
from shoestring.cli.world_source import DEFAULT_WORLD, WorldSource, takes_world
from shoestring.core.errors import UsageError
from shoestring.reporting.run_reader import read_run_story
from shoestring.reporting.runs.run_comparison import compare_runs
from shoestring.reporting.runs.run_list import ListedStatus, list_runs
from shoestring.reporting.runs.run_text import comparison_text, runs_text

app = typer.Typer(help="List runs, newest first; compare two.")

STATUSES: dict[str, ListedStatus] = {status: status for status in get_args(ListedStatus)}


@app.callback(invoke_without_command=True)
@takes_world
def runs(
    context: typer.Context,
    name: Annotated[str | None, typer.Option(help="only runs of the recipe or command of this name")] = None,
    status: Annotated[str | None, typer.Option(help=f"only runs that are {', '.join(STATUSES)}")] = None,
    since: Annotated[
        str | None, typer.Option(help="only runs requested at or after this time, like 2026-11-03")
    ] = None,
    source: WorldSource = DEFAULT_WORLD,
    as_json: JsonOption = False,
) -> None:
    """List the runs of the store, newest first.

    Each has its status, dollars and main metric. A run whose launcher has ended is interrupted.
    """
    if context.invoked_subcommand:
        return
    if status is not None and status not in STATUSES:
        raise UsageError(f"--status: {status!r} is unknown; choose from: {', '.join(STATUSES)}")
    opened = source.open()
    only = STATUSES[status] if status else None
    found, notes = list_runs(opened.store, opened.cluster, name, only, parse_time("--since", since))
    if as_json:
        typer.echo(json.dumps([each.model_dump(mode="json") for each in found], indent=1))
        return
    typer.echo("\n".join([runs_text(found), *notes]))


@app.command()
@takes_world
def compare(
    first: Annotated[str, typer.Argument(help="id of a run")],
    second: Annotated[str, typer.Argument(help="id of another run")],
    source: WorldSource = DEFAULT_WORLD,
    as_json: JsonOption = False,
) -> None:
    """Compare two runs: where their stages ran, what they cost, and their quality with 95% intervals."""
    opened = source.open().store
    stories = [read_run_story(opened, named_run_id(opened, run)) for run in (first, second)]
    found = compare_runs(*stories)
    typer.echo(found.model_dump_json(indent=1) if as_json else comparison_text(found))
