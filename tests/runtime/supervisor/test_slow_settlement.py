"""A store that is slow or away when a stage ends: the stage is not silent, and its wait is paid for."""

from __future__ import annotations

import threading
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from runtime_world import INGEST, SetClock, StartedAttempt, begin, run_request, small_world

from shoestring.backends.folder_store import FolderStore
from shoestring.core.receipt import Receipt
from shoestring.core.types import StageOutcome
from shoestring.data.run_records import read_record
from shoestring.runtime.supervisor.child import ChildResult
from shoestring.runtime.supervisor.run_stage import settle_and_record
from shoestring.runtime.supervisor.supervisor import beating, closed_while_beating, write_heartbeat
from shoestring.spending.heartbeat import last_heartbeat
from shoestring.spending.meter import cost_usd

DONE = ChildResult(status="done", outcome=StageOutcome(key="k", rows=1))
WAIT_S = 40.0


class SlowStore(FolderStore):
    """A folder whose next ledger entry takes WAIT_S of the test's clock, or until three heartbeats came."""

    def __init__(self, root: Path, clock: SetClock | None = None) -> None:
        super().__init__(root)
        self.clock, self.waits, self.has_beats, self.beats = clock, False, False, threading.Semaphore(0)

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = "standard"
    ) -> bool:
        if "/heartbeats/" in key:
            self.beats.release()
        if key.startswith("ledger/") and self.waits:
            self.waits = False
            if self.clock:
                self.clock.sleep(WAIT_S)
            else:
                self.has_beats = all(self.beats.acquire(timeout=10) for _ in range(3))
        return super().put(key, data, if_absent=if_absent, storage_class=storage_class)


def slow(
    laptop: Path, flights_slice: Path, folder: Path, clock: SetClock | None = None
) -> tuple[StartedAttempt, SlowStore]:
    """Return an attempt whose store is slow from now on, with money for its wait, and the store."""
    world = small_world(laptop, folder, clock)
    store, policy = SlowStore(world.store.root, clock), world.policy.model_copy(update={"heartbeat_s": 0.05})
    began = begin(replace(world, store=store, policy=policy), run_request(flights_slice, needs=INGEST))
    began.ledger.extend(began.account, "ingest-1", Decimal("0.005"))
    began.attempt.reserved_usd += Decimal("0.005")
    store.waits = True
    return began, store


def test_the_time_that_a_slow_store_takes_to_settle_is_charged(
    laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    began, _ = slow(laptop, flights_slice, tmp_path, clock := SetClock())
    started_s = clock.monotonic_s()
    clock.sleep(5.0)
    settle_and_record(began.attempt, DONE)
    lived_s = clock.monotonic_s() - started_s
    assert lived_s == 5.0 + WAIT_S
    state = began.ledger.state(began.account)
    receipt = read_record(began.world.store, "runs/r/receipts/ingest-1.json", Receipt)
    true_usd = cost_usd(began.attempt.choice.usd_per_hour, lived_s) + receipt.fees_usd
    assert state.settled_usd["ingest-1"] == receipt.spent_usd == true_usd
    assert receipt.seconds == lived_s


def test_the_wait_beyond_what_the_account_has_left_is_an_overrun(
    laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    began, store = slow(laptop, flights_slice, tmp_path, clock := SetClock())
    store.waits = False
    clock.sleep(float(began.attempt.reserved_usd / began.attempt.choice.usd_per_hour) * 3600)
    began.reserve_all_but(Decimal(0))
    store.waits = True
    settle_and_record(began.attempt, DONE)
    receipt = read_record(began.world.store, "runs/r/receipts/ingest-1.json", Receipt)
    assert receipt.overrun_usd >= cost_usd(began.attempt.choice.usd_per_hour, WAIT_S)
    assert began.ledger.state(began.account).overruns_usd == {"ingest-1": receipt.overrun_usd}
    assert "of which its account had money for" in receipt.reason


def test_heartbeats_go_on_until_the_receipt_stands(laptop: Path, flights_slice: Path, tmp_path: Path) -> None:
    began, store = slow(laptop, flights_slice, tmp_path)
    settle_and_record(began.attempt, DONE)
    assert store.has_beats
    last = last_heartbeat(began.world.store, "r", "ingest-1")
    assert last is not None and last.state == "done", "the last one is not overtaken"


def test_heartbeats_go_on_while_what_is_under_way_is_awaited(
    laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    began, store = slow(laptop, flights_slice, tmp_path)
    with closed_while_beating(began.attempt) as io:
        io.prepare(lambda: began.ledger.extend(began.account, "ingest-1", Decimal("0.000001")))
    assert store.has_beats


def test_two_stretches_that_end_before_their_interval_leave_no_gap_of_two(
    laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    began, store = slow(laptop, flights_slice, tmp_path, clock := SetClock())
    interval_s = 60.0
    policy = began.world.policy.model_copy(update={"heartbeat_s": interval_s})
    began.attempt.world = replace(began.world, policy=policy)
    write_heartbeat(began.attempt, "running")
    clock.sleep(interval_s * 0.8)
    with beating(began.attempt):
        clock.sleep(interval_s * 0.1)
    assert store.beats.acquire(timeout=0) and not store.beats.acquire(timeout=0)
    clock.sleep(interval_s * 0.2)
    with beating(began.attempt):
        assert store.beats.acquire(timeout=10)
