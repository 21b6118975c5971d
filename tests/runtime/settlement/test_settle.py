"""The exit step, and the next run's cleanup: each reservation is settled once, as exactly as its end is
known.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from runtime_world import (
    INGEST,
    SetClock,
    StartedAttempt,
    begin,
    on,
    run_request,
    small_world,
    start_terms,
)

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.local import this_process
from shoestring.config.world import World
from shoestring.core.errors import StoreError
from shoestring.core.pod_ref import PodRef
from shoestring.core.receipt import Receipt
from shoestring.core.record import record_bytes
from shoestring.data.run_records import open_run, read_record
from shoestring.runtime.admission.admit import admit
from shoestring.runtime.admission.stage_request import StageInputs
from shoestring.runtime.records.run_setup import write_run_record, write_start
from shoestring.runtime.route_step.route import decide_and_reserve
from shoestring.runtime.settlement.settle import settle_abandoned, settle_run, settle_start
from shoestring.runtime.supervisor.supervisor import write_heartbeat
from shoestring.spending.audit.verify import load_anchors, verify
from shoestring.spending.ledger.ledger import Ledger
from shoestring.spending.ledger.parent_accounts import LEASE_S
from shoestring.spending.meter import cost_usd


@pytest.fixture(scope="module")
def dead() -> str:
    """Return the reference of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    uid = f"{socket.gethostname()}.{process.pid}.{int(psutil.Process(process.pid).create_time() * 1000)}"
    process.communicate(b"\n")
    return uid


@pytest.fixture
def world(laptop: Path, tmp_path: Path) -> World:
    return small_world(laptop, tmp_path, SetClock())


def launched_by(launcher: str, world: World, recipe: Path, monkeypatch: pytest.MonkeyPatch) -> StartedAttempt:
    monkeypatch.setenv("SHOESTRING_LAUNCHER", launcher)
    return begin(world, run_request(recipe, needs=INGEST))


def month_of(began: StartedAttempt) -> str:
    return f"{began.run.start.started_at:%Y-%m}"


def files_of(store: Path) -> dict[str, bytes]:
    return {
        path.relative_to(store).as_posix(): path.read_bytes()
        for path in sorted(store.rglob("*"))
        if path.is_file()
    }


def test_settling_again_changes_nothing(world: World, flights_slice: Path, tmp_path: Path) -> None:
    began = begin(world, run_request(flights_slice, needs=INGEST))
    assert settle_start(world, began.run, began.run.start) != []
    after = files_of(tmp_path / "store")
    world.clock.sleep(5)
    assert settle_start(world, began.run, began.run.start) == []
    assert settle_run(world, "r") == []
    assert files_of(tmp_path / "store") == after
    assert began.ledger.state(began.account).closed


def test_a_pod_that_never_started_costs_nothing_and_has_a_receipt(world: World, flights_slice: Path) -> None:
    began = begin(world, run_request(flights_slice, needs=INGEST))
    settle_start(world, began.run, began.run.start)
    receipt = read_record(world.store, "runs/r/receipts/ingest-1.json", Receipt)
    assert (receipt.status, receipt.spent_usd, receipt.seconds) == ("lost", 0, 0)
    assert "never started" in receipt.reason


def test_a_dead_pod_is_charged_to_its_last_heartbeat_and_its_lost_receipt_is_written_once(
    world: World, dead: str, flights_slice: Path
) -> None:
    began = begin(world, run_request(flights_slice, needs=INGEST))
    world.clock.sleep(2)
    write_heartbeat(replace(began.attempt, world=replace(world, pod=PodRef.parse(dead))), "running")
    world.clock.sleep(60)
    settle_start(world, began.run, began.run.start)
    receipt = read_record(world.store, "runs/r/receipts/ingest-1.json", Receipt)
    assert receipt.status == "lost"
    assert receipt.spent_usd == cost_usd(began.attempt.choice.usd_per_hour, 3.0)
    assert receipt.seconds == 2.0
    assert str(receipt.pod) == dead
    assert receipt.cause == "lost"
    verify(world.store, load_anchors(world.store))
    before = record_bytes(receipt)
    world.clock.sleep(60)
    settle_start(world, began.run, began.run.start)
    assert world.store.fetch("runs/r/receipts/ingest-1.json").read_bytes() == before


def test_a_pod_that_is_alive_keeps_its_reservation_and_its_account_open(
    world: World, flights_slice: Path
) -> None:
    began = begin(world, run_request(flights_slice, needs=INGEST))
    write_heartbeat(began.attempt, "running")
    assert settle_run(world, "r") == []
    state = began.ledger.state(began.account)
    assert state.reservations.keys() == {"ingest-1", "overhead-1"}
    assert not state.closed


def test_a_start_without_an_account_needs_no_settlement(world: World, flights_slice: Path) -> None:
    request = run_request(flights_slice, needs=INGEST)
    write_run_record(world, "r", request.job, request.task)
    write_start(world, "r", 1, start_terms(request.budget_usd))
    assert settle_run(world, "r") == []
    assert list(world.store.list("ledger/")) == []


def test_a_run_whose_admission_died_can_be_started_again(world: World, flights_slice: Path) -> None:
    request = run_request(flights_slice, needs=INGEST)
    write_run_record(world, "r", request.job, request.task)
    write_start(world, "r", 1, start_terms(request.budget_usd))
    run = admit(world, request)
    assert run.start.number == 2
    assert Ledger(world.store, world.clock).state(run.start.account).cap_usd == request.budget_usd


class FailingStore(FolderStore):
    """A store that cannot write one key."""

    def __init__(self, root: Path, key: str) -> None:
        super().__init__(root)
        self._key = key

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = "standard"
    ) -> bool:
        if key == self._key:
            raise StoreError(f"cannot write {key}")
        return super().put(key, data, if_absent=if_absent, storage_class=storage_class)


def test_a_router_that_died_before_writing_its_decision_leaves_nothing_held(
    world: World, flights_slice: Path, tmp_path: Path
) -> None:
    request = run_request(flights_slice, needs=INGEST)
    run = admit(world, request)
    with pytest.raises(StoreError):
        decide_and_reserve(
            on(world, FailingStore(tmp_path / "store", "runs/r/decisions/ingest-1.json")),
            run,
            request,
            StageInputs(),
        )
    settle_run(world, "r")
    state = Ledger(world.store, world.clock).state(run.start.account)
    assert (state.closed, state.held_usd, state.settled_usd["ingest-1"]) == (True, 0, 0)
    assert list(world.store.list("runs/r/receipts/")) == []
    assert settle_run(world, "r") == []


def test_the_next_run_settles_an_abandoned_run_and_releases_its_money_of_the_month(
    world: World, dead: str, flights_slice: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = launched_by(dead, world, flights_slice, monkeypatch)
    assert began.account in began.ledger.state(month_of(began)).reservations
    sentences = settle_abandoned(world)
    assert any("ingest-1" in sentence for sentence in sentences)
    assert began.ledger.state(began.account).closed
    month = began.ledger.state(month_of(began))
    assert month.held_usd == 0
    assert month.spent_usd == began.ledger.state(began.account).spent_usd
    assert settle_abandoned(world) == []


def test_a_run_whose_launcher_is_alive_is_left_alone(
    world: World, flights_slice: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = launched_by(str(this_process()), world, flights_slice, monkeypatch)
    assert settle_abandoned(world) == []
    assert began.ledger.state(began.account).reservations.keys() == {"ingest-1", "overhead-1"}


def test_the_abandoned_second_start_of_a_run_is_found_by_its_account(
    world: World, dead: str, flights_slice: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = launched_by(dead, world, flights_slice, monkeypatch)
    settle_run(world, "r")
    second = begin(world, run_request(flights_slice, needs=INGEST))
    assert (first.account, second.account) == ("r", "r.2")
    settle_abandoned(world)
    assert second.ledger.state("r.2").closed


@pytest.mark.parametrize("launched", [True, False])
def test_a_reservation_of_the_month_without_an_account_is_released(
    world: World,
    dead: str,
    flights_slice: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    launched: bool,
) -> None:
    """At once where its launcher is known to have ended, else after the lease."""
    if launched:
        monkeypatch.setenv("SHOESTRING_LAUNCHER", dead)
    with pytest.raises(StoreError):
        admit(
            on(world, FailingStore(tmp_path / "store", "ledger/r/00000001.json")),
            run_request(flights_slice, needs=INGEST),
        )
    run = open_run(world.store, "r")
    month = f"{run.start.started_at:%Y-%m}"
    ledger = Ledger(world.store, world.clock)
    assert ledger.state(month).held_usd > 0
    if not launched:
        assert settle_abandoned(world) == []
        world.clock.sleep(LEASE_S + 1)
    assert settle_abandoned(world) != []
    assert ledger.state(month).held_usd == 0
    assert admit(world, run_request(flights_slice, needs=INGEST)).start.account == "r.2"


def test_money_that_an_earlier_start_holds_is_not_given_to_the_next(
    world: World, flights_slice: Path
) -> None:
    first = begin(world, run_request(flights_slice, needs=INGEST))
    write_heartbeat(first.attempt, "running")
    settle_run(world, "r")
    second = begin(world, run_request(flights_slice, needs=INGEST))
    caps = [second.ledger.state(account) for account in ("r", "r.2")]
    assert caps[0].held_usd > 0
    assert (
        caps[0].spent_usd + caps[0].held_usd + (caps[1].cap_usd or 0) == run_request(flights_slice).budget_usd
    )
