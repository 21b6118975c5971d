"""Open the World that a component's `world` argument names."""

from __future__ import annotations

import os
from pathlib import Path

from shoestring.backends.local import default_world_path, open_local_world
from shoestring.config.world import World
from shoestring.core.errors import UsageError
from shoestring.core.interfaces import PendingPods, StoreTimes

STORE_VARIABLE = "SHOESTRING_STORE"


def open_world(world: str, store: Path | None = None) -> World:
    """Open a cluster's world (a folder), a machine's world (a file), or the default one (empty).

    `store`, or else `$SHOESTRING_STORE`, replaces the store folder that a machine's world file names. Every
    process of a run has to have the same value.

    Raises:
        WorldError: the world is missing or malformed.
    """
    path, named = Path(world) if world else default_world_path(), os.environ.get(STORE_VARIABLE)
    if path.is_dir():
        # Imported here: the clients of Kubernetes and S3 take 0.5 s to import.
        from shoestring.backends.kubernetes.cluster import open_cluster_world

        return open_cluster_world(path)
    return open_local_world(path, store=store or (Path(named) if named else None))


def open_reaper(world: str) -> tuple[World, PendingPods, StoreTimes]:
    """Open a cluster's world, with the right to end its pods, and the times of its store's objects.

    Raises:
        WorldError: the world is missing or malformed.
        ClusterError: the cluster cannot be reached.
        UsageError: the world is a machine's.
    """
    path = Path(world) if world else default_world_path()
    if not path.is_dir():
        raise UsageError(
            f"{path} is not the folder of a cluster's world, so it has no pods to reap; "
            "on one machine, `shoestring run` settles by itself"
        )
    from shoestring.backends.kubernetes.cluster import open_cluster_world
    from shoestring.backends.kubernetes.stage_pods import open_pending_pods

    opened = open_cluster_world(path)
    assert isinstance(opened.store, StoreTimes)
    return opened, open_pending_pods(), opened.store
