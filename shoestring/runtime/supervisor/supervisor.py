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
from shoestring.core.types import record_bytes
from shoestring.runtime.admission.admit import EXTENSION_SHARE, SUPERVISOR_VARIABLE
from shoestring.runtime.supervisor.attempt import Attempt
from shoestring.runtime.supervisor.background_io import ANSWER_S, Answers, Clerk, clerk
from shoestring.runtime.supervisor.child import Ending, Job
from shoestring.runtime.supervisor.guardrails import guard
from shoestring.runtime.supervisor.migration_check import look_again, looks_of, write_down
from shoestring.runtime.supervisor.spend_limits import reprice, tell
from shoestring.spending.heartbeat import Heartbeat, heartbeat_key
from shoestring.spending.ledger.ledger import Ledger
from shoestring.stages.work import Progress

# How often the child is looked at, and its money.
LOOK_S = 1.0
POLL_S = 0.1
# From TERM to KILL, where the money allows it.
GRACE_S = 5.0
# How long before its money is due a stage asks for more, and no more than this share of its reservation before: so that a store that
# is slow, or away for a moment, stops nothing, and few ask that would have ended in time.
ASK_AHEAD_S, ASK_AHEAD_SHARE = 10.0, Decimal("0.1")


@contextmanager
def signals(attempt: Attempt) -> Iterator[None]:
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


def parent_is_gone() -> Callable[[], bool]:
    """A question to ask again and again: has whoever launched the run gone away?

    The local runner's child outlives its parent when that is killed, and a shell stands between them, so the launcher
    leaves its own identity in the environment; on a cluster nobody does, and the answer is always no.
    """
    named = os.environ.get(SUPERVISOR_VARIABLE)
    if not named:
        return lambda: False
    _, pid, created_ms = named.rsplit(".", 2)

    def gone() -> bool:
        try:
            process = psutil.Process(int(pid))
            return (
                process.status() == psutil.STATUS_ZOMBIE
                or abs(int(process.create_time() * 1000) - int(created_ms)) > 1000
            )
        except psutil.NoSuchProcess:
            return True

    return gone


def heartbeat(attempt: Attempt, state: str) -> None:
    """Raises StoreError."""
    attempt.world.store.put(heartbeat_key(attempt.run.run_id, attempt.hold), record_bytes(beat_of(attempt, state)))


def beat_of(attempt: Attempt, state: str) -> Heartbeat:
    world, progress = attempt.world, attempt.progress
    now = world.clock.now()
    return Heartbeat(
        run_id=attempt.run.run_id,
        stage=attempt.stage,
        attempt=attempt.number,
        pod_uid=world.pod_uid,
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
        usage=attempt.used,
        changes=attempt.changes,
        forecast=progress.forecast,
    )


def extend_or_stop(attempt: Attempt, ledger: Ledger, clerk: Answers) -> None:
    """Ask for more in good time, and go on; stop when the reservation less the price of an answer and the exit is gone.

    An elastic stage was given all that it may have, and is due to stop by itself.
    """
    if attempt.stopping:
        return
    if attempt.decision.question.needs[0].elastic:
        # It has no answer to wait for: what that would cost is the child's, who ends by itself at the same limit.
        if attempt.spent_usd() + attempt.exit_usd >= attempt.reserved_usd:
            attempt.stop(f"its ${attempt.reserved_usd} are spent", "money")
        return
    due_usd = attempt.spent_usd() + attempt.exit_usd + attempt.price_usd(ANSWER_S)
    is_due = due_usd >= attempt.reserved_usd
    ahead_usd = min(attempt.price_usd(ASK_AHEAD_S), attempt.reserved_usd * ASK_AHEAD_SHARE)
    # Asked in good time, it is asked once; refused then, it goes on, and asks again when it is due: others may have ended.
    if is_due or (due_usd + ahead_usd >= attempt.reserved_usd != attempt.asked_at_usd):
        attempt.asked_at_usd = attempt.reserved_usd
        least_usd = max(2 * attempt.exit_usd, due_usd - attempt.reserved_usd)
        more_usd = usd(max(attempt.choice.p95_usd * EXTENSION_SHARE, least_usd))
        clerk.ask(partial(extend, attempt, ledger, more_usd, least_usd))
    hear_of_more(attempt, clerk, is_due)


def extend(attempt: Attempt, ledger: Ledger, more_usd: Decimal, least_usd: Decimal) -> Decimal:
    """What was given: what is left, where that is less than was asked for and enough to go on with.

    Raises:
        BudgetExceeded: it is not.
    """
    account, hold, keep_usd = attempt.run.start.account, attempt.hold, attempt.choice.keep_usd
    try:
        ledger.extend(account, hold, more_usd, keep_usd)
    except BudgetExceeded as error:
        if error.left_usd < least_usd:
            raise
        more_usd = error.left_usd
        ledger.extend(account, hold, more_usd, keep_usd)
    return more_usd


def hear_of_more(attempt: Attempt, clerk: Answers, is_due: bool) -> None:
    """Take in what the ledger gave, if it has answered. Where more is due, no answer is waited for longer than is paid for."""
    past = f"it is past its P95 of ${attempt.choice.p95_usd}, and"
    try:
        more_usd = clerk.answer(ANSWER_S if is_due else 0.0)
        if more_usd is not None:
            attempt.reserved_usd += more_usd
        elif is_due:
            attempt.stop(f"{past} the store did not answer in {ANSWER_S:g} s", "lost")
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
    job = Job(
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


def watch(attempt: Attempt, child: subprocess.Popen[bytes], scratch: Path, clerk: Clerk) -> None:
    """Until the child ends: hear signals, see the parent go, beat, extend or stop. TERM, a grace, KILL."""
    world, ledger, gone = (
        attempt.world,
        Ledger(attempt.world.store, attempt.world.clock, attempt.world.pod_uid),
        parent_is_gone(),
    )
    beat_s, look_s, told, ended = float("-inf"), float("-inf"), False, ending(child)
    looks = looks_of(attempt)
    # Read now what is there, so that whatever is asked later needs only what is new.
    clerk.prepare(partial(ledger.state, attempt.run.start.account))
    while child.poll() is None:
        now_s = world.clock.monotonic_s()
        extend_or_stop(attempt, ledger, clerk)
        tell(attempt, scratch)
        if attempt.stopping and not told:
            child.terminate()
            told = True
        # Whoever does not leave in time is ended while leaving is still paid for.
        if told and (
            now_s - attempt.stopping_since_s > GRACE_S or attempt.spent_usd() >= attempt.reserved_usd
        ):
            child.kill()
        if now_s - look_s >= LOOK_S:
            look_s = now_s
            if gone():
                attempt.stop("whoever launched the run is gone")
            look(attempt, child.pid, scratch)
            reprice(attempt)
            guard(attempt, child.pid)
            look_again(attempt, looks)
        if now_s - beat_s >= world.policy.heartbeat_s:
            beat_s = now_s
            beat = record_bytes(beat_of(attempt, "stopping" if attempt.stopping else "running"))
            clerk.note(partial(world.store.put, heartbeat_key(attempt.run.run_id, attempt.hold), beat))
        ended.wait(POLL_S)
    clerk.prepare(partial(write_down, attempt, looks))


def ending(child: subprocess.Popen[bytes]) -> threading.Event:
    """Is set when the child has ended. To ask a process with a timeout is to ask it seventy times a second."""
    ended = threading.Event()

    def wait() -> None:
        child.wait()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    return ended


def look(attempt: Attempt, pid: int, scratch: Path) -> None:
    """Take in how far the child is and what it uses."""
    usage = attempt.world.telemetry.usage(pid)
    attempt.cpu_s = max(attempt.cpu_s, usage.cpu_s)
    attempt.peak_rss_bytes = max(attempt.peak_rss_bytes, usage.rss_bytes)
    attempt.gpus.look(usage)
    path = scratch / "progress.json"
    if path.exists():
        attempt.progress = Progress.model_validate_json(path.read_bytes())


def how_it_ended(attempt: Attempt, child: subprocess.Popen[bytes], scratch: Path) -> Ending:
    path = scratch / "ending.json"
    if path.exists():
        ending = Ending.model_validate_json(path.read_bytes())
        why = (
            f"{attempt.stopping}; {ending.why}"
            if attempt.stopping and ending.why
            else attempt.stopping or ending.why
        )
        if ending.status == "done":
            return ending
        cause = attempt.cause if ending.status == "stopped" and attempt.cause else ending.cause
        return ending.model_copy(update={"why": why, "cause": cause})
    if attempt.stopping:
        return Ending(status="stopped", cause=attempt.cause, why=attempt.stopping)
    code = child.returncode
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    cause = "lost" if -code in (signal.SIGKILL, signal.SIGTERM) else "code"
    return Ending(
        status="failed",
        cause=cause,
        why=f"{attempt.stage}'s process ended without a word ({how}); a resumed run goes on from its checkpoint",
    )


def supervise(attempt: Attempt, world_argument: str) -> Ending:
    """Run the stage's work in a child of this process, and bring home how it ended."""
    with tempfile.TemporaryDirectory(prefix="shoestring-") as folder, clerk() as writer:
        scratch = Path(folder)
        child = start_child(attempt, world_argument, scratch)
        try:
            watch(attempt, child, scratch, writer)
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
        look(attempt, child.pid, scratch)
        return how_it_ended(attempt, child, scratch)


def raise_unless_done(attempt: Attempt, ending: Ending) -> None:
    if ending.status == "stopped":
        raise StageStopped(f"{attempt.stage} stopped: {ending.why}")
    if ending.status == "failed":
        raise StageFailed(ending.why)
