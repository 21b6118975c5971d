"""Start a run on this machine, drive it to its end, and restart it where it migrated to."""

from __future__ import annotations

import contextlib
import sys
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import typer

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import Refused
from shoestring.core.receipt import Receipt
from shoestring.data.run_records import Run, read_records
from shoestring.reporting.live import follow
from shoestring.reporting.publish import publish
from shoestring.reporting.run_reader import read_run_story
from shoestring.runtime.admission.admit import RunRequest, admit, after_waiting
from shoestring.runtime.admission.start_gate import start_when_allowed
from shoestring.runtime.settlement.settle import settle_run


def has_migrated(world: World, run_id: str) -> bool:
    """Return True if the last attempt ended in order to migrate. The local engine does not retry, so the
    caller restarts the run.
    """
    receipts, _ = read_records(world.store, list(world.store.list(store_layout.receipts(run_id))), Receipt)
    return bool(receipts) and max(receipts, key=lambda each: each.finished_at).cause == "migrated"


def drive_pipeline(world: World, request: RunRequest, world_argument: str, out: Path, as_json: bool) -> None:
    """Drive the compiled pipeline and follow its heartbeats until it ends; after Ctrl-C, settle first."""
    from shoestring.pipelines.local_runner import run_locally

    finished = threading.Event()
    watcher = threading.Thread(
        target=follow,
        args=(world.store, request.run_id, world.clock, finished.is_set, sys.stderr),
        daemon=True,
    )
    if not as_json:
        watcher.start()
    arguments = {
        "recipe": request.recipe.model_dump_json(),
        "run_id": request.run_id,
        "world": world_argument,
        "budget_usd": str(request.budget_usd),
        "deadline_s": float(request.deadline_s or 0),
        "seed": request.seed,
    }
    try:
        with contextlib.suppress(KeyboardInterrupt):
            run_locally(arguments, out / "log.txt")
    finally:
        # The exit step does not run after a Ctrl-C, or when the engine fails before it.
        settle_run(world, request.run_id)
        publish(world.store, request.run_id)
        finished.set()
        if watcher.is_alive():
            watcher.join(timeout=5)


def with_start_deadline(request: RunRequest, run: Run) -> RunRequest:
    """Return the request with the deadline of its start, which a delayed start has shortened."""
    start = run.start
    return replace(
        request,
        deadline_s=(start.deadline_at - start.started_at).total_seconds() if start.deadline_at else None,
    )


def start_run(
    world: World, request: RunRequest, world_argument: str, folder: Path, as_json: bool, wait: bool
) -> None:
    """Admit the run and drive it to its end.

    A refusal by a routing decision is published like any other end of a run. A refusal without a decision is
    raised.
    """
    try:
        max_wait_s = world.policy.start.max_delay_s if wait else 0.0
        print_line = partial(typer.echo, err=True)
        run = start_when_allowed(
            world,
            request.run_id,
            lambda waited_s: admit(world, after_waiting(request, waited_s)),
            max_wait_s,
            print_line,
        )
        drive_pipeline(world, with_start_deadline(request, run), world_argument, folder, as_json)
        while has_migrated(world, request.run_id):
            left_s = run.deadline_left_s(world.clock.now())
            run = admit(world, replace(request, deadline_s=None if left_s is None else max(1.0, left_s)))
            drive_pipeline(world, with_start_deadline(request, run), world_argument, folder, as_json)
    except Refused:
        publish(world.store, request.run_id)
        attempts = read_run_story(world.store, request.run_id).attempts
        if not attempts or attempts[-1].state != "refused":
            raise
