"""From the `world` argument of a component to a World."""

from __future__ import annotations

import os
from pathlib import Path

from shoestring.backends.local import default_world_path, open_local_world
from shoestring.config.world import World
from shoestring.core.errors import UsageError
from shoestring.core.interfaces import PendingPods

STORE_VARIABLE = "SHOESTRING_STORE"


def open_world(world: str) -> World:
    """Open the world that a component was given: a folder is a cluster's, a file a machine's; empty for the default place.

    `$SHOESTRING_STORE`, where it is set, takes the place of the folder that a machine's world file names, in every process of a run alike.

    Raises:
        WorldError: missing or malformed.
    """
    path, store = Path(world) if world else default_world_path(), os.environ.get(STORE_VARIABLE)
    if path.is_dir():
        # Here, because what speaks to clusters and to S3 takes half a second to import.
        from shoestring.backends.kubernetes.cluster import open_cluster_world

        return open_cluster_world(path)
    return open_local_world(path, store=Path(store) if store else None)


def open_reaper(world: str) -> tuple[World, PendingPods]:
    """A cluster's world, and the right to end what waits there. Raises WorldError, ClusterError; UsageError for a machine's world."""
    path = Path(world) if world else default_world_path()
    if not path.is_dir():
        raise UsageError(
            f"{path} is no folder of a cluster's world, so no pods wait in it; on one machine, `shoestring run` settles by itself"
        )
    from shoestring.backends.kubernetes.cluster import open_cluster_world
    from shoestring.backends.kubernetes.stage_pods import open_waiting

    return open_cluster_world(path), open_waiting()
