"""`shoestring reap`: called every minute by a cluster's CronJob."""

from __future__ import annotations

import json

import typer

from shoestring.cli.options import ClusterWorldOption, JsonOption
from shoestring.runtime.open_world import open_reaper
from shoestring.runtime.settlement.reap import reap as reap_world


def reap(world: ClusterWorldOption = "", as_json: JsonOption = False) -> None:
    """Delete pods that did not start in time, and settle dead pods.

    Deleted stages are routed again.
    """
    actions = reap_world(*open_reaper(world))
    if as_json:
        typer.echo(json.dumps(actions))
        return
    for sentence in actions:
        typer.echo(sentence)
