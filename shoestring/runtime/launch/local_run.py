"""Start a run on this machine, drive it to its end, and restart it where it migrated to."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

from shoestring.backends.admitted_world import admitted_variable
from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import Refused, UsageError
from shoestring.core.pod_ref import LAUNCHER_VARIABLE, PodRef
from shoestring.core.receipt import Receipt
from shoestring.core.record import argument_json
from shoestring.data.run_records import Run, open_run, read_records
from shoestring.data.scratch.temporary_folders import remove_left_over
from shoestring.reporting.publish import publish
from shoestring.reporting.run_reader import read_run_story
from shoestring.reporting.terminal.live import follow
from shoestring.runtime.admission.admit import admit
from shoestring.runtime.admission.first_request import RunRequest, after_waiting
from shoestring.runtime.admission.start_gate import start_when_allowed
from shoestring.runtime.launch.cached_run import return_all_cached
from shoestring.runtime.launch.temporary_space import check_temporary_space
from shoestring.runtime.launch.watch_stages import watched_stages
from shoestring.runtime.open_world import STORE_VARIABLE
from shoestring.runtime.records.lifetimes import launcher_is_alive
from shoestring.runtime.records.overhead import charge_step_server
from shoestring.runtime.settlement.settle import settle_abandoned, settle_run
from shoestring.spending.ends import NO_RESULT


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """Where a run's world and files are, and who is told about it.

    `world_path`: of the world file. `store`: folder that replaces the store of the world file. `folder`: for
    the run's files. `progress`: receives the changes of its stages; None: nobody does. `wait`: wait when the
    policy delays the start. `notify`: receives sentences about waits and about abandoned runs.
    """

    world_path: Path
    store: Path | None
    folder: Path
    progress: TextIO | None
    wait: bool
    notify: Callable[[str], object]


ENDS_WITH_REASON = ("refused", "failed", "stopped")


def run_here(world: World, request: RunRequest, options: LaunchOptions) -> None:
    """Admit the run and drive it to its end. What happened is in its records.

    Raises:
        Refused: it was not admitted, or not admitted again where it migrated to. Its records are published.
        StoreFull: there is no space for temporary files; before anything is reserved, or where that ended it.
        UsageError: another process still drives it, or TMPDIR cannot be used.
    """
    check_engine()
    # First, since that may be what fills the disk.
    remove_left_over()
    check_temporary_space()
    check_not_running(world, request.run_id)
    with environment_of_run(world, options):
        for sentence in settle_abandoned(world):
            options.notify(sentence)
        try:
            with folder_unless_refused(options.folder):
                run = start_run(world, request, options)
            drive_pipeline(world, run, with_start_deadline(request, run), options)
            while has_migrated(world, request.run_id):
                left_s = run.deadline_left_s(world.clock.now())
                run = admit(
                    world, request.with_terms(deadline_s=None if left_s is None else max(1.0, left_s))
                )
                drive_pipeline(world, run, with_start_deadline(request, run), options)
        except Refused:
            if any(world.store.list(store_layout.run_record(request.run_id))):
                publish(world.store, request.run_id)
            raise


def check_engine() -> None:
    """Check that the local engine is installed, before anything is reserved. Raises UsageError."""
    if find_spec("kfp") is None:
        raise UsageError("running needs kfp and torch (kfp is missing): pip install 'shoestring[kfp,train]'")


def check_not_running(world: World, run_id: str) -> None:
    """Settle what an earlier start of the run left. Raises UsageError if another process still drives it."""
    if not any(world.store.list(store_layout.starts(run_id))):
        return
    run = open_run(world.store, run_id)
    if run.start.launcher != world.pod and launcher_is_alive(world, run):
        raise UsageError(f"{run_id} is still running: follow it with `shoestring watch {run_id}`")
    settle_run(world, run_id)


def is_done(world: World, run_id: str) -> bool:
    """Return whether every stage of a run is done, so that nothing is left to resume."""
    return read_run_story(world.store, run_id).status == "done"


@contextlib.contextmanager
def environment_of_run(
    world: World, options: LaunchOptions, launcher: PodRef | None = None
) -> Iterator[None]:
    """Set the variables that every process of a run reads, and restore them at the end.

    What killed processes of the run have left in temporary folders is removed then, too.

    `launcher`: the process without which the run is over; None: this one.
    """
    with admitted_variable(world, options.world_path) as admitted:
        values = {LAUNCHER_VARIABLE: str(launcher or world.pod)} | admitted
        if options.store:
            values[STORE_VARIABLE] = str(options.store)
        before = {name: os.environ.get(name) for name in values}
        os.environ.update(values)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
            remove_left_over()


@contextlib.contextmanager
def folder_unless_refused(folder: Path) -> Iterator[None]:
    """Make a folder, and remove it and the parents made for it if the block raises.

    It is made before anything is reserved, so that a folder that cannot be made costs nothing.

    Raises:
        UsageError: it cannot be made.
    """
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot make the folder {folder} for the run's files: {error.strerror}: name another with --out"
        ) from error
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            for each in made:
                each.rmdir()
        raise


def start_run(world: World, request: RunRequest, options: LaunchOptions) -> Run:
    """Admit the run, after a wait if it may wait. Raises Refused."""
    return start_when_allowed(
        world,
        request.run_id,
        lambda waited_s: admit(world, after_waiting(request, waited_s), options.notify),
        world.policy.start.max_delay_s if options.wait else 0.0,
        options.notify,
    )


def has_migrated(world: World, run_id: str) -> bool:
    """Return True if the last attempt ended in order to migrate. The local engine does not retry, so the
    caller restarts the run.
    """
    receipts, _ = read_records(world.store, list(world.store.list(store_layout.receipts(run_id))), Receipt)
    return bool(receipts) and max(receipts, key=lambda each: each.finished_at).cause == "migrated"


def lacks_reason(world: World, run_id: str) -> bool:
    """Return whether no record of a run that has ended gives the reason, as where a step did not start, its
    supervisor failed, or its stage could not write its result.
    """
    story = read_run_story(world.store, run_id)
    last = story.attempts[-1] if story.attempts else None
    if story.refusal or last is None:
        return not story.refusal
    if last.state not in ENDS_WITH_REASON or last.receipt is None:
        return last.state not in ENDS_WITH_REASON
    return last.receipt.cause == "lost" or NO_RESULT in last.receipt.reason


def drive_pipeline(world: World, run: Run, request: RunRequest, options: LaunchOptions) -> None:
    """Drive the compiled pipeline and follow its heartbeats until it ends; after Ctrl-C, settle first."""
    finished = threading.Event()
    watcher = threading.Thread(
        target=follow,
        args=(world.store, request.run_id, world.clock, finished.is_set, options.progress),
        daemon=True,
    )
    if options.progress:
        watcher.start()
    arguments = {
        "recipe": argument_json(request.recipe),
        "run_id": request.run_id,
        "world": str(options.world_path.absolute()),
        "budget_usd": str(request.budget_usd),
        "deadline_s": float(request.deadline_s or 0),
        "seed": request.job.seed,
    }
    try:
        with contextlib.suppress(KeyboardInterrupt):
            if not return_all_cached(world, run, request):
                drive_engine(world, run, arguments, options.folder / "log.txt")
    finally:
        # The exit step does not run after a Ctrl-C, or when the engine fails before it.
        settle_run(world, request.run_id)
        publish(world.store, request.run_id)
        finished.set()
        if watcher.is_alive():
            watcher.join(timeout=5)


def drive_engine(world: World, run: Run, arguments: dict[str, Any], log: Path) -> None:
    """Run the compiled pipeline, and watch its stages. Raises StoreFull."""
    # Imported here: where every result is cached, KFP is not needed.
    from shoestring.pipelines.local_runner import run_locally

    with watched_stages(world, run):
        started = partial(charge_step_server, world, run)
        try:
            succeeded = run_locally(arguments, log, started=started)
        except OSError:
            # The engine writes temporary files as well.
            check_temporary_space()
            raise
        if not succeeded and lacks_reason(world, run.run_id):
            check_temporary_space()


def with_start_deadline(request: RunRequest, run: Run) -> RunRequest:
    """Return the request with the deadline of its start, which a delayed start has shortened."""
    start = run.start
    deadline_s = (start.deadline_at - start.started_at).total_seconds() if start.deadline_at else None
    return request.with_terms(deadline_s=deadline_s)
