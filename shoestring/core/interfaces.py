"""The five places where the outside comes in, and a sixth for the sweeper alone. Each has at most three verbs; ask for the one you need,
not for the World."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from shoestring.core.pod_ref import ClusterPod, PodRef
from shoestring.core.types import STANDARD_CLASS, Placement, Pool


@dataclass(frozen=True, slots=True)
class PodLifetime:
    """When a pod lived, by the cluster's clock. `finished_at` is None while it runs, and also when it is gone and nobody saw it end.

    `why`: what the cluster says of its end (OOMKilled, Evicted, ...); empty when it says nothing. `asked_at`: what its clock said when
    it answered; None where it is the clock of whoever asked.
    """

    alive: bool
    started_at: datetime | None = None
    finished_at: datetime | None = None
    reason: str = ""
    asked_at: datetime | None = None

    def age_s(self, now: datetime) -> float:
        """Seconds from its start to when its cluster answered, else to `now`: a node's clock may be minutes off. 0: not known."""
        return (
            max(0.0, ((self.asked_at or now) - self.started_at).total_seconds()) if self.started_at else 0.0
        )


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """What a process uses now, and what the GPUs of its machine say: joules since somebody began to count; None where nobody does."""

    cpu_s: float
    rss_bytes: int
    gpu_joules: float | None = None
    gpu_memory_bytes: int = 0
    gpu_busy: float | None = None


class Cluster(Protocol):
    def pools(self) -> tuple[Pool, ...]: ...

    def apply_placement(self, placement: Placement) -> dict[str, str]:
        """Apply to this process what the engine did not (on a cluster: nothing). Returns environment for its children."""
        ...

    def lifetime(self, pod: PodRef) -> PodLifetime:
        """Return the lifetime of one pod. Raises ClusterError."""
        ...


class Store(Protocol):
    """Objects under keys. Keys under `blobs/` are digests and never change."""

    def fetch(self, key: str) -> Path:
        """A local file with the object's bytes, not to be written to. Raises NotInStore."""
        ...

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = STANDARD_CLASS
    ) -> bool:
        """Write whole or not at all, durably. False: `if_absent` and it was there. A Path is copied. `storage_class`: the storage class to put it
        on, where the store has any. Raises StoreFull."""
        ...

    def list(self, prefix: str) -> Iterator[str]:
        """Keys that start with `prefix`, sorted."""
        ...


class Telemetry(Protocol):
    def usage(self, pid: int) -> ProcessUsage: ...


class Clock(Protocol):
    def now(self) -> datetime: ...

    def monotonic_s(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class StagePod:
    """A stage's pod. `run_id`: what its labels call the run. `since`: when it was made; `node`: the one that took it, empty while none has.
    `waits`: it has not begun; `why`: what the cluster says it waits for. `version`: as it was seen."""

    ref: ClusterPod
    run_id: str
    stage: str
    since: datetime
    node: str
    pending: bool
    reason: str
    version: str
    lifetime: PodLifetime


class PendingPods(Protocol):
    """Not in the World: only the sweeper may end pods."""

    def pods(self) -> tuple[StagePod, ...]:
        """All stage pods that there are, less those that ended well."""
        ...

    def end(self, pod: StagePod) -> bool:
        """End a pod, if it is still as it was seen. False: it is not."""
        ...
