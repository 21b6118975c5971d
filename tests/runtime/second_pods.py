"""A first pod that is lost or ends, and a second pod of its decision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from runtime_world import (
    INGEST,
    FakeCluster,
    SetClock,
    StartedAttempt,
    attempt_in_pod,
    begin,
    on_cluster,
    run_request,
    small_world,
)

from shoestring.config.world import World
from shoestring.core.interfaces import PodLifetime
from shoestring.core.pod_ref import PodRef
from shoestring.core.receipt import Cause
from shoestring.core.types import Pool
from shoestring.routing.decision import Decision
from shoestring.runtime.supervisor.attempt_lock import lock_attempt
from shoestring.runtime.supervisor.child import ChildResult
from shoestring.runtime.supervisor.run_stage import settle_and_record
from shoestring.runtime.supervisor.supervisor import write_heartbeat

FIRST, SECOND, THIRD = "ns.1.ingest", "ns.2.ingest", "ns.3.ingest"
RECEIPT = "runs/r/receipts/ingest-1.json"
SMALL = Pool(name="cpu-1", cores=1, memory_gb=2)
LARGE = Pool(name="cpu-2", cores=2, memory_gb=4)


class ActingClock(SetClock):
    """A clock that does something whenever it sleeps, until `acts_s` have passed."""

    def __init__(self) -> None:
        super().__init__()
        self.act: Callable[[], None] = lambda: None
        self.acts_s = 0.0

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.monotonic_s() < self.acts_s:
            self.act()


def first_attempt(
    laptop: Path, recipe: Path, folder: Path, deadline_s: float | None = None
) -> StartedAttempt:
    world, _ = on_cluster(small_world(laptop, folder, ActingClock()), (SMALL, LARGE))
    return begin(world, run_request(recipe, needs=INGEST).with_terms(deadline_s=deadline_s))


def clock_of(began: StartedAttempt) -> ActingClock:
    assert isinstance(began.world.clock, ActingClock)
    return began.world.clock


def lifetimes_of(began: StartedAttempt) -> dict[str, PodLifetime]:
    assert isinstance(began.world.cluster, FakeCluster)
    return began.world.cluster.lifetimes


def in_pod(began: StartedAttempt, pod: str) -> World:
    return replace(began.world, pod=PodRef.parse(pod))


def second_pod(began: StartedAttempt, pod: str = SECOND) -> Decision:
    """Start a pod of the first decision; return the decision of its own attempt."""
    attempt = began.attempt
    locked = lock_attempt(in_pod(began, pod), attempt.decision, attempt.choice, attempt.decision_key)
    assert isinstance(locked, tuple)
    return locked[0]


def run_first_pod(began: StartedAttempt) -> None:
    """Let the first pod run for two seconds."""
    write_heartbeat(attempt_in_pod(began, FIRST), "running")
    began.world.clock.sleep(2)
    write_heartbeat(attempt_in_pod(began, FIRST), "running")


def lose_first_pod(began: StartedAttempt, lifetime: PodLifetime | None = None) -> None:
    run_first_pod(began)
    lifetimes_of(began)[FIRST] = lifetime or PodLifetime(alive=False)


def end_first_pod(began: StartedAttempt, status: str, cause: Cause, reason: str = "its reason") -> None:
    """Let the supervisor of the first pod settle after two seconds."""
    run_first_pod(began)
    settle_and_record(attempt_in_pod(began, FIRST), ChildResult(status=status, cause=cause, reason=reason))
    lifetimes_of(began)[FIRST] = PodLifetime(alive=False, finished_at=began.world.clock.now())
