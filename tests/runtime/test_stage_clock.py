"""The launcher ends a stage before it has cost more than its account had, whatever it writes into the store.

The stopwatch is the test: it times real processes from the start of the supervisor to the end of the last of
them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import psutil
import pytest
from runtime_world import INGEST, StartedAttempt, begin, run_request, small_world

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.processes import boot_fraction_s, is_running
from shoestring.core import store_layout
from shoestring.core.record import record_bytes
from shoestring.runtime.launch.account_money import AccountMoney
from shoestring.runtime.launch.stage_clock import StageTree
from shoestring.runtime.launch.watch_stages import watched_stages
from shoestring.runtime.supervisor.child import JOB_FILE, ChildJob
from shoestring.runtime.supervisor.child_process import STAGE_PROCESS
from shoestring.spending.heartbeat import BROKE, Heartbeat, last_heartbeat
from shoestring.spending.meter import cost_usd

HEARTBEAT = store_layout.heartbeat("r", "ingest-1")
FORGE = """
found = json.loads(first) | {{"state": {state!r}, "spent_usd": "0.000000"}}
found["started_at"] = found["at"] = f"2099-01-01T00:00:{{time.time() % 60:09.6f}}Z"
path.write_text(json.dumps(found))
"""
ATTACKS = {
    "leaves its heartbeat alone": "pass",
    "garbles its heartbeat": "path.write_text('{')",
    "forges its heartbeat": FORGE.format(state="running"),
    "ends its heartbeat": FORGE.format(state="done"),
    "removes its heartbeat": "path.unlink(missing_ok=True)",
    "puts a folder in its place": "path.is_file() and (path.unlink(), path.mkdir())",
}
QUICK = ("forges its heartbeat",)
STAGE = """
import json, os, pathlib, signal, sys, time
path = pathlib.Path(sys.argv[2])
first = path.read_text()
# A stage's own imports take longer.
time.sleep(0.4)
os.kill(os.getppid(), getattr(signal, sys.argv[3]))
while True:
    exec(sys.argv[4])
    time.sleep(0.02)
"""
SUPERVISOR = """
import json, subprocess, sys, time
subprocess.Popen([sys.executable, "-S", "-c", *json.loads(sys.argv[1])])
time.sleep(300)
"""


class SlowStore(FolderStore):
    """A folder that answers each read of a file, list and write after `delay_s`."""

    delay_s = 0.0

    def fetch(self, key: str) -> Path:
        time.sleep(self.delay_s)
        return super().fetch(key)

    def list(self, prefix: str) -> Iterator[str]:
        time.sleep(self.delay_s)
        return super().list(prefix)

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = "standard"
    ) -> bool:
        time.sleep(self.delay_s)
        return super().put(key, data, if_absent=if_absent, storage_class=storage_class)


@pytest.fixture
def began(laptop: Path, flights_slice: Path, tmp_path: Path) -> StartedAttempt:
    """An attempt whose account has nothing left after its reservation, on a store that can be slow."""
    world = small_world(laptop, tmp_path)
    world = replace(world, store=SlowStore(tmp_path / "store"))
    started = begin(world, run_request(flights_slice, needs=INGEST))
    started.reserve_all_but(Decimal(0))
    return started


def start_stage(began: StartedAttempt, scratch: Path, attack: str, signal_name: str) -> psutil.Process:
    """Start a supervisor, and below it a stage that sends it a signal and then attacks its heartbeat."""
    attempt, clock, store = began.attempt, began.world.clock, began.world.store
    usd_per_hour = attempt.choice.usd_per_hour
    job = ChildJob(
        stage=attempt.stage,
        attempt=attempt.id.number,
        run_id="r",
        world="",
        inputs={},
        format=None,
        cores=1,
        usd_per_hour=usd_per_hour,
        started_s=clock.monotonic_s(),
        limit_usd=attempt.reserved_usd,
        deadline_s=None,
        parent_pid=1,
    )
    scratch.mkdir()
    (scratch / JOB_FILE).write_bytes(record_bytes(job))
    heartbeat = Heartbeat(
        run_id="r",
        stage=attempt.stage,
        attempt=attempt.id.number,
        # Not the supervisor: a launcher that believed this would end itself.
        pod=began.world.pod,
        state="running",
        usd_per_hour=usd_per_hour,
        started_at=clock.now(),
        at=clock.now(),
        interval_s=1.0,
        spent_usd=Decimal(0),
    )
    store.put(HEARTBEAT, record_bytes(heartbeat))
    words = [STAGE, STAGE_PROCESS, str(store.fetch(HEARTBEAT)), signal_name, attack, str(scratch)]
    return psutil.Process(subprocess.Popen([sys.executable, "-S", "-c", SUPERVISOR, json.dumps(words)]).pid)


def time_stage(
    began: StartedAttempt, scratch: Path, attack: str, signal_name: str = "SIGSTOP", delay_s: float = 0.0
) -> float:
    """Return how many seconds the attack took, as the launcher watched it. `delay_s`: of its store."""
    with watched_stages(began.world, began.run):
        began.world.store.delay_s = delay_s  # type: ignore[attr-defined]
        supervisor = start_stage(began, scratch, attack, signal_name)
        began_s = supervisor.create_time() + boot_fraction_s()
        seen, due_s = {supervisor}, time.monotonic() + 20
        while any(map(is_running, seen)) and time.monotonic() < due_s:
            if is_running(supervisor):
                seen |= set(supervisor.children(recursive=True))
            ended_s = time.time()
            time.sleep(0.01)
        assert len(seen) == 2 and not any(map(is_running, seen)), "nobody ended them"
        began.world.store.delay_s = 0.0  # type: ignore[attr-defined]
    return ended_s - began_s


def slowly(name: str) -> Any:
    return pytest.param(ATTACKS[name], id=name, marks=[] if name in QUICK else pytest.mark.slow)


@pytest.mark.parametrize("attack", [slowly(name) for name in ATTACKS])
def test_a_stage_that_stops_its_supervisor_takes_no_more_than_its_account_had(
    began: StartedAttempt, tmp_path: Path, attack: str
) -> None:
    took_s = time_stage(began, tmp_path / "scratch", attack)
    took_usd = cost_usd(began.attempt.choice.usd_per_hour, took_s)
    assert took_usd <= began.attempt.choice.p95_usd
    assert booked_usd(began) >= took_usd
    ended = last_heartbeat(began.world.store, "r", "ingest-1")
    assert "mkdir" in attack or (ended is not None and ended.state == BROKE)


def test_a_store_that_answers_late_delays_no_end(began: StartedAttempt, tmp_path: Path) -> None:
    took_s = time_stage(began, tmp_path / "scratch", "pass", delay_s=1.5)
    assert cost_usd(began.attempt.choice.usd_per_hour, took_s) <= began.attempt.choice.p95_usd


def test_a_stage_that_outlives_its_supervisor_is_ended_at_once(began: StartedAttempt, tmp_path: Path) -> None:
    took_s = time_stage(began, tmp_path / "scratch", ATTACKS["ends its heartbeat"], "SIGKILL")
    assert took_s < 2.0
    assert booked_usd(began) >= cost_usd(began.attempt.choice.usd_per_hour, took_s)


def test_the_launcher_follows_extensions_and_what_it_read_as_paid_stays_paid(began: StartedAttempt) -> None:
    money, start = AccountMoney(began.run.start), began.run.start
    most_usd = start.budget_usd - start.overhead_usd
    assert money.most_usd("ingest-1", may_extend=False) == most_usd, "nothing was read yet"
    money.read(began.ledger.state(began.account))
    reserved_usd = began.attempt.choice.p95_usd
    assert money.most_usd("ingest-1", may_extend=True) == reserved_usd, "its rival holds the rest"
    began.ledger.settle(began.account, "rival-1", Decimal("0.002"))
    began.ledger.extend(began.account, "ingest-1", Decimal("0.001"))
    state = began.ledger.state(began.account)
    money.read(state)
    assert money.most_usd("ingest-1", may_extend=False) == reserved_usd + Decimal("0.001")
    assert money.most_usd("ingest-1", may_extend=True) == most_usd - Decimal("0.002")
    money.read(state.model_copy(update={"settled_usd": {}, "reservations": {}}))
    assert money.most_usd("ingest-1", may_extend=True) == most_usd - Decimal("0.002"), "a forged account"


def test_from_when_its_supervisor_is_stopped_a_stage_pays_its_highest_price(began: StartedAttempt) -> None:
    attempt = began.attempt
    attempt.rate_changes = ((10.0, Decimal(3)), (20.0, Decimal(1)))
    tree = StageTree(attempt.id, psutil.Process(), 0.0, 0.0, Decimal(1), attempt)
    assert tree.cost_usd(40.0) == cost_usd(Decimal(1), 10 + 3 * 10 + 20)
    tree.stopped_s = 30.0
    assert tree.cost_usd(40.0) == cost_usd(Decimal(1), 10 + 3 * 10 + 10 + 3 * 10)


def booked_usd(began: StartedAttempt) -> Decimal:
    """Return what the ledger has of the attempt, with what its account could not pay."""
    state = began.ledger.state(began.account)
    return state.settled_usd["ingest-1"] + state.overrun_usd
