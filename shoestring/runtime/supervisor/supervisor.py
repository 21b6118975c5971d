"""What a stage's pod does first and last: opens the World, starts the work in a child, watches the money, keeps the books."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path

import psutil

from shoestring.core.errors import BudgetExceeded, LedgerConflict, StageFailed, StageStopped, StoreError
from shoestring.core.money import usd
from shoestring.core.pod_ref import LocalProcess, PodRef
from shoestring.core.record import record_bytes
from shoestring.runtime.admission.admit import EXTENSION_SHARE, LAUNCHER_VARIABLE
from shoestring.runtime.supervisor.attempt import Attempt
from shoestring.runtime.supervisor.background_io import (
    ANSWER_TIMEOUT_S,
    BackgroundIO,
    ExtensionRequests,
    background_io,
)
from shoestring.runtime.supervisor.child import ChildJob, ChildResult
from shoestring.runtime.supervisor.guardrails import check_guardrails
from shoestring.runtime.supervisor.migration_check import make_monitor, migrate_if_cheaper, write_last_check
from shoestring.runtime.supervisor.spend_limits import send_limits, update_price
from shoestring.spending.heartbeat import Heartbeat, heartbeat_key
from shoestring.spending.ledger.ledger import Ledger
from shoestring.stages.work import Progress

# How often the child is looked at, and its money.
CHECK_EVERY_S = 1.0
POLL_EVERY_S = 0.1
# From TERM to KILL, where the money allows it.
GRACE_S = 5.0
# How long before its money is due a stage asks for more, and no more than this share of its reservation before: so that a store that
# is slow, or away for a moment, stops nothing, and few ask that would have ended in time.
EXTEND_AHEAD_S, EXTEND_AHEAD_SHARE = 10.0, Decimal("0.1")


@contextmanager
def stop_on_signals(attempt: Attempt) -> Iterator[None]:
    """TERM and INT ask for a stop instead of ending the process in the middle of its books."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def hear(number: int, _frame: object) -> None:
        attempt.stop(f"told to stop by {signal.Signals(number).name}")

    heard = {number: signal.signal(number, hear) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, before in heard.items():
            signal.signal(number, before)


def launcher_check() -> Callable[[], bool]:
    """A question to ask again and again: has whoever launched the run gone away?

    The local runner's child outlives its parent when that is killed, and a shell stands between them, so the launcher
    leaves its own identity in the environment; on a cluster nobody does, and the answer is always no.
    """
    named = os.environ.get(LAUNCHER_VARIABLE)
    if not named:
        return lambda: False
    launcher = PodRef.parse(named)
    assert isinstance(launcher, LocalProcess)

    def gone() -> bool:
        try:
            process = psutil.Process(launcher.pid)
            return (
                process.status() == psutil.STATUS_ZOMBIE
                or abs(int(process.create_time() * 1000) - launcher.created_ms) > 1000
            )
        except psutil.NoSuchProcess:
            return True

    return gone


def write_heartbeat(attempt: Attempt, state: str) -> None:
    """Raises StoreError."""
    attempt.world.store.put(heartbeat_key(attempt.run.run_id, str(attempt.id)), record_bytes(make_heartbeat(attempt, state)))


def make_heartbeat(attempt: Attempt, state: str) -> Heartbeat:
    world, progress = attempt.world, attempt.progress
    now = world.clock.now()
    return Heartbeat(
        run_id=attempt.run.run_id,
        stage=attempt.stage,
        attempt=attempt.number,
        pod=world.pod,
        state=state,
        usd_per_hour=attempt.usd_per_hour,
        prices=attempt.prices(),
        started_at=now - timedelta(seconds=world.clock.monotonic_s() - attempt.started_s),
        at=now,
        interval_s=world.policy.heartbeat_s,
        spent_usd=min(attempt.spent_usd(), attempt.reserved_usd),
        fees_usd=attempt.choice.incurred_usd(done=False),
        phase=progress.phase,
        samples=progress.samples,
        total=progress.total,
        quality=progress.quality,
        usage=attempt.usage,
        changes=attempt.changes,
        forecast=progress.forecast,
    )


def extend_or_stop(attempt: Attempt, ledger: Ledger, clerk: ExtensionRequests) -> None:
    """Ask for more in good time, and go on; stop when the reservation less the price of an answer and the exit is gone.

    An elastic stage was given all that it may have, and is due to stop by itself.
    """
    if attempt.stop_reason:
        return
    if attempt.decision.question.needs[0].elastic:
        # It has no answer to wait for: what that would cost is the child's, who ends by itself at the same limit.
        if attempt.spent_usd() + attempt.exit_usd >= attempt.reserved_usd:
            attempt.stop(f"its ${attempt.reserved_usd} are spent", "money")
        return
    due_usd = attempt.spent_usd() + attempt.exit_usd + attempt.price_usd(ANSWER_TIMEOUT_S)
    is_due = due_usd >= attempt.reserved_usd
    ahead_usd = min(attempt.price_usd(EXTEND_AHEAD_S), attempt.reserved_usd * EXTEND_AHEAD_SHARE)
    # Asked in good time, it is asked once; refused then, it goes on, and asks again when it is due: others may have ended.
    if is_due or (due_usd + ahead_usd >= attempt.reserved_usd != attempt.extension_asked_at_usd):
        attempt.extension_asked_at_usd = attempt.reserved_usd
        least_usd = max(2 * attempt.exit_usd, due_usd - attempt.reserved_usd)
        more_usd = usd(max(attempt.choice.p95_usd * EXTENSION_SHARE, least_usd))
        clerk.ask(partial(extend_reservation, attempt, ledger, more_usd, least_usd))
    take_extension(attempt, clerk, is_due)


def extend_reservation(attempt: Attempt, ledger: Ledger, more_usd: Decimal, least_usd: Decimal) -> Decimal:
    """What was given: what is left, where that is less than was asked for and enough to go on with.

    Raises:
        BudgetExceeded: it is not.
    """
    account, hold, keep_usd = attempt.run.start.account, str(attempt.id), attempt.choice.reserved_later_usd
    try:
        ledger.extend(account, hold, more_usd, keep_usd)
    except BudgetExceeded as error:
        if error.left_usd < least_usd:
            raise
        more_usd = error.left_usd
        ledger.extend(account, hold, more_usd, keep_usd)
    return more_usd


def take_extension(attempt: Attempt, clerk: ExtensionRequests, is_due: bool) -> None:
    """Take in what the ledger gave, if it has answered. Where more is due, no answer is waited for longer than is paid for."""
    past = f"it is past its P95 of ${attempt.choice.p95_usd}, and"
    try:
        more_usd = clerk.answer(ANSWER_TIMEOUT_S if is_due else 0.0)
        if more_usd is not None:
            attempt.reserved_usd += more_usd
        elif is_due:
            attempt.stop(f"{past} the store did not answer in {ANSWER_TIMEOUT_S:g} s", "lost")
    except LedgerConflict as error:
        attempt.stop(f"it was taken for dead, and its reservation settled: {error}", "lost")
    except BudgetExceeded as error:
        if is_due:
            attempt.stop(f"{past} the ledger refused more: {error}", "money")
    except StoreError as error:
        if is_due:
            attempt.stop(f"{past} the store could not take the question: {error}", "lost")


def start_child(attempt: Attempt, world_argument: str, scratch: Path) -> subprocess.Popen[bytes]:
    placement = attempt.decision.placement
    variables = attempt.world.cluster.apply_placement(placement) if placement else {}
    meter = attempt.meter()
    job = ChildJob(
        stage=attempt.stage,
        attempt=attempt.number,
        run_id=attempt.run.run_id,
        world=world_argument,
        inputs=dict(attempt.inputs),
        format=attempt.choice.format,
        cores=max(1, int(float(placement.cpu))) if placement else 1,
        usd_per_hour=meter.usd_per_hour,
        started_s=meter.started_s,
        limit_usd=meter.limit_usd,
        deadline_s=meter.deadline_s,
        parent_pid=os.getpid(),
        origin=attempt.origin,
        storage_class=attempt.choice.storage_class,
    )
    (scratch / "job.json").write_bytes(record_bytes(job))
    command = [sys.executable, "-m", "shoestring.runtime.supervisor.child", str(scratch)]
    return subprocess.Popen(command, env=os.environ | variables, stdin=subprocess.DEVNULL)


def watch_child(attempt: Attempt, child: subprocess.Popen[bytes], scratch: Path, clerk: BackgroundIO) -> None:
    """Until the child ends: hear signals, see the parent go, beat, extend or stop. TERM, a grace, KILL."""
    world, ledger, gone = (
        attempt.world,
        Ledger(attempt.world.store, attempt.world.clock, str(attempt.world.pod)),
        launcher_check(),
    )
    beat_s, look_s, told, ended = float("-inf"), float("-inf"), False, wait_in_thread(child)
    looks = make_monitor(attempt)
    # Read now what is there, so that whatever is asked later needs only what is new.
    clerk.prepare(partial(ledger.state, attempt.run.start.account))
    while child.poll() is None:
        now_s = world.clock.monotonic_s()
        extend_or_stop(attempt, ledger, clerk)
        send_limits(attempt, scratch)
        if attempt.stop_reason and not told:
            child.terminate()
            told = True
        # Whoever does not leave in time is ended while leaving is still paid for.
        if told and (
            now_s - attempt.stopping_since_s > GRACE_S or attempt.spent_usd() >= attempt.reserved_usd
        ):
            child.kill()
        if now_s - look_s >= CHECK_EVERY_S:
            look_s = now_s
            if gone():
                attempt.stop("whoever launched the run is gone")
            read_child(attempt, child.pid, scratch)
            update_price(attempt)
            check_guardrails(attempt, child.pid)
            migrate_if_cheaper(attempt, looks)
        if now_s - beat_s >= world.policy.heartbeat_s:
            beat_s = now_s
            beat = record_bytes(make_heartbeat(attempt, "stopping" if attempt.stop_reason else "running"))
            clerk.note(partial(world.store.put, heartbeat_key(attempt.run.run_id, str(attempt.id)), beat))
        ended.wait(POLL_EVERY_S)
    clerk.prepare(partial(write_last_check, attempt, looks))


def wait_in_thread(child: subprocess.Popen[bytes]) -> threading.Event:
    """Is set when the child has ended. To ask a process with a timeout is to ask it seventy times a second."""
    ended = threading.Event()

    def wait() -> None:
        child.wait()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    return ended


def read_child(attempt: Attempt, pid: int, scratch: Path) -> None:
    """Take in how far the child is and what it uses."""
    usage = attempt.world.telemetry.usage(pid)
    attempt.cpu_s = max(attempt.cpu_s, usage.cpu_s)
    attempt.peak_rss_bytes = max(attempt.peak_rss_bytes, usage.rss_bytes)
    attempt.gpu_usage.look(usage)
    path = scratch / "progress.json"
    if path.exists():
        attempt.progress = Progress.model_validate_json(path.read_bytes())


def child_result(attempt: Attempt, child: subprocess.Popen[bytes], scratch: Path) -> ChildResult:
    path = scratch / "ending.json"
    if path.exists():
        ending = ChildResult.model_validate_json(path.read_bytes())
        why = (
            f"{attempt.stop_reason}; {ending.why}"
            if attempt.stop_reason and ending.why
            else attempt.stop_reason or ending.why
        )
        if ending.status == "done":
            return ending
        cause = attempt.stop_cause if ending.status == "stopped" and attempt.stop_cause else ending.cause
        return ending.model_copy(update={"why": why, "cause": cause})
    if attempt.stop_reason:
        return ChildResult(status="stopped", cause=attempt.stop_cause, why=attempt.stop_reason)
    code = child.returncode
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    cause = "lost" if -code in (signal.SIGKILL, signal.SIGTERM) else "code"
    return ChildResult(
        status="failed",
        cause=cause,
        why=f"{attempt.stage}'s process ended without a word ({how}); a resumed run goes on from its checkpoint",
    )


def supervise(attempt: Attempt, world_argument: str) -> ChildResult:
    """Run the stage's work in a child of this process, and bring home how it ended."""
    with tempfile.TemporaryDirectory(prefix="shoestring-") as folder, background_io() as writer:
        scratch = Path(folder)
        child = start_child(attempt, world_argument, scratch)
        try:
            watch_child(attempt, child, scratch, writer)
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
        read_child(attempt, child.pid, scratch)
        return child_result(attempt, child, scratch)


def raise_unless_done(attempt: Attempt, ending: ChildResult) -> None:
    if ending.status == "stopped":
        raise StageStopped(f"{attempt.stage} stopped: {ending.why}")
    if ending.status == "failed":
        raise StageFailed(ending.why)
