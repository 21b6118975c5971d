"""What a stage's pod does first and last: opens the World, starts the work in a child, watches the money, keeps the books."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path

import psutil

from shoestring.data.runs import Run
from shoestring.errors import BudgetExceeded, LedgerConflict, StageFailed, StageStopped
from shoestring.model import Cause, record
from shoestring.money import usd
from shoestring.pod.admission import EXTENSION_SHARE, SUPERVISOR_VARIABLE
from shoestring.pod.child import Ending, Job
from shoestring.pod.clerk import ANSWER_S, Clerk, clerk
from shoestring.routing.decision import Choice, Decision
from shoestring.seams import World
from shoestring.spending.heartbeat import Heartbeat, heartbeat_key
from shoestring.spending.ledger import Ledger
from shoestring.spending.meter import Meter
from shoestring.stages.work import Origin, Progress

HEARTBEAT_S = 1.0
POLL_S = 0.1
# From TERM to KILL, where the money allows it.
GRACE_S = 5.0
# What leaving takes; its price is kept back from every reservation, with the stage's own checkpoint time.
EXIT_S = 0.5


@dataclass(slots=True)
class Attempt:
    """One attempt at a stage, while it runs. Everything that changes is here."""

    world: World
    run: Run
    decision: Decision
    decision_key: str
    inputs: Mapping[str, str]
    started_s: float
    reserved_usd: Decimal
    origin: Origin | None = None
    stopping: str = ""
    cause: Cause = ""
    stopping_since_s: float = 0.0
    progress: Progress = field(default_factory=Progress)
    cpu_s: float = 0.0
    peak_rss_bytes: int = 0

    @property
    def choice(self) -> Choice:
        if self.decision.choice is None:
            raise StageFailed(f"{self.decision_key} chose nothing, so {self.decision.question.stage} has nowhere to run")
        return self.decision.choice

    @property
    def stage(self) -> str:
        return self.decision.question.stage

    @property
    def number(self) -> int:
        return self.decision.question.attempt

    @property
    def hold(self) -> str:
        return self.decision.question.hold

    @property
    def exit_usd(self) -> Decimal:
        """The price of leaving in good order: a checkpoint, a grace, the last entries, and the pod's own end after them."""
        exit_s = Decimal(str(EXIT_S + self.decision.question.needs[0].checkpoint_s + self.world.rules.leaving_s))
        return usd(self.choice.usd_per_hour * exit_s / 3600)

    def meter(self) -> Meter:
        """The money of the reservation less the exit, and the deadline less what its decision set aside for later stages."""
        left_s = self.decision.question.deadline_left_s
        kept_s = sum(later.keep_s for later in self.decision.plan)
        ends_s = None if left_s is None else self.started_s + left_s - kept_s
        return Meter(self.choice.usd_per_hour, self.started_s, self.reserved_usd - self.exit_usd, ends_s)

    def spent_usd(self) -> Decimal:
        return self.meter().spent_usd(self.world.clock.monotonic_s())

    def stop(self, why: str, cause: Cause = "told-to-stop") -> None:
        if not self.stopping:
            self.stopping, self.cause, self.stopping_since_s = why, cause, self.world.clock.monotonic_s()


def began_s(world: World) -> float:
    """When this pod began, on the monotonic clock: its own start where that can be known, so that imports are paid for too."""
    now_s = world.clock.monotonic_s()
    started_at = world.cluster.life(world.pod_uid).started_at
    return now_s - max(0.0, (world.clock.now() - started_at).total_seconds()) if started_at else now_s


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
            return process.status() == psutil.STATUS_ZOMBIE or abs(int(process.create_time() * 1000) - int(created_ms)) > 1000
        except psutil.NoSuchProcess:
            return True

    return gone


def heartbeat(attempt: Attempt, state: str) -> None:
    """Raises StoreError."""
    attempt.world.store.put(heartbeat_key(attempt.run.run_id, attempt.hold), record(beat_of(attempt, state)))


def beat_of(attempt: Attempt, state: str) -> Heartbeat:
    world, progress = attempt.world, attempt.progress
    now = world.clock.now()
    return Heartbeat(
        run_id=attempt.run.run_id,
        stage=attempt.stage,
        attempt=attempt.number,
        pod_uid=world.pod_uid,
        state=state,
        usd_per_hour=attempt.choice.usd_per_hour,
        started_at=now - timedelta(seconds=world.clock.monotonic_s() - attempt.started_s),
        at=now,
        interval_s=HEARTBEAT_S,
        spent_usd=min(attempt.spent_usd(), attempt.reserved_usd),
        phase=progress.phase,
        samples=progress.samples,
        total=progress.total,
        quality=progress.quality,
    )


def extend_or_stop(attempt: Attempt, ledger: Ledger, clerk: Clerk) -> None:
    """Before the reservation less the price of the exit, and of an answer, is gone: ask for more, or stop.

    An elastic stage was given all that it may have, and is due to stop by itself.
    """
    answer_usd = usd(attempt.choice.usd_per_hour * Decimal(str(ANSWER_S)) / 3600)
    if attempt.stopping or attempt.spent_usd() + attempt.exit_usd + answer_usd < attempt.reserved_usd:
        return
    if attempt.decision.question.needs[0].elastic:
        attempt.stop(f"its ${attempt.reserved_usd} are spent", "money")
        return
    more_usd = usd(max(attempt.choice.p95_usd * EXTENSION_SHARE, 2 * attempt.exit_usd))
    try:
        if clerk.ask(lambda: ledger.extend(attempt.run.start.account, attempt.hold, more_usd, attempt.choice.keep_usd)):
            attempt.reserved_usd += more_usd
        else:
            attempt.stop(f"it is past its P95 of ${attempt.choice.p95_usd}, and the store did not answer in {ANSWER_S:g} s", "lost")
    except BudgetExceeded as error:
        attempt.stop(f"it is past its P95 of ${attempt.choice.p95_usd}, and the ledger refused more: {error}", "money")
    except LedgerConflict as error:
        attempt.stop(f"it was taken for dead, and its reservation settled: {error}", "lost")


def start_child(attempt: Attempt, world_argument: str, scratch: Path) -> subprocess.Popen[bytes]:
    placement = attempt.decision.placement
    variables = attempt.world.cluster.enter(placement) if placement else {}
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
    )
    (scratch / "job.json").write_bytes(record(job))
    command = [sys.executable, "-m", "shoestring.pod.child", str(scratch)]
    return subprocess.Popen(command, env=os.environ | variables, stdin=subprocess.DEVNULL)


def watch(attempt: Attempt, child: subprocess.Popen[bytes], scratch: Path, clerk: Clerk) -> None:
    """Until the child ends: hear signals, see the parent go, beat, extend or stop. TERM, a grace, KILL."""
    world, ledger, gone = attempt.world, Ledger(attempt.world.store, attempt.world.clock, attempt.world.pod_uid), parent_is_gone()
    beat_s, told = float("-inf"), False
    while child.poll() is None:
        now_s = world.clock.monotonic_s()
        extend_or_stop(attempt, ledger, clerk)
        if attempt.stopping and not told:
            child.terminate()
            told = True
        # Whoever does not leave in time is ended while leaving is still paid for.
        if told and (now_s - attempt.stopping_since_s > GRACE_S or attempt.spent_usd() >= attempt.reserved_usd):
            child.kill()
        if now_s - beat_s >= HEARTBEAT_S:
            beat_s = now_s
            if gone():
                attempt.stop("whoever launched the run is gone")
            look(attempt, child.pid, scratch)
            beat = record(beat_of(attempt, "stopping" if attempt.stopping else "running"))
            clerk.note(partial(world.store.put, heartbeat_key(attempt.run.run_id, attempt.hold), beat))
        with suppress(subprocess.TimeoutExpired):
            child.wait(POLL_S)


def look(attempt: Attempt, pid: int, scratch: Path) -> None:
    """Take in how far the child is and what it uses."""
    usage = attempt.world.telemetry.usage(pid)
    attempt.cpu_s = max(attempt.cpu_s, usage.cpu_s)
    attempt.peak_rss_bytes = max(attempt.peak_rss_bytes, usage.rss_bytes)
    path = scratch / "progress.json"
    if path.exists():
        attempt.progress = Progress.model_validate_json(path.read_bytes())


def how_it_ended(attempt: Attempt, child: subprocess.Popen[bytes], scratch: Path) -> Ending:
    path = scratch / "ending.json"
    if path.exists():
        ending = Ending.model_validate_json(path.read_bytes())
        why = f"{attempt.stopping}; {ending.why}" if attempt.stopping and ending.why else attempt.stopping or ending.why
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
        return how_it_ended(attempt, child, scratch)


def raise_unless_done(attempt: Attempt, ending: Ending) -> None:
    if ending.status == "stopped":
        raise StageStopped(f"{attempt.stage} stopped: {ending.why}")
    if ending.status == "failed":
        raise StageFailed(ending.why)
