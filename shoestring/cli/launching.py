"""Begin a run on this machine, drive it to its end, and go on where it was moved."""

from __future__ import annotations

import contextlib
import sys
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import get_args

import typer

from shoestring.config.policy import Priority
from shoestring.config.world import World
from shoestring.core.errors import Refused, UsageError
from shoestring.core.receipt import Receipt
from shoestring.data.run_records import Run, readable
from shoestring.reporting.live import follow
from shoestring.reporting.publish import publish
from shoestring.reporting.run_story import gather
from shoestring.runtime.admission.admit import Wish, admit, having_waited
from shoestring.runtime.admission.start_gate import in_time
from shoestring.runtime.settlement.settle import settle_run


def prioritised(wish: Wish, priority: str | None) -> Wish:
    """Raises UsageError."""
    if priority not in (None, *get_args(Priority)):
        raise UsageError(f"--priority {priority}: it is one of {', '.join(get_args(Priority))}")
    return (
        wish
        if priority is None
        else replace(wish, recipe=wish.recipe.model_copy(update={"priority": priority}))
    )


def was_moved(world: World, run_id: str) -> bool:
    """Did the run end by a second look, to go on elsewhere? The engine here tries nothing again."""
    receipts, _ = readable(world.store, list(world.store.list(f"runs/{run_id}/receipts/")), Receipt)
    return bool(receipts) and max(receipts, key=lambda each: each.finished_at).cause == "moved"


def launch(world: World, wish: Wish, world_argument: str, out: Path, as_json: bool) -> None:
    """Drive the compiled pipeline and follow its heartbeats until it ends; Ctrl-C settles before it leaves."""
    from pipelines.drive import drive

    over = threading.Event()
    watcher = threading.Thread(
        target=follow, args=(world.store, wish.run_id, world.clock, over.is_set, sys.stderr), daemon=True
    )
    if not as_json:
        watcher.start()
    arguments = {
        "recipe": wish.recipe.model_dump_json(),
        "run_id": wish.run_id,
        "world": world_argument,
        "budget_usd": str(wish.budget_usd),
        "deadline_s": float(wish.deadline_s or 0),
        "seed": wish.seed,
    }
    try:
        with contextlib.suppress(KeyboardInterrupt):
            drive(arguments, out / "log.txt")
    finally:
        # Where the exit step did not come to it: a Ctrl-C, or an engine that failed before it.
        settle_run(world, wish.run_id)
        publish(world.store, wish.run_id)
        over.set()
        if watcher.is_alive():
            watcher.join(timeout=5)


def as_started(wish: Wish, run: Run) -> Wish:
    """With the deadline of its start: waiting brings it nearer."""
    start = run.start
    return replace(
        wish, deadline_s=(start.deadline_at - start.started_at).total_seconds() if start.deadline_at else None
    )


def begin(world: World, wish: Wish, world_argument: str, folder: Path, as_json: bool, wait: bool) -> None:
    """Admit the run and drive it to its end; a refusal by a decision is written down like any other end, and one without is raised."""
    try:
        most_s = world.policy.start.max_delay_s if wait else 0.0
        say = partial(typer.echo, err=True)
        run = in_time(
            world, wish.run_id, lambda waited_s: admit(world, having_waited(wish, waited_s)), most_s, say
        )
        launch(world, as_started(wish, run), world_argument, folder, as_json)
        while was_moved(world, wish.run_id):
            left_s = run.deadline_left_s(world.clock.now())
            run = admit(world, replace(wish, deadline_s=None if left_s is None else max(1.0, left_s)))
            launch(world, as_started(wish, run), world_argument, folder, as_json)
    except Refused:
        publish(world.store, wish.run_id)
        attempts = gather(world.store, wish.run_id).attempts
        if not attempts or attempts[-1].state != "refused":
            raise
