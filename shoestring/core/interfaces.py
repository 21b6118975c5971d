"""The interfaces to the outside: cluster, store, telemetry and clock, and two that only the reaper is given.

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
    the cluster's clock at its answer; None where the caller's own clock applies.
    """

    alive: bool
    started_at: datetime | None = None
    finished_at: datetime | None = None
    reason: str = ""
    asked_at: datetime | None = None

    def age_s(self, now: datetime) -> float:
        """Return the seconds from its start to the cluster's answer, or to `now`; a node's clock may be
        minutes off.

        0: unknown.
        """
        return (
            max(0.0, ((self.asked_at or now) - self.started_at).total_seconds()) if self.started_at else 0.0
        )


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """The current use of a process, and of the machine's GPUs: joules since the counter started, None without
    a counter.
    """

    cpu_s: float
    rss_bytes: int
    gpu_joules: float | None = None
    gpu_memory_bytes: int = 0
    gpu_busy: float | None = None


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
class StoreTimes(Protocol):
    """When the objects of a store were written. Not part of the World: only the reaper has it."""

    def modified(self, prefix: str) -> Mapping[str, datetime]:
        """Return when each object whose key starts with `prefix` was last written, by the store's clock."""
        ...


class Telemetry(Protocol):
    def usage(self, pid: int) -> ProcessUsage: ...


class Clock(Protocol):
    def now(self) -> datetime: ...

    def monotonic_s(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class StagePod:
    """A stage's pod as the cluster lists it.

    `run_id`: the run's name in its labels. `since`: its creation. `node`: empty until it is scheduled.
    `pending`: it has not started, and `reason` is the cluster's reason. `version`: the version that was read.
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


EndReason = Literal["TimedOut", "Silent", "OutOfMoney"]
"""Why the reaper ended a pod; the cluster's reason for the end begins with it."""


class PendingPods(Protocol):
    """Stage pods and the right to end them. Not part of the World: only the reaper has it."""

    def pods(self) -> tuple[StagePod, ...]:
        """Return all stage pods except those that succeeded."""
        ...

    def end(self, pod: StagePod, reason: EndReason, message: str) -> bool:
        """End a pod. Returns False, and does nothing, if it has changed since it was read."""
        ...
