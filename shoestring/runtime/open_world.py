"""Open the World that a component's `world` argument names."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from shoestring.backends.admitted_world import admitted_world
from shoestring.backends.local import default_world_path, open_local_world
from shoestring.backends.reading_store import ReadingStore
from shoestring.config.world import World
from shoestring.core.errors import UsageError
from shoestring.core.interfaces import PendingPods, StoreTimes

STORE_VARIABLE = "SHOESTRING_STORE"


def open_world(world: str, store: Path | None = None, *, reads_only: bool = False) -> World:
    """Open a cluster's world (a folder), a machine's world (a file), or the default one (empty).

    `store`, or else `$SHOESTRING_STORE`, replaces the store folder that a machine's world file names. Every
    process of a run has to have the same value. A step of a run on a machine opens the world in which the run
    was admitted. `reads_only`: nothing is written to the store; what this
    process writes stays with it.

    Raises:
        WorldError: the world is missing or malformed.
    """
    path, named = Path(world) if world else default_world_path(), os.environ.get(STORE_VARIABLE)
    if path.is_dir():
        # Imported here: the clients of Kubernetes and S3 take 0.5 s to import.
        from shoestring.backends.kubernetes.cluster import open_cluster_world
        from shoestring.backends.s3.store import S3Access

        return open_cluster_world(path, access=S3Access(reads_only=reads_only))
    admitted = admitted_world(path)
    opened = open_local_world(
        path,
        store=store or (Path(named) if named else None),
        admitted=admitted.world if admitted else None,
        read=admitted.read if admitted else None,
    )
    return replace(opened, store=ReadingStore(opened.store)) if reads_only else opened


def open_world_on(context: str, namespace: str, *, reads_only: bool) -> World:
    """Open the world in a namespace of the cluster of a kubeconfig's context, from outside the cluster.

    Raises:
        UsageError: there is no such context, the namespace has no world, or credentials are missing.
        ClusterError: the cluster cannot be reached, or allows too little.
    """
    from shoestring.backends.kubernetes.remote_world import open_remote_world

    return open_remote_world(context, namespace, reads_only=reads_only)


def open_reaper_on(context: str, namespace: str) -> tuple[World, PendingPods, StoreTimes]:
    """Do `open_reaper` from outside the cluster."""
    from shoestring.backends.kubernetes.stage_pods import open_pending_pods

    opened = open_world_on(context, namespace, reads_only=False)
    assert isinstance(opened.store, StoreTimes)
    return opened, open_pending_pods(context, namespace), opened.store


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
