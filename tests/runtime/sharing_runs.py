"""Runs that need the same result, on machines whose clocks are off, and a store with a clock of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from clocks import BOOT_S
from runtime_world import INGEST, FakeCluster, StartedAttempt, begin, run_request, with_probed_speeds

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.local import open_local_world
from shoestring.config.world import World
from shoestring.core import store_layout
from shoestring.core.interfaces import PodLifetime
from shoestring.core.pod_ref import PodRef
from shoestring.core.types import Need, StageOutcome
from shoestring.data.run_records import Run
from shoestring.data.storage import cache
from shoestring.data.storage.blobs import put_blob
from shoestring.routing.decision import Decision
from shoestring.runtime.admission.admit import admit
from shoestring.runtime.admission.stage_request import StageInputs
from shoestring.runtime.records.overhead import OverheadPod
from shoestring.runtime.route_step.route import decide_and_reserve
from shoestring.runtime.supervisor.supervisor import write_heartbeat

HOLDER_POD = "holder.2.2"


@dataclass
class Timeline:
    """The time that all clocks share. It passes where somebody sleeps; `tick` is called for each second."""

    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    at_s: float = 0.0
    tick: Callable[[float], None] = lambda at_s: None

    def now(self) -> datetime:
        return self.began + timedelta(seconds=self.at_s)

    def pass_s(self, seconds: float) -> None:
        end_s = self.at_s + seconds
        while int(self.at_s) < int(end_s):
            self.at_s = float(int(self.at_s) + 1)
            self.tick(self.at_s)
        self.at_s = max(self.at_s, end_s)


@dataclass
class SkewedClock:
    """A machine's clock that is off by `skew_s`."""

    time: Timeline
    skew_s: float

    def now(self) -> datetime:
        return self.time.now() + timedelta(seconds=self.skew_s)

    def monotonic_s(self) -> float:
        return BOOT_S + self.time.at_s

    def sleep(self, seconds: float) -> None:
        self.time.pass_s(seconds)


class TimedStore(FolderStore):
    """A folder on a server with a clock of its own."""

    def __init__(self, root: Path, time: Timeline) -> None:
        super().__init__(root)
        self.time = time

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = "standard"
    ) -> bool:
        written = super().put(key, data, if_absent=if_absent, storage_class=storage_class)
        if written:
            at = self.time.now().timestamp()
            os.utime(self.root / key, (at, at))
        return written


class SharedStore:
    """A store and machines that use it. All pods are alive, except those in `lifetimes`."""

    def __init__(self, laptop: Path, recipe: Path, folder: Path) -> None:
        self.laptop, self.recipe, self.folder, self.time = laptop, recipe, folder, Timeline()
        self.store, self.lifetimes = TimedStore(folder / "store", self.time), dict[str, PodLifetime]()

    def machine(self, name: str, skew_s: float = 0.0) -> World:
        """Return the world of a machine, in a process of its own."""
        opened = open_local_world(self.laptop, store=self.folder / "store")
        cluster = FakeCluster(opened.cluster.pools())
        cluster.lifetimes = self.lifetimes
        world = replace(
            opened,
            store=self.store,
            cluster=cluster,
            clock=SkewedClock(self.time, skew_s),
            pod=PodRef.parse(f"{name}.1.1"),
        )
        return with_probed_speeds(self.folder / "store", world)

    def hold(self, name: str = "holder", skew_s: float = 0.0) -> StartedAttempt:
        """Begin a run whose ingest has the lease."""
        return begin(self.machine(name, skew_s), run_request(self.recipe, name, INGEST))

    def beat(self, held: StartedAttempt, pod: str = HOLDER_POD, state: str = "running") -> None:
        world = replace(held.world, pod=PodRef.parse(pod))
        write_heartbeat(replace(held.attempt, world=world), state)

    def beats_until(self, held: StartedAttempt, end_s: float, then: Callable[[], object]) -> None:
        """Let the holder write a heartbeat each second; `then` happens once, when it stops."""

        def tick(at_s: float) -> None:
            if at_s < end_s:
                self.beat(held)
            elif at_s == end_s:
                then()

        self.beat(held)
        self.time.tick = tick

    def admit(self, world: World, name: str, needs: tuple[Need, ...] = INGEST, deadline_s: float = 0) -> Run:
        request = run_request(self.recipe, name, needs).with_terms(deadline_s=deadline_s or None)
        return admit(world, request)

    def route(self, world: World, run: Run, pod: OverheadPod | None = None) -> Decision:
        request = run_request(self.recipe, run.run_id, INGEST)
        return decide_and_reserve(world, run, request, StageInputs(), pod)[0]

    def leases(self) -> list[str]:
        return [key.rpartition("/")[2] for key in self.store.list(store_layout.leases())]


def key_of(held: StartedAttempt) -> str:
    return held.attempt.decision.question.digests["cache"]


def publish(held: StartedAttempt, rows: int = 5) -> StageOutcome:
    """Publish a result for the holder; return the one that is stored."""
    blob = store_layout.blob(put_blob(held.world.store, b"%d rows" % rows))
    return cache.publish_outcome(held.world.store, key_of(held), StageOutcome(key=blob, rows=rows), {})
