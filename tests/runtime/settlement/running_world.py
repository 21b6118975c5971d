"""Running pods in a world whose clock and store's clock a test moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

from reaper_world import SMALL, pending_pod, shares_world
from runtime_world import INGEST, FakeCluster, StartedAttempt, attempt_in_pod, begin, run_request

from shoestring.config.world import World
from shoestring.core.errors import ClusterError, StoreError
from shoestring.core.interfaces import Clock, EndReason, PodLifetime, StagePod, Store
from shoestring.core.pod_ref import ClusterPod
from shoestring.core.types import STANDARD_CLASS
from shoestring.runtime.admission.first_request import RunRequest
from shoestring.runtime.admission.stage_request import StageInputs
from shoestring.runtime.route_step.route import decide_and_reserve
from shoestring.runtime.settlement.looks import RunningPodsWatch, open_watch
from shoestring.runtime.supervisor.attempt import Attempt
from shoestring.runtime.supervisor.supervisor import write_heartbeat

SKEW = timedelta(minutes=7)
"""How far the store's clock is behind the reaper's."""


class TimedStore:
    """A store with a clock of its own, which can be away, and counts its requests."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self.written, self.requests, self.away, self.slow_s = (
            dict[str, datetime](),
            Counter[str](),
            False,
            0.0,
        )

    def _request(self, verb: str, key: str) -> None:
        self.requests[f"{verb} {key}"] += 1
        if self.away:
            raise StoreError(f"{verb} {key}: no answer")

    def fetch(self, key: str) -> Path:
        self._request("GET", key)
        return self._store.fetch(key)

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = STANDARD_CLASS
    ) -> bool:
        self._request("PUT", key)
        self._clock.sleep(self.slow_s)
        self.written[key] = self._clock.now() - SKEW
        return self._store.put(key, data, if_absent=if_absent, storage_class=storage_class)

    def list(self, prefix: str) -> Iterator[str]:
        self._request("LIST", prefix)
        return self._store.list(prefix)

    def modified(self, prefix: str) -> Mapping[str, datetime]:
        return {key: self.written[key] for key in self.list(prefix)}


class RunningQueue:
    """The running pods of a cluster, which can be away, and those that failed, as an ended pod does."""

    def __init__(self, cluster: FakeCluster, clock: Clock) -> None:
        self.running, self.ended, self.away = list[StagePod](), dict[str, str](), False
        self.ending, self.failed = set[str](), list[StagePod]()
        self._cluster, self._clock = cluster, clock

    def waiting_steps(self) -> tuple[StagePod, ...]:
        return ()

    def pods(self) -> tuple[StagePod, ...]:
        if self.away:
            raise ClusterError("no answer")
        now = self._clock.now()
        running = [
            replace(pod, lifetime=replace(pod.lifetime, asked_at=now), ending=pod.run_id in self.ending)
            for pod in self.running
        ]
        return (*self.failed, *running)

    def end(self, pod: StagePod, reason: EndReason, message: str) -> bool:
        if pod.ref not in [other.ref for other in self.running]:
            return False
        self.fail(pod, f"{reason}: {message}")
        self.ended[pod.run_id] = reason
        return True

    def fail(self, pod: StagePod, reason: str) -> None:
        """End a pod now with this reason."""
        now = self._clock.now()
        life = PodLifetime(
            alive=False, started_at=pod.lifetime.started_at, finished_at=now, reason=reason, asked_at=now
        )
        self._cluster.lifetimes[str(pod.ref)] = life
        self.failed.append(replace(pod, lifetime=life))
        self.running = [other for other in self.running if other.ref != pod.ref]


@dataclass
class RunningRuns:
    """Runs of one stage each, whose supervisors write a heartbeat a second unless they are in `silent`."""

    world: World
    store: TimedStore
    queue: RunningQueue
    watch: RunningPodsWatch
    attempts: dict[str, StartedAttempt] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)

    def start(self, recipe: Path, run_id: str, budget_usd: Decimal = Decimal("0.01")) -> StartedAttempt:
        began = begin(self.world, run_request(recipe, run_id, INGEST, budget_usd))
        pod = pending_pod(self.world, 0.0, run_id, node="worker-1")
        ref = ClusterPod("ns", run_id, f"{run_id}-pod")
        self.queue.running.append(replace(pod, ref=ref, pending=False))
        self.attempts[run_id] = replace(began, attempt=attempt_in_pod(began, str(ref)))
        return self.attempts[run_id]

    def again(self, run_id: str, request: RunRequest) -> None:
        """Route the stage of a run again, and start its new pod."""
        began = self.attempts[run_id]
        decision, key = decide_and_reserve(self.world, began.run, request, StageInputs())
        assert decision.choice
        now_s = self.world.clock.monotonic_s()
        attempt = Attempt(self.world, began.run, decision, key, {}, now_s, decision.choice.p95_usd)
        ref = ClusterPod("ns", f"{run_id}-again", f"{run_id}-again-pod")
        pod = pending_pod(self.world, 0.0, run_id, node="worker-1")
        self.queue.running.append(replace(pod, ref=ref, pending=False))
        self.attempts[run_id] = replace(
            began, attempt=attempt_in_pod(replace(began, attempt=attempt), str(ref))
        )

    def run(self, seconds: int) -> list[str]:
        """Let time pass, with a look every 5 s; return the sentences of the reaper."""
        said: list[str] = []
        for second in range(seconds):
            alive = {pod.run_id for pod in self.queue.running} - self.silent
            if not self.store.away:
                for run_id in alive:
                    write_heartbeat(self.attempts[run_id].attempt, "running")
            if second % 5 == 0:
                said += self.watch.look()
            self.world.clock.sleep(1)
        return said


def running_runs(laptop: Path, folder: Path) -> RunningRuns:
    world = shares_world(laptop, folder, (SMALL,))
    store = TimedStore(world.store, world.clock)
    world = replace(world, store=store)
    assert isinstance(world.cluster, FakeCluster)
    queue = RunningQueue(world.cluster, world.clock)
    return RunningRuns(world, store, queue, open_watch(world, queue, store))
