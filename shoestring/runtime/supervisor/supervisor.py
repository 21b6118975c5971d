"""The supervisor of a stage: it runs the stage's code in a child process, watches its money, and reports how
it ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path

from shoestring.backends.memory_limits import ContainerMemory
from shoestring.backends.processes import ProcessTree, find_process
from shoestring.core.errors import StageFailed, StageStopped
from shoestring.core.pod_ref import LAUNCHER_VARIABLE, LocalProcess, PodRef
from shoestring.core.record import record_bytes
from shoestring.data.scratch.scratch_files import write_whole
from shoestring.data.scratch.temporary_folders import temporary_folder
from shoestring.runtime.records.world_ledger import world_ledger
from shoestring.runtime.supervisor.attempt import Attempt
from shoestring.runtime.supervisor.attempt_lock import heartbeats
from shoestring.runtime.supervisor.background_io import BackgroundIO, watch_notices
from shoestring.runtime.supervisor.child import ChildResult
from shoestring.runtime.supervisor.child_process import (
    child_result,
    read_child,
    start_child,
    wait_in_thread,
)
from shoestring.runtime.supervisor.extension import extend_or_stop
from shoestring.runtime.supervisor.guardrails import attempt_usage, check_guardrails
from shoestring.runtime.supervisor.migration_check import (
    MigrationMonitor,
    make_monitor,
    migrate_if_cheaper,
    write_last_check,
)
from shoestring.runtime.supervisor.spend_limits import LIMITS_FILE, SpendLimits, WatchedCommand
from shoestring.spending.exit_money import CHECK_EVERY_S
from shoestring.spending.heartbeat import Heartbeat, put_heartbeat

# How often its money and its end are checked.
POLL_EVERY_S = 0.1


@contextmanager
def stop_on_signals(attempt: Attempt) -> Iterator[None]:
    """Turn TERM and INT into a request to stop; otherwise they would end the process before it settles."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _frame: object) -> None:
        attempt.stop(f"received {signal.Signals(number).name}")

    previous = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def launcher_check() -> Callable[[], bool]:
    """Return a function that checks whether the process that launched the run is gone.

    The local runner's child outlives its parent when that is killed, and a shell is between them. So the
    launcher puts its identity into the environment. On a cluster no launcher does, and the function always
    returns False.
    """
    identity = os.environ.get(LAUNCHER_VARIABLE)
    if not identity:
        return lambda: False
    launcher = PodRef.parse(identity)
    assert isinstance(launcher, LocalProcess)

    return lambda: find_process(launcher) is None


def beating(attempt: Attempt) -> AbstractContextManager[None]:
    """Write heartbeats while the block waits for the store: a stage whose child has ended is not silent."""
    make = partial(make_heartbeat, attempt)
    return heartbeats(attempt.world, lambda: make(running_state(attempt)), attempt.heartbeat_s)


@contextmanager
def closed_while_beating(attempt: Attempt) -> Iterator[BackgroundIO]:
    """Yield a BackgroundIO. At the end it may wait for the store; heartbeats continue meanwhile."""
    io = BackgroundIO()
    try:
        yield io
    finally:
        with beating(attempt):
            io.close()


def running_state(attempt: Attempt) -> str:
    return "stopping" if attempt.stop_reason else "running"


def write_heartbeat(attempt: Attempt, state: str) -> None:
    """Write a heartbeat. Raises StoreError."""
    put_heartbeat(attempt.world.store, make_heartbeat(attempt, state))


def make_heartbeat(attempt: Attempt, state: str) -> Heartbeat:
    """Return the attempt's heartbeat of this moment."""
    world, progress = attempt.world, attempt.progress
    now, attempt.heartbeat_s = world.clock.now(), world.clock.monotonic_s()
    return Heartbeat(
        run_id=attempt.run.run_id,
        stage=attempt.stage,
        attempt=attempt.id.number,
        pod=world.pod,
        state=state,
        usd_per_hour=attempt.usd_per_hour,
        prices=attempt.prices(),
        unread_usd_per_hour=attempt.fallback_usd_per_hour if attempt.floats else None,
        started_at=now - timedelta(seconds=world.clock.monotonic_s() - attempt.started_s),
        at=now,
        interval_s=world.policy.heartbeat_s,
        spent_usd=min(attempt.spent_usd(), attempt.reserved_usd),
        fees_usd=attempt.choice.incurred_usd(done=False),
        phase=progress.phase,
        samples=progress.samples,
        total=progress.total,
        quality=progress.quality,
        memory_share=attempt.memory_share,
        usage=attempt.usage,
        gpu=attempt.gpu_usage.use,
        changes=attempt.changes,
        forecast=progress.forecast,
        time_shares=progress.time_shares,
    )


def send_limits(attempt: Attempt, scratch: Path) -> None:
    """Write the attempt's limits for the child, if they have changed. If the disk is full, the next call
    tries again.
    """
    meter = attempt.limit_meter()
    limits = SpendLimits(
        limit_usd=max(Decimal(0), meter.limit_usd),
        rate_changes=meter.rate_changes,
        deadline_s=meter.deadline_s,
    )
    if limits != attempt.sent_limits:
        with suppress(OSError):
            write_whole(scratch / LIMITS_FILE, record_bytes(limits))
            attempt.sent_limits = limits


def notify_watcher(attempt: Attempt, child_pid: int, scratch: Path) -> None:
    if attempt.notify_watcher is not None:
        name, ends_s = str(attempt.id), attempt.money_ends_s
        attempt.notify_watcher(WatchedCommand(attempt.run.run_id, name, child_pid, ends_s, str(scratch)))


def watch_child(
    attempt: Attempt,
    child: subprocess.Popen[bytes],
    scratch: Path,
    io: BackgroundIO,
    monitor: MigrationMonitor,
) -> None:
    """Watch the child until it ends: extend or stop it, check it, write heartbeats; TERM, a grace period,
    KILL.
    """
    world, clock = attempt.world, attempt.world.clock
    ledger, launcher_is_gone = world_ledger(world), launcher_check()
    checked_s, terminated, ended = float("-inf"), False, wait_in_thread(child)
    has_told_memory, send_heartbeat = False, heartbeat_sender(attempt, io)
    notices = watch_notices(world, ended)
    io.meanwhile = send_heartbeat
    send_heartbeat()
    # Read the account now, so that later requests need to read only its newest entries.
    io.prepare(partial(ledger.state, attempt.run.start.account))
    while child.poll() is None:
        now_s = clock.monotonic_s()
        if attempt.is_settled:
            attempt.stop("its reservation was settled while it was taken for lost", "lost")
        notices.stop_if_noticed(attempt)
        extend_or_stop(attempt, ledger, io)
        send_limits(attempt, scratch)
        terminated = end_if_stopped(attempt, child, terminated)
        notify_watcher(attempt, child.pid, scratch)
        if now_s - checked_s >= CHECK_EVERY_S:
            checked_s = now_s
            if launcher_is_gone():
                attempt.stop("the process that launched or watches the run is gone")
            check_child(attempt, child.pid, scratch, monitor)
        is_short = attempt.is_short_of_memory()
        is_due = now_s - attempt.heartbeat_s >= world.policy.heartbeat_s
        if is_due or (is_short and not has_told_memory):
            has_told_memory = is_short
            send_heartbeat()
        ended.wait(POLL_EVERY_S)
    io.prepare(partial(write_last_check, attempt, monitor))


def end_if_stopped(attempt: Attempt, child: subprocess.Popen[bytes], terminated: bool) -> bool:
    """Send TERM to the child of an attempt that is to stop, once, and KILL when it does not exit in time;
    return whether TERM was sent.
    """
    if attempt.stop_reason and not terminated:
        child.terminate()
        terminated = True
    now_s = attempt.world.clock.monotonic_s()
    out_of_time = now_s > min(attempt.stopping_since_s + attempt.grace_s, attempt.kill_s)
    # While the end that its settlement will charge is still paid for.
    end_usd = attempt.price_usd(attempt.expected_exit_s)
    if terminated and (out_of_time or attempt.spent_usd() + end_usd >= attempt.reserved_usd):
        child.kill()
    return terminated


def heartbeat_sender(attempt: Attempt, io: BackgroundIO) -> Callable[[], None]:
    """Return a function that starts to write a heartbeat, and to check that the attempt has its reservation.
    Neither waits for the other.

    A pod that its cluster lost sight of, or that was stopped for a while, may have been taken for lost. Then
    another pod runs the stage.
    """
    world, account = attempt.world, attempt.run.start.account
    # Of the checking thread alone: one thread uses a ledger.
    ledger = world_ledger(world)

    def check() -> None:
        attempt.is_settled = str(attempt.id) in ledger.state(account).settled_usd

    def send() -> None:
        io.write(partial(put_heartbeat, world.store, make_heartbeat(attempt, running_state(attempt))))
        io.check(check)

    return send


def check_child(attempt: Attempt, pid: int, scratch: Path, monitor: MigrationMonitor) -> None:
    """Read the child's progress and usage and the current price; apply the guardrails and the migration
    policy.
    """
    read_child(attempt, scratch)
    attempt.update_price()
    check_guardrails(attempt, pid)
    migrate_if_cheaper(attempt, monitor)


def supervise(attempt: Attempt, world_argument: str) -> ChildResult:
    """Run the stage's code in a child of this process, and return how it ended."""
    with temporary_folder() as scratch, closed_while_beating(attempt) as io:
        with beating(attempt):
            monitor = make_monitor(attempt)
        attempt.processes, attempt.memory = ProcessTree(), ContainerMemory()
        attempt.update_price()
        child = start_child(attempt, world_argument, scratch, may_migrate=monitor.may_migrate)
        try:
            watch_child(attempt, child, scratch, io, monitor)
        finally:
            if child.poll() is None:
                child.kill()
            child.wait()
            attempt.processes.end()
        read_child(attempt, scratch)
        attempt.usage = attempt_usage(attempt)
        return child_result(attempt, child, scratch)


def raise_unless_done(attempt: Attempt, result: ChildResult) -> None:
    """Raise StageStopped or StageFailed unless the stage is done."""
    if result.status == "stopped":
        raise StageStopped(f"{attempt.stage} stopped: {result.reason}")
    if result.status == "failed":
        raise StageFailed(result.reason)
