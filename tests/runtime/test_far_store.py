"""A store that is far away: its wait is planned, metered and booked, and it makes no stage look silent."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import psutil
import pytest
from runtime_world import INGEST, SetClock, StartedAttempt, begin, run_request, small_world

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.local import this_process
from shoestring.core.errors import BudgetExceeded, StageFailed
from shoestring.core.receipt import Receipt
from shoestring.core.types import StageOutcome
from shoestring.data.run_records import read_record
from shoestring.reporting.run_reader import RunReader
from shoestring.routing.pages.explain import as_markdown
from shoestring.runtime.launch.watch_stages import StageWatch
from shoestring.runtime.records.overhead import OverheadTime, overhead_timer
from shoestring.runtime.records.world_ledger import world_ledger
from shoestring.runtime.supervisor.background_io import background_io
from shoestring.runtime.supervisor.child import ChildResult
from shoestring.runtime.supervisor.migration_check import make_monitor
from shoestring.runtime.supervisor.run_stage import run_stage, settle_and_record
from shoestring.runtime.supervisor.supervisor import closed_while_beating, watch_child, write_heartbeat
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.meter import cost_usd

REQUEST_S = 0.15
DONE = ChildResult(status="done", outcome=StageOutcome(key="k", rows=1))


class FarStore(FolderStore):
    """A folder that takes REQUEST_S of the test's clock for each request, and counts them."""

    def __init__(self, root: Path, clock: SetClock) -> None:
        super().__init__(root)
        self.clock, self.requests = clock, list[str]()

    def _wait(self, key: str) -> None:
        self.requests.append(key)
        self.clock.sleep(REQUEST_S)

    def fetch(self, key: str) -> Path:
        self._wait(key)
        return super().fetch(key)

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = "standard"
    ) -> bool:
        self._wait(key)
        return super().put(key, data, if_absent=if_absent, storage_class=storage_class)

    def list(self, prefix: str) -> Iterator[str]:
        self._wait(prefix)
        return super().list(prefix)


class WaitingStore(FolderStore):
    """A folder in which reading a key that contains `what` waits until three heartbeats came."""

    def __init__(self, root: Path, what: str) -> None:
        super().__init__(root)
        self.what, self.beats, self.has_waited, self.beat = what, 0, False, threading.Condition()

    def _wait(self, key: str) -> None:
        if self.what not in key or self.has_waited:
            return
        with self.beat:
            due = self.beats + 3
            self.has_waited = self.beat.wait_for(lambda: self.beats >= due, timeout=5) or self.has_waited

    def fetch(self, key: str) -> Path:
        self._wait(key)
        return super().fetch(key)

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = "standard"
    ) -> bool:
        if "/heartbeats/" in key:
            with self.beat:
                self.beats += 1
                self.beat.notify_all()
        return super().put(key, data, if_absent=if_absent, storage_class=storage_class)

    def list(self, prefix: str) -> Iterator[str]:
        self._wait(prefix)
        return super().list(prefix)


@pytest.fixture
def far(laptop: Path, flights_slice: Path, tmp_path: Path) -> StartedAttempt:
    world = small_world(laptop, tmp_path, clock := SetClock())
    store = FarStore(world.store.root, clock)
    return begin(replace(world, store=store), run_request(flights_slice, needs=INGEST))


@pytest.fixture
def near(laptop: Path, flights_slice: Path, tmp_path: Path) -> StartedAttempt:
    return begin(small_world(laptop, tmp_path / "near", SetClock()), run_request(flights_slice, needs=INGEST))


def requests_of(began: StartedAttempt, act: Callable[[], object]) -> list[str]:
    before = len(began.world.store.requests)
    act()
    return began.world.store.requests[before:]


def waiting(began: StartedAttempt, what: str) -> tuple[StartedAttempt, WaitingStore]:
    """Return the attempt with a store in which reading waits for heartbeats. One is due each 50 ms."""
    store = WaitingStore(began.world.store.root, what)
    policy = began.world.policy.model_copy(update={"heartbeat_s": 0.05})
    world = replace(began.world, store=store, policy=policy)
    return replace(began, world=world, attempt=replace(began.attempt, world=world)), store


def test_a_decision_measures_the_store_and_plans_what_a_stage_waits_for_it(
    far: StartedAttempt, near: StartedAttempt
) -> None:
    wait = far.attempt.decision.question.store_wait
    assert wait.request_s == REQUEST_S and wait.stage_s == pytest.approx(wait.requests * REQUEST_S)
    assert near.attempt.decision.question.store_wait.request_s == 0
    assert far.attempt.choice.est_s - near.attempt.choice.est_s >= wait.stage_s
    assert far.attempt.choice.p95_s - near.attempt.choice.p95_s >= wait.stage_s
    assert far.run.start.overhead_usd > near.run.start.overhead_usd
    assert f"{wait.requests} requests of 0.150 s" in as_markdown(far.attempt.decision)
    assert "requests of" not in as_markdown(near.attempt.decision)


def test_the_wait_after_the_settlement_is_in_the_books(far: StartedAttempt) -> None:
    far.ledger.extend(far.account, "ingest-1", Decimal("0.005"))
    far.attempt.reserved_usd += Decimal("0.005")
    settle_and_record(far.attempt, DONE)
    lived_s = far.world.clock.monotonic_s() - far.attempt.started_s
    state, price = far.ledger.state(far.account), far.attempt.choice.usd_per_hour
    receipt = read_record(far.world.store, "runs/r/receipts/ingest-1.json", Receipt)
    booked_usd = state.settled_usd["ingest-1"] - receipt.fees_usd
    # A heartbeat may be written at the same time. It moves this clock on, and the pod does not wait for it.
    assert cost_usd(price, lived_s - REQUEST_S) <= booked_usd <= cost_usd(price, lived_s + 4 * REQUEST_S)


def test_a_ledger_of_the_same_process_reads_only_what_is_new(far: StartedAttempt) -> None:
    world_ledger(far.world).state(far.account)
    assert len(requests_of(far, lambda: world_ledger(far.world).state(far.account))) == 1
    elsewhere = Ledger(far.world.store, far.world.clock)
    left_usd = elsewhere.state(far.account).left_usd
    assert left_usd
    known = world_ledger(far.world)
    assert known.state(far.account).left_usd == left_usd
    elsewhere.reserve(far.account, "rival-1", "rival", 1, left_usd)
    with pytest.raises(BudgetExceeded):
        known.extend(far.account, "ingest-1", Decimal("0.000001"))


def test_a_live_view_reads_each_entry_of_the_ledger_once(far: StartedAttempt) -> None:
    reader = RunReader(far.world.store, "r")
    reader.read()
    again = requests_of(far, reader.read)
    assert len([key for key in again if key.startswith("ledger/")]) == 1


def test_a_step_without_a_stage_pays_for_the_record_of_its_time(far: StartedAttempt) -> None:
    with overhead_timer(far.world, far.run, "route-train"):
        pass
    (key,) = (key for key in far.world.store.list("runs/r/overhead/") if "route-train" in key)
    finished_at = read_record(far.world.store, key, OverheadTime).finished_at
    assert finished_at is not None
    # The record itself, the list and the fetch came after the time was taken, and two of them were expected.
    assert far.world.clock.now() - finished_at == timedelta(seconds=REQUEST_S)


def test_heartbeats_go_on_while_an_attempt_reads_what_it_is_about(near: StartedAttempt) -> None:
    began, store = waiting(near, "/starts/")
    began.ledger.settle(began.account, "ingest-1", Decimal(0))
    with pytest.raises(StageFailed, match="no open reservation"):
        run_stage(began.world, "", "r", began.attempt.decision_key, {})
    assert store.has_waited


def test_a_store_that_answers_late_delays_no_heartbeat(
    laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    real = begin(small_world(laptop, tmp_path), run_request(flights_slice, needs=INGEST))
    began, store = waiting(real, "ledger/")
    began.attempt.reserved_usd += 1
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1.0)"])
    with closed_while_beating(began.attempt) as io:
        watch_child(began.attempt, child, tmp_path, io, make_monitor(began.attempt))
        assert store.has_waited


def test_heartbeats_go_on_while_an_answer_of_the_ledger_is_due() -> None:
    answer, beats = threading.Event(), list[int]()
    with background_io() as io:
        io.meanwhile = lambda: beats.append(1)
        io.ask(lambda: Decimal(answer.wait(10)))
        assert io.answer(1.2) is None
        answer.set()
        assert io.answer(10) == 1
    assert len(beats) == 2


def test_a_launcher_books_the_time_from_a_settlement_to_the_end_of_its_process(
    near: StartedAttempt,
) -> None:
    near.ledger.extend(near.account, "ingest-1", Decimal("0.005"))
    near.attempt.reserved_usd += Decimal("0.005")
    supervisor = subprocess.Popen(["sleep", "300"])
    try:
        created_ms = int(psutil.Process(supervisor.pid).create_time() * 1000)
        pod = replace(this_process(), pid=supervisor.pid, created_ms=created_ms)
        attempt = replace(near.attempt, world=replace(near.world, pod=pod))
        write_heartbeat(attempt, "running")
        watch = StageWatch(near.world, near.run)
        watch.look()
        watch.clock.trees[0].started_s = attempt.started_s
        settle_and_record(attempt, DONE)
        before_usd = near.ledger.state(near.account).settled_usd["ingest-1"]
        near.world.clock.sleep(3.0)
        watch.clock.look()
    finally:
        supervisor.kill()
        supervisor.wait()
    near.world.clock.sleep(60.0)
    watch.clock.look()
    watch.record()
    more_usd = near.ledger.state(near.account).settled_usd["ingest-1"] - before_usd
    assert more_usd == pytest.approx(cost_usd(attempt.choice.usd_per_hour, 3.0), abs=Decimal("0.000001"))
