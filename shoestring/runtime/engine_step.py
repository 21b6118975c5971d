"""A step of an engine: it opens the world, and an error that ends it is kept for those who read the run.

An engine that reports only an exit code, as Kubeflow does, leaves the reason in the pod's log.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import TracebackType

from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import ShoestringError
from shoestring.core.record import record_bytes
from shoestring.runtime.open_world import open_world


@contextlib.contextmanager
def engine_step(world: str, run_id: str, step: str) -> Iterator[World]:
    """Open the world for a step of a run. An error that ends the step becomes the run's StepError, and one
    line of its log unless it is caught.

    Args:
        world: path of the world, as the engine passes it.
        step: the name under which the error is kept.
    """
    sys.excepthook = print_error
    opened = open_world(world)
    try:
        yield opened
    except ShoestringError as error:
        keep_error(opened, run_id, step, error)
        raise


def keep_error(world: World, run_id: str, step: str, error: ShoestringError) -> None:
    """Write why a step ended. A store that takes no record leaves the step's own error as it is."""
    # Imported late: a step that does its work needs neither.
    from shoestring.data.run_records import StepError
    from shoestring.runtime.records.run_setup import RUN_ID

    if RUN_ID.fullmatch(run_id):
        found = StepError(step=step, ended_at=world.clock.now(), reason=str(error))
        with contextlib.suppress(ShoestringError):
            world.store.put(store_layout.step_error(run_id), record_bytes(found))


def print_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an error that ends this process: one with a complete message as a sentence, others as Python
    does.
    """
    if isinstance(error, ShoestringError):
        print(f"shoestring: {error}", file=sys.stderr, flush=True)
    else:
        sys.__excepthook__(kind, error, trace)
