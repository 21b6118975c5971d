"""The interfaces on a cluster: pools from its nodes, prices of shares of nodes, lifetimes of pods."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from pathlib import Path

from shoestring.backends.kubernetes.api import Item, KubeApi, connect
from shoestring.backends.kubernetes.discovery import pool_of_node, pool_with_labels
from shoestring.backends.kubernetes.node_info import garbage_collection_paused, parse_node, parse_pod
from shoestring.backends.kubernetes.pod_lifetime import end_notice, item_of_pod, node_phase, pod_lifetime
from shoestring.backends.kubernetes.pools import (
    ClusterSnapshot,
    declared_snapshot,
    price_shares,
    take_snapshot,
)
from shoestring.backends.kubernetes.rights import POD_READER, REAPER, ROUTER, SETTLE, Right
from shoestring.backends.kubernetes.world_files import (
    ClusterFiles,
    NodePool,
    file_path,
    read_cluster_files,
    read_prices,
    read_world,
)
from shoestring.backends.local import WallClock, this_process
from shoestring.backends.processes import thread_variables
from shoestring.backends.reading_store import ReadingStore
from shoestring.backends.s3.location import S3Location
from shoestring.backends.s3.store import OWN_ACCESS, S3Access, open_s3_store
from shoestring.backends.sources.data_variables import S3Server
from shoestring.backends.sources.obstore_sources import ObstoreSources
from shoestring.config.world import IMAGES, PriceBook, World
from shoestring.core.errors import ClusterError, NotAllowed, WorldError
from shoestring.core.interfaces import Clock, EndNotice, PodLifetime
from shoestring.core.money import usd
from shoestring.core.pod_ref import ClusterPod, LabelledPod, PodRef
from shoestring.core.types import Placement, Pool, Quote
from shoestring.data.scratch.temporary_folders import folder_until_exit
from shoestring.pricing.catalogues import ListingFile
from shoestring.pricing.price_book import charged_price, current_price

SNAPSHOT_TTL_S = 10.0
"""A decision asks for the pools several times, and is given the same snapshot for this long."""

NOTICE_TIMEOUT_S = 3.0
IDENTITY_VARIABLES = ("SHOESTRING_POD_NAMESPACE", "SHOESTRING_POD_UID", "SHOESTRING_POD_NAME")
LIST_NODES, LIST_PODS = Right("list", "nodes", role=ROUTER), Right("list", "pods", role=ROUTER)
UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"


class KubeCluster:
    """The nodes and pods of one cluster.

    Reading the nodes adds sentences to `notes`. `connect_api` is called when the cluster is first needed.
    `own_pod` is this process.
    """

    def __init__(
        self,
        declared: tuple[NodePool, ...],
        notes: list[str],
        own_pod: PodRef | None,
        clock: Clock,
        connect_api: Callable[[], KubeApi],
    ) -> None:
        self._declared, self._notes, self._own_pod = declared, notes, own_pod
        self._clock, self._connect_api = clock, connect_api
        self._cached: tuple[float, ClusterSnapshot] | None = None

    @cached_property
    def _api(self) -> KubeApi:
        return self._connect_api()

    def pools(self) -> tuple[Pool, ...]:
        """Return shares of nodes.

        Raises ClusterError; WorldError without the right to read nodes and without declared pools.
        """
        return tuple(share.pool for share in self.snapshot().shares)

    def snapshot(self) -> ClusterSnapshot:
        now_s = self._clock.monotonic_s()
        if self._cached is None or now_s - self._cached[0] > SNAPSHOT_TTL_S:
            self._cached = (now_s, self._read())
            self._notes.extend(note for note in self._cached[1].notes if note not in self._notes)
        return self._cached[1]

    def _read(self) -> ClusterSnapshot:
        try:
            with garbage_collection_paused():
                nodes = [parse_node(item) for item in self._api.list("/api/v1/nodes", LIST_NODES)]
                pods = self._api.list("/api/v1/pods", LIST_PODS, fieldSelector=UNFINISHED)
                return take_snapshot(
                    nodes, [pod for item in pods if (pod := parse_pod(item))], self._declared
                )
        except NotAllowed as error:
            declared = declared_snapshot(self._declared)
            if not declared.shares:
                raise WorldError(
                    f"{error}; or declare pools with their machine in pools.yaml, which need no such right"
                ) from None
            note = f"{error}; until then only pools of pools.yaml are used, with unknown free capacity"
            return ClusterSnapshot(declared.shares, declared.whole_nodes, (note, *declared.notes))

    def phase(self, workflow: str, node: str = "") -> str | None:
        """Return the phase of a Workflow or of its node; empty: there is none; None: it may not be read."""
        namespace, _, name = workflow.partition("/")
        path = f"/apis/argoproj.io/v1alpha1/namespaces/{namespace}/workflows/{name}"
        try:
            found = self._api.get(path, Right("get", "workflows", namespace, REAPER))
        except NotAllowed:
            return None
        status = (found or {}).get("status") or {}
        return node_phase(status, node) if node else str(status.get("phase", ""))

    def end_notice(self, pod: ClusterPod) -> EndNotice:
        """Return the notice of a pod that runs. A thread may ask, since it has a client of its own."""
        api = self._api.impatient(NOTICE_TIMEOUT_S)
        item = self._pod(pod, api)
        return end_notice(item, api.server_time or self._clock.now()) if item else EndNotice(0)

    def pool_of_pod(self, pod: PodRef) -> str:
        """Return the name of the node pool of a pod; empty: it is in none, or is not known to this account.

        It is the declared pool that the pod's node selector names, or else that of its node.
        """
        try:
            item = self._pod(pod) if isinstance(pod, ClusterPod) else None
            spec = (item or {}).get("spec") or {}
            if bound := pool_with_labels(spec.get("nodeSelector") or {}, self._declared):
                return bound.name
            return self._pool_of_node(spec.get("nodeName") or "")
        except ClusterError:
            # The step that asks is booked at the highest price then; it must not fail for this.
            return ""

    def _pool_of_node(self, name: str) -> str:
        # A list of one node: no account has the right to get nodes.
        query = {"fieldSelector": f"metadata.name={name}"}
        found = self._api.list("/api/v1/nodes", LIST_NODES, **query) if name else ()
        nodes = [node for item in found if (node := parse_node(item)).name == name]
        return pool_of_node(nodes[0], self._declared) if nodes else ""

    def apply_placement(self, placement: Placement) -> dict[str, str]:
        """Return the thread counts of numeric libraries: the pod's limits apply already, but libraries count
        the node's cores.
        """
        return thread_variables(max(1, int(float(placement.cpu))))

    def lifetime(self, pod: PodRef) -> PodLifetime:
        match pod:
            case LabelledPod():
                return self._newest_lifetime(pod)
            case ClusterPod():
                return self._lifetime(pod)
            case _:
                # A process on some machine, which the cluster cannot see.
                return PodLifetime(alive=True)

    def _newest_lifetime(self, pod: LabelledPod) -> PodLifetime:
        path, right = f"/api/v1/namespaces/{pod.namespace}/pods", Right("list", "pods", pod.namespace, SETTLE)
        listed = self._api.list(path, right, labelSelector=pod.selector)
        found = [item for item in listed if item_of_pod(item) == pod.item]
        # By creation: a pod that no node has accepted yet is newer than one that has ended.
        in_order = sorted(found, key=lambda item: str(item["metadata"]["creationTimestamp"]))
        lifetimes = [pod_lifetime(item, self._now()) for item in in_order]
        if not lifetimes:
            return PodLifetime(alive=False)
        return replace(lifetimes[-1], earlier=tuple(lifetimes[:-1]))

    def _lifetime(self, pod: ClusterPod) -> PodLifetime:
        try:
            item = self._pod(pod)
        except ClusterError as error:
            if pod != self._own_pod or isinstance(error, NotAllowed):
                raise
            # Paid work must not end because the cluster cannot say when it began. The exit step asks again.
            return PodLifetime(alive=True)
        return PodLifetime(alive=False) if item is None else pod_lifetime(item, self._now())

    def _pod(self, pod: ClusterPod, api: KubeApi | None = None) -> Item | None:
        """Return a pod; None if it is gone, or another one has its name. Raises ClusterError."""
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        item = (api or self._api).get(path, Right("get", "pods", pod.namespace, POD_READER))
        return item if item is not None and item["metadata"]["uid"] == pod.uid else None

    def _now(self) -> datetime:
        """Return the time by the cluster's clock, which also sets the times in a pod's status; else by this
        machine's clock.
        """
        return self._api.server_time or self._clock.now()


class NodePrices:
    """The prices of whole nodes in the world's files, converted to prices of shares of nodes."""

    def __init__(self, files: ClusterFiles, source: Path, cluster: KubeCluster, clock: Clock) -> None:
        """`source` is the file of prices, which is read again while a pod runs."""
        self._files, self._cluster, self._clock = files, cluster, clock
        self._file = ListingFile(files.listing, source, read_prices)

    def book(self) -> PriceBook:
        return price_shares(
            self._files.listing, self._cluster.snapshot(), self._files.world.tariffs, self._clock.now().date()
        )

    def current_usd_per_hour(self, quote: Quote, pool: Pool) -> Decimal | None:
        """Return the quoted price, scaled by the change of the whole node's price since then.

        The price of the share itself is not known: a stage's pod may not be allowed to read nodes.
        """
        self._file.look()
        node, today = self._node(pool), self._clock.now().date()
        before = quote.node_usd_per_hour or current_price(self._files.listing, node, quote.market, today)
        return scaled_price(quote, before, current_price(self._file.newest, node, quote.market, today))

    def charged_usd_per_hour(self, quote: Quote, pool: Pool) -> Decimal | None:
        if (listing := self._file.look()) is None:
            return None
        node, today = self._node(pool), self._clock.now().date()
        # Decisions of earlier versions do not name the node's price: that of this pod's start counts.
        before = quote.node_usd_per_hour or charged_price(
            self._files.listing, node, quote.market, today, Decimal(0)
        )
        now = charged_price(listing, node, quote.market, today, before or Decimal(0))
        return scaled_price(quote, before, now)

    @staticmethod
    def _node(pool: Pool) -> Pool:
        """Return the pool of the whole nodes that a pool is a share of."""
        return pool.model_copy(update={"name": pool.node_pool or pool.name})


def scaled_price(quote: Quote, before: Decimal | None, now: Decimal | None) -> Decimal | None:
    """Return the price of a share, by the prices of its whole node; None where one is not known."""
    return usd(quote.usd_per_hour * now / before) if before and now else None


def this_pod() -> PodRef:
    """Return this pod, by the variables that the downward API sets; outside a pod, this process."""
    namespace, uid, name = (os.environ.get(variable, "") for variable in IDENTITY_VARIABLES)
    return ClusterPod(namespace, uid, name) if namespace and uid and name else this_process()


def s3_server(location: S3Location, access: S3Access) -> S3Server:
    """Return the server of the store, where sources on S3 are read unless the environment names another."""
    scheme = "https" if location.secure else "http"
    return S3Server(f"{scheme}://{access.address or location.endpoint}", location.region, access.credentials)


def open_cluster_world(folder: Path, *, context: str | None = None, access: S3Access = OWN_ACCESS) -> World:
    """Open the World that a folder of files describes, on the cluster of this pod or of a kubeconfig's
    context.

    The cluster is first read when pools, prices or a pod's lifetime are asked for. `access` is that to its
    store.

    Raises:
        WorldError: a file is missing or malformed, and the store has no last good copy of it.
    """
    clock, own_pod = WallClock(), this_pod()
    world = read_world(folder)
    shared = open_s3_store(world.store, folder_until_exit(), clock, access)
    store = ReadingStore(shared) if access.reads_only else shared
    files = read_cluster_files(folder, world, store)
    notes = list(files.notes)
    cluster = KubeCluster(files.pools, notes, own_pod, clock, lambda: connect(context))
    return World(
        name=world.name,
        digest=files.digest,
        policy=files.policy,
        budgets=files.budgets,
        images=IMAGES | world.images,
        notes=notes,
        prices=NodePrices(files, file_path(folder, "prices"), cluster, clock),
        cluster=cluster,
        store=store,
        remote=ObstoreSources(s3_server(world.store, access)),
        clock=clock,
        pod=own_pod,
    )
