"""The supervisor: it extends, stops, kills and reports, with real child processes."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import psutil
import pytest
from commands import command
from runtime_world import (
    INGEST,
    MONEY,
    FastClock,
    SetClock,
    StartedAttempt,
    UnreachableStore,
    begin,
    on_cluster,
    pod_environment,
    run_request,
    small_world,
    start_process,
    watch_until_end,
)

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.local import this_process
from shoestring.backends.memory_limits import ContainerMemory
from shoestring.core.errors import NotInStore
from shoestring.core.interfaces import PodLifetime
from shoestring.core.receipt import Receipt
from shoestring.data.run_records import read_record
from shoestring.runtime.records.overhead import OverheadTime, overhead_timer
from shoestring.runtime.supervisor.attempt import pod_started_s
from shoestring.runtime.supervisor.background_io import background_io
from shoestring.runtime.supervisor.child import ChildResult
from shoestring.runtime.supervisor.child_process import child_result
from shoestring.runtime.supervisor.migration_check import make_monitor
from shoestring.runtime.supervisor.run_stage import settle_and_record
from shoestring.runtime.supervisor.supervisor import supervise, watch_child
from shoestring.spending.heartbeat import last_heartbeat
from shoestring.spending.meter import cost_usd


@pytest.fixture
def fixed(laptop: Path, flights_slice: Path, tmp_path: Path) -> StartedAttempt:
    """An attempt at ingest, with a clock that the test moves."""
    return begin(small_world(laptop, tmp_path, SetClock()), run_request(flights_slice, needs=INGEST))


def test_an_unreachable_store_does_not_delay_signals_or_the_check_of_the_money(
    fixed: StartedAttempt, tmp_path: Path
) -> None:
    away = UnreachableStore(fixed.world.store.root)
    attempt = replace(fixed.attempt, world=replace(fixed.world, store=away))
    child = start_process("import time; print(flush=True); time.sleep(60)")
    with background_io() as writer:
        attempt.stop("the test is over")
        watch_child(attempt, child, tmp_path, writer, make_monitor(attempt))
        assert child.returncode == -signal.SIGTERM
        away.back.set()
    heartbeat = last_heartbeat(fixed.world.store, attempt.run.run_id, str(attempt.id))
    assert heartbeat is not None
    assert heartbeat.state == "stopping"


IGNORES_TERM = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
)


def test_a_child_that_ignores_term_is_killed_after_its_grace_period(
    laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    began = begin(small_world(laptop, tmp_path, FastClock(20)), run_request(flights_slice, needs=INGEST))
    ample_usd = Decimal("0.009")
    began.ledger.extend(began.account, "ingest-1", ample_usd)
    began.attempt.reserved_usd += ample_usd
    child = start_process(IGNORES_TERM)
    began.attempt.stop("the test is over")
    watch_until_end(began.attempt, child, tmp_path)
    assert child.returncode == -signal.SIGKILL
    assert began.world.clock.monotonic_s() - began.attempt.stopping_since_s > began.attempt.grace_s
    assert child_result(began.attempt, child, tmp_path) == ChildResult(
        status="stopped", cause="stop-requested", reason="the test is over"
    )


@pytest.mark.parametrize("pod_exit_s", [0.0, 2.0])
def test_a_child_that_ignores_term_is_killed_while_the_end_of_its_pod_is_paid_for(
    fixed: StartedAttempt, tmp_path: Path, pod_exit_s: float
) -> None:
    """The clock does not move, so that the grace period never ends."""
    fixed.reserve_all_but(Decimal(0))
    policy = fixed.world.policy.model_copy(update={"pod_exit_s": pod_exit_s})
    attempt = replace(fixed.attempt, world=replace(fixed.world, policy=policy))
    paid_s = float(attempt.reserved_usd / attempt.choice.usd_per_hour) * 3600
    fixed.world.clock.sleep(paid_s - pod_exit_s)
    child = start_process(IGNORES_TERM)
    watch_until_end(attempt, child, tmp_path)
    assert child.returncode == -signal.SIGKILL
    assert "the ledger refused an extension" in child_result(attempt, child, tmp_path).reason


def test_a_child_without_a_result_has_failed_and_the_reason_names_its_end(
    fixed: StartedAttempt, tmp_path: Path
) -> None:
    killed, left = (
        start_process("print(flush=True); import os; os.kill(os.getpid(), 9)"),
        start_process("print(flush=True); raise SystemExit(3)"),
    )
    # The kernel may have killed other processes of this machine before.
    fixed.attempt.memory = ContainerMemory()
    for child, how in ((killed, "killed by SIGKILL"), (left, "exit code 3")):
        watch_until_end(fixed.attempt, child, tmp_path)
        ending = child_result(fixed.attempt, child, tmp_path)
        assert ending.status == "failed"
        assert how in ending.reason
        assert "a resumed run continues" in ending.reason


def test_a_real_stage_ends_as_done_and_is_settled_at_its_cost(
    laptop: Path, flights_slice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOESTRING_STORE", str(tmp_path / "store"))
    began = begin(small_world(laptop, tmp_path), run_request(flights_slice, needs=INGEST))
    ending = supervise(began.attempt, str(laptop))
    assert ending.status == "done", ending.reason
    assert ending.outcome is not None
    assert ending.outcome.rows == 20_000
    settle_and_record(began.attempt, ending)
    receipt = read_record(began.world.store, "runs/r/receipts/ingest-1.json", Receipt)
    state = began.ledger.state(began.account)
    assert receipt.spent_usd == state.settled_usd["ingest-1"] == state.stages["ingest"].spent_usd > 0
    assert receipt.ledger_head == state.head_hash
    assert receipt.peak_rss_bytes > 0
    assert cost_usd(began.attempt.choice.usd_per_hour, receipt.seconds) == pytest.approx(
        receipt.spent_usd, abs=Decimal("0.000005")
    )


def test_a_stage_whose_data_was_deleted_fails_with_its_own_message(
    laptop: Path, flights_slice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOESTRING_STORE", str(tmp_path / "store"))
    (tmp_path / "flights.csv").write_bytes((flights_slice.parent / "flights.csv").read_bytes())
    (tmp_path / "slice.yaml").write_text(flights_slice.read_text())
    began = begin(small_world(laptop, tmp_path), run_request(tmp_path / "slice.yaml", needs=INGEST))
    (tmp_path / "flights.csv").unlink()
    ending = supervise(began.attempt, str(laptop))
    assert ending.status == "failed"
    assert "flights.csv" in ending.reason
    settle_and_record(began.attempt, ending)
    assert began.ledger.state(began.account).reservations.keys() == {"overhead-1"}
    assert read_record(began.world.store, "runs/r/receipts/ingest-1.json", Receipt).status == "failed"


@pytest.mark.parametrize("off_s", [-3600, 0, 3600])
def test_a_pod_is_paid_from_its_start_by_any_clock_of_its_node(fixed: StartedAttempt, off_s: int) -> None:
    world, cluster = on_cluster(fixed.world)
    server_now = world.clock.now() - timedelta(seconds=off_s)
    cluster.lifetimes[str(world.pod)] = PodLifetime(
        alive=True, started_at=server_now - timedelta(seconds=8), asked_at=server_now
    )
    assert world.clock.monotonic_s() - pod_started_s(world) == 8.0
    with overhead_timer(world, fixed.run, "route-ingest"):
        world.clock.sleep(1)
    key = next(key for key in world.store.list("runs/r/overhead/1/") if str(world.pod) in key)
    took = read_record(world.store, key, OverheadTime)
    assert took.finished_at is not None
    assert (took.finished_at - took.started_at).total_seconds() == 9.0


class CountedStore(FolderStore):
    """A folder that counts the heartbeats written to it."""

    beats = 0

    def put(
        self, key: str, data: bytes | Path, *, if_absent: bool = False, storage_class: str = "standard"
    ) -> bool:
        self.beats += "/heartbeats/" in key
        return super().put(key, data, if_absent=if_absent, storage_class=storage_class)


@pytest.mark.parametrize(("interval_s", "most"), [(1.0, 100), (30.0, 3)])
def test_a_stage_writes_heartbeats_at_the_interval_of_the_policy(
    laptop: Path, flights_slice: Path, tmp_path: Path, interval_s: float, most: int
) -> None:
    """The stage runs for about 40 s of a fast clock."""
    world = small_world(laptop, tmp_path, FastClock(20))
    store, rules = CountedStore(world.store.root), world.policy.model_copy(update={"heartbeat_s": interval_s})
    began = begin(replace(world, store=store, policy=rules), run_request(flights_slice, needs=INGEST))
    began.ledger.extend(began.account, "ingest-1", Decimal("0.009"))
    began.attempt.reserved_usd += Decimal("0.009")
    watch_until_end(began.attempt, start_process("print(flush=True); import time; time.sleep(2)"), tmp_path)
    assert (1 if most == 3 else 4) <= store.beats <= most
    heartbeat = last_heartbeat(store, "r", "ingest-1")
    assert heartbeat is not None
    assert heartbeat.interval_s == interval_s


def test_a_stage_that_is_killed_while_it_is_supervised_fails(
    laptop: Path, flights_slice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOESTRING_STORE", str(tmp_path / "store"))
    began = begin(small_world(laptop, tmp_path), run_request(flights_slice, needs=INGEST))
    here = psutil.Process()

    def kill_it() -> None:
        name, found = "shoestring.runtime.supervisor.child", list[psutil.Process]()
        while not found:
            time.sleep(0.02)
            # What another test has left behind has no command line.
            running = (one for one in here.children() if one.status() != psutil.STATUS_ZOMBIE)
            found = [one for one in running if name in one.cmdline()]
        found[0].kill()

    threading.Thread(target=kill_it, daemon=True).start()
    ending = supervise(began.attempt, str(laptop))
    assert ending.status == "failed"
    assert "SIGKILL" in ending.reason


def start_supervisor(
    began: StartedAttempt, laptop: Path, folder: Path, launcher: str
) -> subprocess.Popen[str]:
    line = command(
        "stage",
        "ingest",
        "--run-id",
        "r",
        "--decision-key",
        began.attempt.decision_key,
        "--world",
        str(laptop),
    )
    env = pod_environment(laptop, folder) | {"SHOESTRING_LAUNCHER": launcher}
    return subprocess.Popen(line, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def check_that_it_settled(began: StartedAttempt, reason: str) -> None:
    receipt = read_record(began.world.store, "runs/r/receipts/ingest-1.json", Receipt)
    assert receipt.status == "stopped"
    assert reason in receipt.reason
    assert (
        began.ledger.state(began.account).settled_usd["ingest-1"]
        == receipt.spent_usd
        <= began.ledger.state(began.account).cap_usd
    )
    heartbeat = last_heartbeat(began.world.store, "r", "ingest-1")
    assert heartbeat is not None
    assert heartbeat.state == "stopped"


def test_a_supervisor_whose_launcher_has_died_stops_its_child_and_settles(
    laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    began = begin(small_world(laptop, tmp_path), run_request(flights_slice, needs=INGEST, budget_usd=MONEY))
    launcher = start_process("import time; print(flush=True); time.sleep(60)")
    identity = (
        f"{this_process().host}.{launcher.pid}.{int(psutil.Process(launcher.pid).create_time() * 1000)}"
    )
    launcher.kill()
    launcher.wait()
    frame = start_supervisor(began, laptop, tmp_path, identity)
    _, err = frame.communicate(timeout=60)
    assert frame.returncode == 1, err
    check_that_it_settled(began, "the process that launched or watches the run is gone")


def test_a_supervisor_that_receives_term_settles_and_writes_its_receipt(
    laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    began = begin(small_world(laptop, tmp_path), run_request(flights_slice, needs=INGEST))
    frame = start_supervisor(began, laptop, tmp_path, str(this_process()))
    while frame.poll() is None:
        heartbeat = last_heartbeat(began.world.store, "r", "ingest-1")
        if heartbeat and heartbeat.state == "running":
            break
        time.sleep(0.01)
    child = psutil.Process(frame.pid).children()
    os.kill(frame.pid, signal.SIGTERM)
    _, err = frame.communicate(timeout=60)
    assert frame.returncode == 1, err
    assert "received SIGTERM" in err
    assert not any(one.is_running() for one in child)
    check_that_it_settled(began, "received SIGTERM")
    with pytest.raises(NotInStore):
        read_record(began.world.store, "runs/r/receipts/ingest-2.json", Receipt)
