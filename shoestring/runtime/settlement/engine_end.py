"""How the engine ended what came before an exit step: whether a stage that was not routed was not needed."""

from __future__ import annotations

import os

from shoestring.backends.local_tasks import local_tasks
from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.errors import ClusterError
from shoestring.core.interfaces import Workflows
from shoestring.core.pod_ref import NODE_VARIABLE
from shoestring.core.record import record_bytes
from shoestring.data.run_records import EngineEnd, Run
from shoestring.runtime.records.run_setup import own_workflow

EXIT_HOOK = ".onExit"
"""In the name of an exit step's node, after the name of the node that it settles."""
ENDED_PHASES = ("Succeeded", "Failed", "Error", "")
"""Of a Workflow that has ended, or was deleted."""


def record_engine_end(world: World, run: Run) -> None:
    """Record, in an exit step, whether all that it settles has succeeded."""
    local, workflow = local_tasks(), own_workflow(world)
    if local is not None:
        write_engine_end(world, run, succeeded=not any(task.reason for task in local.tasks.values()))
    elif workflow:
        node = os.environ.get(NODE_VARIABLE, "").rpartition(EXIT_HOOK)[0]
        write_engine_end(world, run, succeeded=has_succeeded(world, workflow, node))


def has_succeeded(world: World, workflow: str, node: str = "") -> bool | None:
    """Return whether a Workflow, or its node of this name, has succeeded; None: it cannot be read."""
    if not isinstance(world.cluster, Workflows):
        return None
    try:
        phase = world.cluster.phase(workflow, node)
    except ClusterError:
        # The money is settled all the same.
        return None
    return phase == "Succeeded" if phase else None


def write_engine_end(world: World, run: Run, *, succeeded: bool | None) -> None:
    """Record how the last start of a run ended on its engine; what was recorded first stays."""
    end = EngineEnd(start=run.start.number, at=world.clock.now(), succeeded=succeeded)
    world.store.put(store_layout.engine_end(run.run_id, run.start.number), record_bytes(end), if_absent=True)
