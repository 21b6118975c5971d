"""The seams on a cluster: pools from its nodes, prices of shares of them, a pod's life."""

from __future__ import annotations

import atexit
import gc
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

from shoestring.backends.kubernetes.api import Kube, connect
from shoestring.backends.kubernetes.node_facts import node_facts, pod_facts
from shoestring.backends.kubernetes.pools import Seen, priced, see, unseen
from shoestring.backends.kubernetes.world_files import (
    Folder,
    NodePool,
    file_path,
    read_folder,
    read_prices,
    read_world,
)
from shoestring.backends.local import PsutilTelemetry, WallClock, this_process, threads, written_at
from shoestring.backends.nvml import NvmlTelemetry
from shoestring.backends.s3.store import open_s3_store
from shoestring.config.world import IMAGES, PriceBook, World
from shoestring.core.errors import ClusterError, NotAllowed, WorldError
from shoestring.core.interfaces import Clock, PodLifetime
from shoestring.core.money import usd
from shoestring.core.types import Placement, Pool, Quote
from shoestring.pricing.price_book import current_price

FRESH_S = 10.0
"""A decision asks for the pools several times; for so long it is given the same."""

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
IDENTITY = ("SHOESTRING_POD_NAMESPACE", "SHOESTRING_POD_UID", "SHOESTRING_POD_NAME")
ENDED = ("Succeeded", "Failed")
# What the sweeper says of a pod that did not begin in time; of when that ended, no container and no condition tells.
GIVEN_UP = "GivenUp"
# After the end of a deleted pod's grace, which is what its deletionTimestamp says, clocks and a slow kubelet included.
OVERDUE = timedelta(seconds=60)
UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"


class KubeCluster:
    """Nodes and pods of one cluster. `notes` is added to when they are read; `connected` is called when the cluster is first needed."""

    def __init__(
        self,
        declared: tuple[NodePool, ...],
        notes: list[str],
        own_uid: str,
        clock: Clock,
        connected: Callable[[], Kube],
    ) -> None:
        self._declared, self._notes, self._own_uid, self._clock, self._connected = (
            declared,
            notes,
            own_uid,
            clock,
            connected,
        )
        self._seen: tuple[float, Seen] | None = None

    @cached_property
    def _kube(self) -> Kube:
        return self._connected()

    def pools(self) -> tuple[Pool, ...]:
        """Shares of nodes. Raises ClusterError, and WorldError where nodes may not be read and no pool is declared."""
        return tuple(share.pool for share in self.seen().shares)

    def seen(self) -> Seen:
        now_s = self._clock.monotonic_s()
        if self._seen is None or now_s - self._seen[0] > FRESH_S:
            self._seen = (now_s, self._read())
            self._notes.extend(note for note in self._seen[1].notes if note not in self._notes)
        return self._seen[1]

    def _read(self) -> Seen:
        try:
            with uncollected():
                nodes = [node_facts(item) for item in self._kube.list("/api/v1/nodes", "list nodes")]
                pods = self._kube.list(
                    "/api/v1/pods", "list pods in all namespaces", fieldSelector=UNFINISHED
                )
                return see(nodes, [facts for item in pods if (facts := pod_facts(item))], self._declared)
        except NotAllowed as error:
            seen = unseen(self._declared)
            if not seen.shares:
                raise WorldError(
                    f"{error}; or declare pools with their machine in pools.yaml, which need no such right"
                ) from None
            note = f"{error}; until then the pools that pools.yaml declares are all there is, and how full they are is not known"
            return Seen(seen.shares, seen.wholes, (note, *seen.notes))

    def apply_placement(self, placement: Placement) -> dict[str, str]:
        """The pod's limits hold already; libraries would still start a thread for each core of the node."""
        return threads(max(1, int(float(placement.cpu))))

    def lifetime(self, pod_uid: str) -> PodLifetime:
        namespace, labels, selector = pod_uid.partition("?")
        if labels:
            path, right = f"/api/v1/namespaces/{namespace}/pods", f"list pods in namespace {namespace}"
            lives = [
                life_of(pod, self._answered_at())
                for pod in self._kube.list(path, right, labelSelector=selector)
            ]
            return max(
                lives,
                key=lambda life: life.started_at or datetime.min.replace(tzinfo=UTC),
                default=PodLifetime(alive=False),
            )
        namespace, _, rest = pod_uid.partition(".")
        uid, _, name = rest.partition(".")
        if not UUID.fullmatch(uid):
            # Not a pod: a process on some machine, of which nobody can tell from here.
            return PodLifetime(alive=True)
        try:
            pod = self._kube.get(
                f"/api/v1/namespaces/{namespace}/pods/{name}", f"get pods in namespace {namespace}"
            )
        except ClusterError as error:
            if pod_uid != self._own_uid or isinstance(error, NotAllowed):
                raise
            # Paid work does not end because the cluster cannot say when it began; the exit step will ask again.
            return PodLifetime(alive=True)
        return (
            life_of(pod, self._answered_at()) if pod and pod["metadata"]["uid"] == uid else PodLifetime(alive=False)
        )

    def _answered_at(self) -> datetime:
        """By the clock that the moments in a pod's status are of, where the server tells it."""
        return self._kube.answered_at or self._clock.now()


class NodePrices:
    """The folder's prices of whole nodes, for the shares that there are."""

    def __init__(self, folder: Folder, source: Path, cluster: KubeCluster, clock: Clock) -> None:
        """`source`: where the folder's prices are read again while a pod runs."""
        self._folder, self._source, self._cluster, self._clock = folder, source, cluster, clock
        self._written, self._newest = written_at(source), folder.listing

    def book(self) -> PriceBook:
        return priced(
            self._folder.listing, self._cluster.seen(), self._folder.world.tariffs, self._clock.now().date()
        )

    def current_usd_per_hour(self, quote: Quote, pool: Pool) -> Decimal | None:
        """By as much as the whole node's price has moved since this pod began: a stage may not read nodes, whose shares are priced."""
        if (written := written_at(self._source)) != self._written:
            with suppress(WorldError):
                self._newest, self._written = read_prices(self._source), written
        node, today = pool.model_copy(update={"name": pool.node_pool or pool.name}), self._clock.now().date()
        before, now = (
            current_price(listing, node, quote.market, today) for listing in (self._folder.listing, self._newest)
        )
        return None if not before or not now else usd(quote.usd_per_hour * now / before)


@contextmanager
def uncollected() -> Iterator[None]:
    """Without Python's search for cycles, of which JSON has none: it takes twice as long as reading 5,000 pods."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def life_of(pod: Mapping[str, Any], now: datetime) -> PodLifetime:
    """What a pod's status says of its life. One that should have gone by now is dead: its node does not answer, and may never again."""
    status, deleted = pod.get("status") or {}, (pod.get("metadata") or {}).get("deletionTimestamp")
    due = _moment(deleted) if deleted else None
    overdue = due if due and now - due > OVERDUE else None
    ended_itself = status.get("phase") in ENDED
    containers = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    ended = [state for each in containers if (state := (each.get("state") or {}).get("terminated"))]
    conditions = {
        each["type"]: each for each in status.get("conditions") or [] if each.get("status") == "True"
    }
    scheduled = (conditions.get("PodScheduled") or {}).get("lastTransitionTime") or status.get("startTime")
    # A pod that was evicted may have no container to ask; then its conditions turned when it ended.
    last = [state["finishedAt"] for state in ended if state.get("finishedAt")]
    turned = [
        each["lastTransitionTime"]
        for each in status.get("conditions") or []
        if each.get("lastTransitionTime")
    ]
    ends = last or (turned if status.get("reason") != GIVEN_UP else [])
    return PodLifetime(
        alive=not ended_itself and overdue is None,
        started_at=_moment(scheduled) if scheduled else None,
        finished_at=max(map(_moment, ends), default=None) if ended_itself else overdue,
        reason=_why(status, containers, ended, conditions),
        asked_at=now,
    )


def _why(
    status: Mapping[str, Any], containers: list[Any], ended: list[Any], conditions: Mapping[str, Any]
) -> str:
    """The reason that says most: memory, what the cluster did to the pod, an exit code, what it waits for."""
    reasons = [state.get("reason", "") for state in ended]
    if "OOMKilled" in reasons:
        return "OOMKilled"
    if done_to_it := status.get("reason") or (conditions.get("DisruptionTarget") or {}).get("reason"):
        return ": ".join(filter(None, (done_to_it, status.get("message", "").strip())))
    if failed := [state for state in ended if state.get("exitCode")]:
        return f"{failed[0].get('reason', 'Error')}, exit code {failed[0]['exitCode']}"
    if status.get("phase") == "Pending":
        waiting = [(each.get("state") or {}).get("waiting", {}).get("reason", "") for each in containers]
        return next(filter(None, waiting), "Pending")
    return ""


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def pod_identity() -> str:
    """Of this pod, as NAMESPACE.UID.NAME, by the downward API; outside a pod, of this process."""
    parts = [os.environ.get(name, "") for name in IDENTITY]
    return ".".join(parts) if all(parts) else this_process()


def open_cluster_world(folder: Path, *, context: str | None = None) -> World:
    """The World that a folder of files names, on the cluster that this pod is in (or the kubeconfig's context names).

    Nothing of the cluster is read before pools, prices or a pod's life are asked for.

    Raises:
        WorldError: a file is missing or malformed, and there is no last good copy of it in the store.
    """
    clock, own_uid = WallClock(), pod_identity()
    world = read_world(folder)
    scratch = tempfile.mkdtemp(prefix="shoestring-store-")
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    store = open_s3_store(world.store, Path(scratch), clock)
    files = read_folder(folder, world, store)
    notes = list(files.notes)
    cluster = KubeCluster(files.pools, notes, own_uid, clock, lambda: connect(context))
    return World(
        name=world.name,
        digest=files.digest,
        policy=files.rules,
        budgets=files.budgets,
        images=IMAGES | world.images,
        notes=notes,
        prices=NodePrices(files, file_path(folder, "prices"), cluster, clock),
        cluster=cluster,
        store=store,
        telemetry=NvmlTelemetry(PsutilTelemetry()),
        clock=clock,
        pod_uid=own_uid,
    )
