"""`shoestring watch`."""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer

from shoestring.backends.argo import RunWorkflow, open_argo
from shoestring.cli.argo_runs import find_on, follow_workflow, watch_workflow
from shoestring.cli.named_runs import named_run_id
from shoestring.cli.options import JsonOption
from shoestring.cli.run_end import print_run_end
from shoestring.cli.world_source import DEFAULT_WORLD, WorldSource, takes_world
from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import ClusterError, UnknownName
from shoestring.core.interfaces import Clock
from shoestring.data.run_records import open_run, read_step_error
from shoestring.reporting.run_reader import read_run_story
from shoestring.reporting.runs.run_list import interrupted_reason, launcher_is_gone
from shoestring.reporting.summary import summarise_run
from shoestring.reporting.terminal.live import follow

POLL_INTERVAL_S = 2.0
"""Seconds between two looks for a run that an engine has started, and whose first step has not begun."""


@takes_world
def watch(run_id: str, source: WorldSource = DEFAULT_WORLD, as_json: JsonOption = False) -> None:
    """Follow a run live to its end, by its id or by Kubeflow's id of it.

    The view shows what the pods of the run write to the store. With --on, a run on Argo Workflows is shown as
    the cluster reports it. The end of a run, also of one that was over before, is printed as `run` prints it,
    with --json as the last line. The exit code is 0 if the run is done, else 1. Ctrl-C ends the watching, not
    the run.
    """
    source.check()
    if source.on is not None:
        found = find_on(source.on, source.namespace, run_id)
        if found is not None and not found.is_kubeflow:
            watch_workflow(source.on, source.namespace, found.name, as_json)
            return
        follow_on_cluster(source, run_id, found, as_json)
        return
    opened = source.open()
    run = open_run(opened.store, named_run_id(opened.store, run_id))

    def abandoned() -> bool:
        return launcher_is_gone(opened.cluster, run)

    follow_in_store(opened, run.run_id, abandoned, as_json)
    if abandoned():
        typer.echo(f"{run.run_id} is interrupted: {interrupted_reason(run.record)}", err=True)
        raise typer.Exit(1)


def follow_in_store(
    opened: World,
    run_id: str,
    done: Callable[[], bool],
    as_json: bool,
    has_succeeded: Callable[[], bool] = lambda: False,
) -> None:
    """Follow a run in the store until it is over or `done()`. If it is over, print its end and exit with its
    code; after Ctrl-C, exit. `has_succeeded()`: on its engine.
    """
    try:
        follow(opened.store, run_id, opened.clock, done, sys.stdout, as_json=as_json)
    except KeyboardInterrupt:
        raise typer.Exit from None
    summary = summarise_run(read_run_story(opened.store, run_id))
    if summary.status != "running":
        report, engine = f"in its store, {store_layout.report(run_id)}", summary.may_be_done
        print_run_end(summary, report, (), as_json, has_succeeded=engine and has_succeeded())
        raise typer.Exit


def follow_on_cluster(source: WorldSource, run: str, found: RunWorkflow | None, as_json: bool) -> None:
    """Follow a run on a cluster in its store to the end, and exit with the run's code.

    `found`: its Workflow, whose steps are Kubeflow's; None: there is none, or none may be read.
    """
    opened = source.open()
    has_ended = workflow_end(source, found, opened.clock)
    run_id = wait_for_record(opened, found.run_id if found else run, has_ended, is_known=found is not None)
    follow_in_store(opened, run_id, has_ended, as_json, lambda: has_succeeded(source, found))
    if has_ended():
        error = read_step_error(opened.store, run_id)
        why = f" ({error.step}: {error.reason})" if error else ""
        ended = f"{run_id} has ended on its engine, and its exit step did not settle it{why}"
        raise ClusterError(f"{ended}: the reaper closes it")


def has_succeeded(source: WorldSource, found: RunWorkflow | None) -> bool:
    """Wait for the end of a run's Workflow, whose exit step has ended; return whether it has succeeded. What
    is not known, or was deleted, has not.
    """
    if found is None or source.on is None:
        return False
    try:
        progress = follow_workflow(open_argo(source.on, source.namespace), found.name, lambda _: None)
    except UnknownName:
        return False
    return progress.phase == "Succeeded"


def workflow_end(source: WorldSource, found: RunWorkflow | None, clock: Clock) -> Callable[[], bool]:
    """Return a function that reads whether the Workflow has ended, at most once every POLL_INTERVAL_S."""
    if found is None or source.on is None:
        return lambda: False
    name, argo = found.name, open_argo(source.on, source.namespace)
    read_at_s, is_over = float("-inf"), False

    def has_ended() -> bool:
        nonlocal read_at_s, is_over
        if not is_over and clock.monotonic_s() - read_at_s >= POLL_INTERVAL_S:
            read_at_s = clock.monotonic_s()
            try:
                is_over = argo.read(name).is_finished
            except UnknownName:
                # It was deleted.
                is_over = True
        return is_over

    return has_ended


def wait_for_record(opened: World, run: str, has_ended: Callable[[], bool], *, is_known: bool) -> str:
    """Wait until the first router has recorded a run; return the run's id.

    `run`: that, or Kubeflow's id of it.

    Raises:
        UnknownName: there is no such run, and its engine does not know it either (`is_known`).
        ClusterError: the engine ended it before its first step.
    """
    is_told = False
    while True:
        is_over = has_ended()
        try:
            return open_run(opened.store, named_run_id(opened.store, run)).run_id
        except UnknownName:
            if (is_over or not is_known) and (error := read_step_error(opened.store, run)):
                raise ClusterError(f"{run} was never begun: {error.reason}") from None
            if not is_known:
                raise
        if is_over:
            raise ClusterError(f"{run} ended before its first step began: look at its pods in its engine")
        if not is_told:
            typer.echo(f"{run}: its first step has not begun", err=True)
            is_told = True
        opened.clock.sleep(POLL_INTERVAL_S)
