"""`shoestring reap`: called every minute by a cluster's CronJob."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from shoestring.cli.options import ClusterWorldOption, JsonOption
from shoestring.runtime.open_world import open_reaper
from shoestring.runtime.settlement.looks import reap_for


def reap(
    world: ClusterWorldOption = "",
    seconds: Annotated[
        float, typer.Option("--for", min=0, help="seconds in which running pods are looked at; 0: one look")
    ] = 0.0,
    every: Annotated[float, typer.Option(min=1, help="seconds between two looks")] = 5.0,
    as_json: JsonOption = False,
) -> None:
    """End pods that did not start in time, are silent, or cost more than their accounts can pay; settle dead
    ones.

    Ended stages are routed again, except those that spent their money.
    """
    actions = reap_for(*open_reaper(world), seconds, every)
    if as_json:
        typer.echo(json.dumps(list(actions)))
        return
    for sentence in actions:
        typer.echo(sentence)
