"""Two reapers at once, as while one follows the other: what the books say is what one alone would leave.

Another reaper does all of its work between two requests of the first one to the store: at every third
request in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from reaper_world import ABANDONED_S, QUEUE_S, Queue, again, pending_pod, shares_world
from running_world import RunningRuns, running_runs
from runtime_world import INGEST, FakeCluster, StartedAttempt, attempt_in_pod, begin, run_request

from shoestring.core.interfaces import EndReason, PodLifetime, StagePod, Store
from shoestring.core.receipt import Receipt
from shoestring.core.types import STANDARD_CLASS
from shoestring.data.run_records import read_record
from shoestring.runtime.records.receipt_history import current_stockouts
from shoestring.runtime.settlement.looks import open_watch
from shoestring.runtime.settlement.reap import reap
from shoestring.runtime.supervisor.supervisor import write_heartbeat
from shoestring.spending.audit.verify import load_anchors, verify
from shoestring.spending.meter import cost_usd

# Moments that are tried: each takes 0.15 s.
EVERY = 3


class InterruptedStore:
    """A store that calls `meanwhile` before request number `moment`."""

    def __init__(self, store: Store, moment: int, meanwhile: Callable[[], object]) -> None:
        self._store, self._moment, self._meanwhile, self.requests = store, moment, meanwhile, 0

    def _request(self) -> Store:
        self.requests += 1
        if self.requests == self._moment:
            self._meanwhile()
        return self._store

    def fetch(self, key: str) -> Path:
        return self._request().fetch(key)

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = STANDARD_CLASS
    ) -> bool:
        return self._request().put(key, data, if_absent=if_absent, storage_class=storage_class)

    def list(self, prefix: str) -> Iterator[str]:
        return self._request().list(prefix)


class SharedQueue(Queue):
    """As a cluster has it: an ended pod is still listed, and is ended once."""

    def pods(self) -> tuple[StagePod, ...]:
        life = PodLifetime(alive=False, reason="TimedOut: it waited")
        return (*self.waiting, *(replace(pod, pending=False, lifetime=life) for pod in self.ended))

    def end(self, pod: StagePod, reason: EndReason, message: str) -> bool:
        return pod in self.waiting and super().end(pod, reason, message)


@dataclass
class LooksMeanwhile:
    """The queue as one reaper lists it, just before another one looks."""

    runs: RunningRuns

    def pods(self) -> tuple[StagePod, ...]:
        found = self.runs.queue.pods()
        self.runs.watch.look()
        return found

    def waiting_steps(self) -> tuple[StagePod, ...]:
        return self.runs.queue.waiting_steps()

    def end(self, pod: StagePod, reason: EndReason, message: str) -> bool:
        return self.runs.queue.end(pod, reason, message)


def late(began: StartedAttempt) -> SharedQueue:
    return SharedQueue(pending_pod(began.world, QUEUE_S))


def dead(began: StartedAttempt) -> SharedQueue:
    write_heartbeat(attempt_in_pod(began, "ns.1.ingest"), "running")
    assert isinstance(began.world.cluster, FakeCluster)
    began.world.cluster.lifetimes["ns.1.ingest"] = PodLifetime(alive=False)
    began.world.clock.sleep(QUEUE_S + 1)
    return SharedQueue()


def abandoned(began: StartedAttempt) -> SharedQueue:
    dead(began)
    began.world.clock.sleep(ABANDONED_S)
    return SharedQueue()


def books(began: StartedAttempt) -> dict[str, Any]:
    """Return what the reapers left, without the order in which they wrote it."""
    state, now = began.ledger.state("r"), began.world.clock.now()
    receipt = read_record(began.world.store, "runs/r/receipts/ingest-1.json", Receipt)
    verify(began.world.store, load_anchors(began.world.store))
    return {
        "settled": state.settled_usd,
        "reserved": state.reservations.keys(),
        "closed": state.closed,
        "receipt": (receipt.status, receipt.cause, receipt.reason, receipt.spent_usd),
        "stock-outs": [each.reason for each in current_stockouts(began.world.store, now)[0]],
    }


@pytest.mark.parametrize("died", [late, dead, abandoned])
def test_a_second_reaper_at_any_moment_changes_nothing(
    died: Callable[[StartedAttempt], SharedQueue], laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    def reap_with_another(moment: int) -> tuple[dict[str, Any], int]:
        world = shares_world(laptop, tmp_path / f"{moment}")
        began = begin(world, run_request(flights_slice, "r", INGEST, Decimal("0.01")))
        queue = died(began)
        store = InterruptedStore(world.store, moment, lambda: reap(began.world, queue))
        reap(replace(began.world, store=store), queue)
        return books(began), store.requests

    alone, requests = reap_with_another(0)
    assert requests > 10
    for moment in range(1, requests + 1, EVERY):
        assert reap_with_another(moment)[0] == alone, f"another reaper at request {moment} of {requests}"


def test_two_reapers_at_once_end_a_silent_pod_once(laptop: Path, flights_slice: Path, tmp_path: Path) -> None:
    runs = running_runs(laptop, tmp_path)
    runs.start(flights_slice, "r", Decimal("0.1"))
    second = open_watch(runs.world, LooksMeanwhile(runs), runs.store)
    runs.run(20)
    second.look()
    runs.silent = {"r"}
    runs.run(9)
    second.look()
    runs.world.clock.sleep(5)
    # The first one looks between the moment when the second one lists the pods, and its judgement.
    said = second.look()
    assert (said, runs.queue.ended) == ([], {"r": "Silent"})
    again(runs.attempts["r"], flights_slice)
    receipt = read_record(runs.world.store, "runs/r/receipts/ingest-1.json", Receipt)
    assert (receipt.status, receipt.cause) == ("lost", "silent")
    assert receipt.spent_usd == cost_usd(runs.attempts["r"].attempt.choice.usd_per_hour, receipt.seconds)
    verify(runs.world.store, load_anchors(runs.world.store))
