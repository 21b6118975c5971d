"""`shoestring reap`: the reaper of a cluster, once or for ever."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from shoestring.backends.local import WallClock
from shoestring.cli.options import JsonOption
from shoestring.cli.world_source import DEFAULT_WORLD, WorldSource, takes_world
from shoestring.config.world import World
from shoestring.core.errors import UsageError
from shoestring.core.interfaces import PendingPods, StoreTimes
from shoestring.runtime.open_world import open_reaper, open_reaper_on
from shoestring.runtime.settlement.keep_reaping import LOOK_FOR_S, exit_on_term, keep_reaping
from shoestring.runtime.settlement.looks import look_for, open_watch, reap_once


def opened_reaper(source: WorldSource) -> tuple[World, PendingPods, StoreTimes]:
    """Open a cluster's world with the right to end its pods. Raises UsageError, ClusterError."""
    source.check()
    if source.store is not None:
        raise UsageError(f"--store {source.store}: a cluster's world names its own store; leave it out")
    if source.on is not None:
        return open_reaper_on(source.on, source.namespace)
    return open_reaper(str(source.world or ""))


@takes_world
def reap(
    source: WorldSource = DEFAULT_WORLD,
    forever: Annotated[
        bool, typer.Option("--forever", help="do not end: look all the time, and settle every minute")
    ] = False,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--for", min=0, help="only look at running pods, for this number of seconds; settle nothing"
        ),
    ] = None,
    every: Annotated[float, typer.Option(min=1, help="seconds between two looks")] = 5.0,
    ready_file: Annotated[
        Path | None, typer.Option(help="file to touch after each look that judged all running pods")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """End pods that did not start in time, are silent, or cost more than their accounts can pay; settle dead
    ones.

    Without --forever and --for: one look, and one settlement. Ended stages are routed again, except those
    that spent their money. Several reapers at once do no harm.
    """
    if forever:
        if seconds is not None or as_json:
            raise UsageError("--forever takes neither --for nor --json: it has no end")
        command = [sys.executable, "-m", "shoestring", "reap", *source.arguments]
        look = [*command, "--for", str(LOOK_FOR_S), "--every", str(every)]
        look += ["--ready-file", str(ready_file)] if ready_file else []
        signal.signal(signal.SIGTERM, exit_on_term)
        keep_reaping(look, command, WallClock())
        return
    opened = opened_reaper(source)
    actions = (
        reap_once(*opened) if seconds is None else look_for(open_watch(*opened), seconds, every, ready_file)
    )
    if as_json:
        typer.echo(json.dumps(list(actions)))
        return
    for sentence in actions:
        typer.echo(sentence)
