"""`shoestring sweep`: what a cluster's CronJob calls each minute."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from shoestring.cli.running import JsonOption
from shoestring.runtime.open_world import open_sweeper
from shoestring.runtime.settlement.reap import sweep as sweep_world

WorldArgument = Annotated[str, typer.Option(help="folder of a cluster's world; default as for `run`")]


def sweep(world: WorldArgument = "", as_json: JsonOption = False) -> None:
    """Give up stage pods that no node took in time, so that they are routed again, and settle what dead pods left."""
    said = sweep_world(*open_sweeper(world))
    if as_json:
        typer.echo(json.dumps(said))
        return
    for sentence in said:
        typer.echo(sentence)


def add_to(app: typer.Typer) -> None:
    app.command()(sweep)
