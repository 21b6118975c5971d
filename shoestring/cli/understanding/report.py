"""`shoestring report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shoestring.cli.named_runs import named_run_id
from shoestring.cli.world_source import DEFAULT_WORLD, WorldSource, takes_world
from shoestring.data.run_records import open_run
from shoestring.reporting.publish import export, publish


@takes_world
def report(
    run_id: Annotated[str, typer.Argument(help="id of the run")],
    out: Annotated[Path | None, typer.Option(help="folder for the run's files; default: runs/RUN_ID")] = None,
    source: WorldSource = DEFAULT_WORLD,
) -> None:
    """Write the report and files of a run again.

    They show the current state of its records.
    """
    opened = source.open()
    run_id = open_run(opened.store, named_run_id(opened.store, run_id)).run_id
    folder = out or Path("runs") / run_id
    publish(opened.store, run_id)
    export(opened.store, run_id, folder)
    typer.echo(str(folder / "report.html"))
