"""The ledger on a real S3 server: many writers, two runs for one cap, and a server killed meanwhile."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from cap_races import RUN_CAP_USD, race
from s3_server import S3Server
from store_locations import StoreLocation, at_once

from shoestring.backends.local import WallClock
from shoestring.core.errors import BudgetExceeded
from shoestring.spending.audit.records import Anchor
from shoestring.spending.audit.verify import verify
from shoestring.spending.ledger.ledger import Ledger

WRITERS, ASKS_EACH = 4, 10


def reserve_many(me: int, gate: Any, location: StoreLocation) -> tuple[list[str], list[str]]:
    """Return the reservations that were granted, and those that were refused."""
    ledger = Ledger(location.open(), WallClock(), f"pod-{me}")
    granted, refused = list[str](), list[str]()
    gate.wait()
    for number in range(ASKS_EACH):
        hold = f"work-{me}.{number}"
        try:
            ledger.reserve("run", hold, "work", number, Decimal("0.01"))
            granted.append(hold)
        except BudgetExceeded:
            refused.append(hold)
    return granted, refused


def test_concurrent_processes_lose_no_entry_double_none_and_keep_the_cap(s3_location: StoreLocation) -> None:
    store, clock = s3_location.open(), WallClock()
    Ledger(store, clock).open("run", Decimal("0.30"))
    answers = at_once(WRITERS, reserve_many, s3_location)
    granted = {hold for answer in answers for hold in answer[0]}
    refused = {hold for answer in answers for hold in answer[1]}
    state = Ledger(store, clock).state("run")
    assert (len(granted), len(refused)) == (30, WRITERS * ASKS_EACH - 30)
    assert set(state.reservations) == granted
    assert (state.held_usd, state.left_usd, state.entries) == (Decimal("0.30"), Decimal(0), 31)
    verify(store, {"run": (Anchor(state.head_hash),)})


@pytest.mark.parametrize("month", ["2026-01", "2026-02", "2026-03"])
def test_of_two_runs_for_one_cap_one_is_refused_with_the_missing_amount(
    s3_location: StoreLocation, month: str
) -> None:
    refusals, held_usd = race(s3_location, month)
    loser = f"{month}-run-{refusals.index(max(refusals))}"
    assert sorted(refusals) == [
        "",
        f"reserve {loser} of {month}: $1.000000 requested, $0.500000 left of $1.500000",
    ]
    assert held_usd == RUN_CAP_USD


@pytest.fixture
def killable_server(s3_server: S3Server) -> Iterator[S3Server]:
    """A separate server for this test, with the same credentials."""
    with tempfile.TemporaryDirectory(dir=s3_server.folder.parent) as folder:
        server = S3Server(Path(folder))
        try:
            server.start()
            yield server
        finally:
            server.kill()


@pytest.mark.slow
def test_a_server_killed_during_writes_loses_no_entry_and_doubles_none(
    killable_server: S3Server, tmp_path: Path
) -> None:
    location = StoreLocation(tmp_path, killable_server.location())
    Ledger(location.open(), WallClock()).open("run", Decimal(1))
    over, written = threading.Event(), list[str]()

    def write_on() -> None:
        store = location.open()
        ledger = Ledger(store, WallClock())
        while not over.is_set():
            hold = f"work-{len(written)}"
            store.put(f"blobs/{hold}", hold.encode() * 10_000, if_absent=True)
            ledger.reserve("run", hold, "work", 1, Decimal("0.0001"))
            written.append(hold)

    with ThreadPoolExecutor(1) as thread:
        writing = thread.submit(write_on)
        for _ in range(2):
            before = len(written)
            while len(written) < before + 20:
                assert not writing.done() or writing.result()
                time.sleep(0.01)
            killable_server.kill()
            time.sleep(1)
            killable_server.start()
        over.set()
        writing.result()
    store = location.open()
    state = Ledger(store, WallClock()).state("run")
    assert set(state.reservations) == set(written)
    assert state.entries == 1 + len(written)
    assert all(store.fetch(f"blobs/{hold}").read_bytes() == hold.encode() * 10_000 for hold in written)
    verify(store, {"run": (Anchor(state.head_hash),)})
