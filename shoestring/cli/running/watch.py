"""`shoestring watch`."""

from __future__ import annotations

import contextlib
import sys

import typer

from shoestring.cli.argo_runs import check_local_only
from shoestring.cli.local_world import open_world_at
from shoestring.cli.options import (
    DEFAULT_NAMESPACE,
    JsonOption,
    NamespaceOption,
    OnOption,
    StoreOption,
    WorldOption,
)
from shoestring.data.run_records import open_run
from shoestring.reporting.live import follow
from shoestring.reporting.run_reader import read_run_story
from shoestring.reporting.summary import summarise_run


def watch(
    run_id: str,
    world: WorldOption = None,
    store: StoreOption = None,
    on: OnOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Follow a run live.

    The view shows what the pods of the run write to the store; with --on, what the cluster reports.
    """
    if on:
        from shoestring.cli.argo_runs import watch_on

        check_local_only(world=world, store=store)
        watch_on(on, namespace, run_id, as_json)
        return
    opened = open_world_at(world, store)
    run = open_run(opened.store, run_id)
    launcher = run.start.launcher if run.starts else None

    def abandoned() -> bool:
        return launcher is not None and not opened.cluster.lifetime(launcher).alive

    with contextlib.suppress(KeyboardInterrupt):
        follow(opened.store, run_id, opened.clock, abandoned, sys.stdout, as_json=as_json)
    if summarise_run(read_run_story(opened.store, run_id)).status == "running" and abandoned():
        typer.echo(
            f"the process that launched {run_id} has ended: resume it with `shoestring run --resume "
            f"{run_id}`",
            err=True,
        )
        raise typer.Exit(1)
