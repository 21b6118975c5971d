"""The interfaces to the outside: cluster, store, remote sources, clock, and those of a few commands only.

Each has at most three methods. A function takes the interface that it needs, not the whole World.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from shoestring.core.pod_ref import ClusterPod, PodRef
from shoestring.core.types import STANDARD_CLASS, Placement, Pool


@dataclass(frozen=True, slots=True)
class PodLifetime:
    """Start and end of a pod, by the cluster's clock.

    `finished_at` is None while it runs, and when the pod vanished unobserved.

    `reason`: the cluster's reason for the end (OOMKilled, Evicted, ...); empty if it gives none. `asked_at`:
    the cluster's clock at its answer; None where the caller's own clock applies. `earlier`: where a reference
    names several pods, those before the newest, in order. `is_seen`: false where this process cannot see it,
    so that its signs of life decide.
    """

    alive: bool
    started_at: datetime | None = None
    finished_at: datetime | None = None
    reason: str = ""
    asked_at: datetime | None = None
    earlier: tuple[PodLifetime, ...] = ()
    is_seen: bool = True

    def began_since(self, moment: datetime) -> bool:
        """Return whether a node is known to have accepted it at this moment or later.

        A cluster reports whole seconds: what happened in the second of `moment` counts as later.
        """
        return self.started_at is not None and self.started_at >= moment.replace(microsecond=0)

    def age_s(self, now: datetime) -> float:
        """Return the seconds from its start to the cluster's answer, or to `now`; a node's clock may be
        minutes off.

        0: unknown.
        """
        return (
            max(0.0, ((self.asked_at or now) - self.started_at).total_seconds()) if self.started_at else 0.0
        )


class Cluster(Protocol):
    def pools(self) -> tuple[Pool, ...]: ...

    def apply_placement(self, placement: Placement) -> dict[str, str]:
        """Apply the parts of the placement that the engine did not (on a cluster: none).

        Returns environment variables for children.
        """
        ...

    def lifetime(self, pod: PodRef) -> PodLifetime:
        """Return the lifetime of one pod. Raises ClusterError."""
        ...


@runtime_checkable
class NodePools(Protocol):
    """A cluster whose nodes form pools."""

    def pool_of_pod(self, pod: PodRef) -> str:
        """Return the node pool that a pod runs on, or is bound to; empty: it is not known here."""
        ...


@dataclass(frozen=True, slots=True)
class EndNotice:
    """What a pod can know of its end. `notice_s`: the seconds that it runs on, before the first signal, from
    the moment that it is to end; 0: it never knows. `reason`: why it is to end; empty: it is not.
    """

    notice_s: float
    reason: str = ""


@runtime_checkable
class EndNotices(Protocol):
    """A cluster that lets a pod run on once it is to end, where the pod has a hook for it."""

    def end_notice(self, pod: ClusterPod) -> EndNotice:
        """Return it within 3 s. Raises ClusterError, or its subclass NotAllowed."""
        ...


@runtime_checkable
class Workflows(Protocol):
    """A cluster whose engine keeps each run as a Workflow."""

    def phase(self, workflow: str, node: str = "") -> str | None:
        """Return the phase of a Workflow, given as NAMESPACE/NAME, or of its node of this name; empty: there
        is none; None: that may not be read. Raises ClusterError.
        """
        ...


PARALLEL_READS = 16
"""Objects that are read at the same time: the number of connections that the S3 store keeps open."""


class Store(Protocol):
    """Objects under keys. Keys under `blobs/` are digests and never change."""

    def fetch(self, key: str) -> Path:
        """Return a read-only local file with the object's bytes. Raises NotInStore."""
        ...

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = STANDARD_CLASS
    ) -> bool:
        """Write the whole object durably, or nothing. Returns False if `if_absent` is set and the key exists.

        A Path is copied. `storage_class` applies where the store has storage classes.

        Raises:
            StoreFull: no space is left.
        """
        ...

    def list(self, prefix: str) -> Iterator[str]:
        """Return the keys that start with `prefix`, sorted."""
        ...


@runtime_checkable
class RangedReads(Protocol):
    """A store that returns a part of an object without making a local copy of it."""

    def read(self, key: str, start: int, stop: int) -> bytes:
        """Return the bytes from `start` up to `stop`; fewer where the object ends. Raises NotInStore."""
        ...


@runtime_checkable
class StoreTimes(Protocol):
    """When the objects of a store were written. Not part of the World: only the reaper has it."""

    def modified(self, prefix: str) -> Mapping[str, datetime]:
        """Return when each object whose key starts with `prefix` was last written, by the store's clock."""
        ...


@dataclass(frozen=True, slots=True)
class ListedObject:
    """An object as its store lists it. `modified_at`: when it was last written, by the store's clock."""

    size_bytes: int
    modified_at: datetime
    storage_class: str = STANDARD_CLASS


@runtime_checkable
class StoreInventory(Protocol):
    """The objects of a store. Not part of the World: `gc` and `where` have it.

    `place`: the folder, or the URL of bucket and prefix.
    """

    place: str

    def objects(self, prefix: str) -> Mapping[str, ListedObject]:
        """Return each object whose key starts with `prefix`, in the order of the keys."""
        ...


@runtime_checkable
class ObjectDeletion(Protocol):
    """The right to delete objects. Not part of the World: only `gc` has it."""

    def delete(self, key: str, written_before: datetime | None = None) -> bool:
        """Delete an object, durably. Returns False, and does nothing, if it is there and was last written at
        or after `written_before`, by the store's clock.

        An object that is not there counts as deleted. Raises StoreError: this store is only read, or the
        server does not permit it.
        """
        ...


@runtime_checkable
class VerifiedMarks(Protocol):
    """A store whose objects are files on one volume. It marks those whose bytes were found to match their
    digest, for all processes that read them there. A mark names the version of the file that was read.
    """

    def verified_version(self, key: str) -> str:
        """Return the version of an object's file that was verified; empty: none was."""
        ...

    def mark_verified(self, key: str, version: str) -> None:
        """Mark a version of an object's file as verified. Where the volume takes no mark, does nothing."""
        ...

    def forget_verified(self, key: str) -> None:
        """Remove the mark of an object, so that it is verified before its next use."""
        ...


@runtime_checkable
class FetchedCopies(Protocol):
    """A store that copies objects to this machine when they are fetched."""

    def drop_copy(self, key: str) -> None:
        """Delete the copy of a fetched object, which frees its space."""
        ...


@dataclass(frozen=True, slots=True)
class RemoteObject:
    """One version of a source file on a server, as it was listed.

    `name`: its path below the source's URL. `version`: the server's tag of its content, else the time of its
    last change. `identity`: a digest of server, URL, version and size.
    """

    url: str
    name: str
    size_bytes: int
    version: str
    identity: str


class RemoteSources(Protocol):
    """Source files on servers. All methods raise UsageError (credentials), RecipeError (no such place), and
    SourceUnreachable.
    """

    def list(self, url: str) -> tuple[RemoteObject, ...]:
        """Return the file at a URL, or the files below it, in no order."""
        ...

    def read(self, found: RemoteObject, start: int, end: int) -> bytes:
        """Return the bytes from `start` up to `end`. Raises DataError if the file is another version now."""
        ...


class Clock(Protocol):
    def now(self) -> datetime: ...

    def monotonic_s(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class StagePod:
    """A stage's pod as the cluster lists it.

    `run_id`: the run's name in its labels. `since`: its creation. `node`: empty until it is scheduled.
    `pending`: it has not started, and `reason` is the cluster's reason. `version`: the version that was read.
    `ending`: the reaper has ended it, and its node has not finished yet. `node_lost`: its node does not
    answer.
    """

    ref: ClusterPod
    run_id: str
    stage: str
    since: datetime
    node: str
    pending: bool
    reason: str
    version: str
    lifetime: PodLifetime
    ending: bool = False
    node_lost: bool = False


EndReason = Literal["TimedOut", "Silent", "OutOfMoney", "Unpaid"]
"""Why the reaper ended a pod; the cluster's reason for the end begins with it."""


class PendingPods(Protocol):
    """Stage pods, route and exit steps, and the right to end them. Not part of the World: only the reaper has
    it.
    """

    def pods(self) -> tuple[StagePod, ...]:
        """Return all stage pods except those that succeeded."""
        ...

    def waiting_steps(self) -> tuple[StagePod, ...]:
        """Return the pods of route and exit steps that no node has accepted. `stage` is their label."""
        ...

    def end(self, pod: StagePod, reason: EndReason, message: str) -> bool:
        """End a pod. Returns False, and does nothing, if it has changed since it was read."""
        ...
