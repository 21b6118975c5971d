"""The process that runs a stage's own code. Its supervisor starts it, watches it, and is the only one to
communicate with it.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from shoestring.backends.processes import adopt_orphans, end_descendants, find_process
from shoestring.config.policy import Policy
from shoestring.core.attempt_id import AttemptId
from shoestring.core.errors import CommandFailed, ShoestringError, StageStopped, StoreError, StoreFull
from shoestring.core.money import Usd
from shoestring.core.pod_ref import LAUNCHER_VARIABLE, LocalProcess, PodRef
from shoestring.core.receipt import AdaptationChange, Cause
from shoestring.core.record import Record, record_bytes
from shoestring.core.types import STANDARD_CLASS, Format, Pool, StageOutcome
from shoestring.data.job import Command
from shoestring.data.run_records import read_run_record
from shoestring.data.scratch.scratch_files import MAX_REASON_CHARS, write_whole
from shoestring.data.scratch.temporary_folders import hold_folder
from shoestring.runtime.open_world import open_world
from shoestring.runtime.supervisor.spend_limits import LIMITS_FILE, LimitsReader
from shoestring.spending.heartbeat import record_lost
from shoestring.spending.meter import Meter
from shoestring.stages.work import CommandWork, Origin, StageProgress, Work

JOB_FILE, PROGRESS_FILE, RESULT_FILE = "job.json", "progress.json", "result.json"
ORPHAN_GRACE_S = 5.0
REPORT_TIMEOUT_S = 1.0
PROGRESS_EVERY_S = 0.2


class ChildJob(Record):
    """The job that the supervisor passes to the child. Times are seconds on the monotonic clock."""

    stage: str
    attempt: int
    run_id: str
    world: str
    inputs: dict[str, str]
    format: Format | None
    cores: int
    device: str = "cpu"
    usd_per_hour: Usd
    started_s: float
    limit_usd: Usd
    deadline_s: float | None
    parent_pid: int
    origin: Origin | None = None
    command: Command | None = None
    storage_class: str = STANDARD_CLASS
    planned_samples: int | None = None
    pool: Pool | None = None
    sudden_ends_per_hour: float = 0.0
    may_ask_for_pool: bool = False
    family: str = ""


class ChildResult(Record):
    """How the child's work ended."""

    status: Literal["done", "stopped", "failed"]
    outcome: StageOutcome | None = None
    cause: Cause = ""
    reason: str = ""
    exit_code: int | None = Field(None, description="of a command that ended by itself")


class StopSignal:
    """Set by TERM, or when the supervisor is gone; then the stage has a grace period before the process ends
    itself and everything that it started.

    `before_stop` runs before the signal is reported. It updates the meter: how the stage stops depends on the
    money left. `when_lost` runs last where the supervisor is gone: it reports when the attempt ended.
    `at_end` runs last of all.
    """

    def __init__(self, parent_pid: int) -> None:
        self.before_stop: Callable[[], None] = lambda: None
        self.when_lost: Callable[[], None] = lambda: None
        self.at_end: Callable[[], None] = lambda: None
        self._event, self._parent_pid = threading.Event(), parent_pid
        signal.signal(signal.SIGTERM, lambda *_: self._event.set())
        # The terminal's Ctrl-C reaches the whole process group; the supervisor handles it. A signal that is
        # ignored would be ignored by the programs that this process starts, too.
        signal.signal(signal.SIGINT, lambda *_: None)
        threading.Thread(target=self._watch, daemon=True).start()

    def __call__(self) -> bool:
        if self._event.is_set():
            self.before_stop()
        return self._event.is_set()

    def end_if_lost(self) -> None:
        """If the supervisor is gone, end what this process started, and report the end. A store that does not
        answer must not delay it.
        """
        if os.getppid() != self._parent_pid:
            end_descendants()
            report = threading.Thread(target=self.when_lost, daemon=True)
            report.start()
            report.join(REPORT_TIMEOUT_S)
        self.at_end()

    def _watch(self) -> None:
        while os.getppid() == self._parent_pid:
            time.sleep(0.2)
        self._event.set()
        time.sleep(ORPHAN_GRACE_S)
        self.end_if_lost()
        os._exit(1)


def wake_settlers() -> None:
    """Continue the supervisor and the launcher, where a command has stopped them: they settle it."""
    launcher = os.environ.get(LAUNCHER_VARIABLE)
    named = PodRef.parse(launcher) if launcher else None
    process = find_process(named) if isinstance(named, LocalProcess) else None
    for pid in (os.getppid(), process.pid if process else os.getppid()):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGCONT)


class ProgressFile:
    """The stage's progress in a file that is replaced whole, at most five times a second.

    Progress with a new adaptation change is always written.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._last_s = path, float("-inf")
        self._changes: tuple[AdaptationChange, ...] = ()

    def __call__(self, progress: StageProgress) -> None:
        now_s = time.monotonic()
        if now_s - self._last_s < PROGRESS_EVERY_S and progress.changes == self._changes:
            return
        self._last_s, self._changes = now_s, progress.changes
        write_whole(self._path, record_bytes(progress))


def make_work(job: ChildJob, scratch: Path, stop: StopSignal) -> Work | CommandWork:
    """Open the world and return what the stage's code receives."""
    world = open_world(job.world)
    record = read_run_record(world.store, job.run_id)
    meter = Meter(Decimal(job.usd_per_hour), job.started_s, job.limit_usd, job.deadline_s)
    stop.before_stop = LimitsReader(scratch / LIMITS_FILE, meter).read
    attempt = AttemptId(job.run_id, job.stage, job.attempt)
    stop.when_lost = lambda: record_lost(world.store, job.run_id, attempt, world.clock.now())
    tools: dict[str, Any] = {
        "run_id": job.run_id,
        "stage": job.stage,
        "attempt": job.attempt,
        "store": world.store,
        "meter": meter,
        "clock": world.clock,
        "scratch": scratch,
        "report_progress": ProgressFile(scratch / PROGRESS_FILE),
        "should_stop": stop,
    }
    if job.command is not None:
        return CommandWork(command=job.command, **tools)
    assert record.recipe is not None
    return Work(
        **tools,
        seed=record.job.seed,
        inputs=job.inputs,
        recipe=record.recipe.with_family(job.family) if job.family else record.recipe,
        format=job.format,
        cores=job.cores,
        device=job.device,
        policy=policy_for(world.policy, job),
        settings=job.origin.settings if job.origin else {},
        storage_class=job.storage_class,
        planned_samples=job.planned_samples,
        pool=job.pool,
        sudden_ends_per_hour=job.sudden_ends_per_hour,
        remote=world.remote,
    )


def policy_for(policy: Policy, job: ChildJob) -> Policy:
    """Return the policy that the stage obeys: it asks for another pool only if its supervisor can answer."""
    limits = policy.adaptation_limits
    allowed = limits.model_copy(update={"pool": limits.pool and job.may_ask_for_pool})
    return policy.model_copy(update={"adaptation_limits": allowed})


def stage_module_name(job: ChildJob) -> str:
    if job.command is not None:
        return "shoestring.stages.command"
    return job.origin.module if job.origin else f"shoestring.stages.{job.stage}"


def main(scratch: Path) -> ChildResult:
    """Do the work that `job.json` in `scratch` describes, and return how it ended."""
    job = ChildJob.model_validate_json((scratch / JOB_FILE).read_bytes())
    stop = StopSignal(job.parent_pid)
    if job.command is not None:
        stop.at_end = wake_settlers
    try:
        stage = importlib.import_module(stage_module_name(job))
        return ChildResult(status="done", outcome=stage.run(make_work(job, scratch, stop)))
    except CommandFailed as error:
        return ChildResult(status="failed", cause="code", reason=str(error), exit_code=error.code)
    except StageStopped as error:
        return ChildResult.model_validate({"status": "stopped", "cause": error.cause, "reason": str(error)})
    except ShoestringError as error:
        # A full store stays full, so a retry would fail again; an unreachable one may be reachable then.
        unreachable = isinstance(error, StoreError) and not isinstance(error, StoreFull)
        return ChildResult(status="failed", cause="store" if unreachable else "code", reason=str(error))
    except MemoryError:
        reason = f"{job.stage} ran out of memory: choose a pool with more memory, or read fewer rows"
        return ChildResult(status="failed", cause="memory", reason=reason)
    except Exception as error:
        traceback.print_exc()
        reason = f"{job.stage} failed: {type(error).__name__}: {error}"
        return ChildResult(status="failed", cause="code", reason=reason)
    finally:
        stop.end_if_lost()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    # This process may outlive its supervisor, and needs its files until it ends.
    hold_folder(folder)
    adopt_orphans()
    result = main(folder)
    result = result.model_copy(update={"reason": result.reason[:MAX_REASON_CHARS]})
    with contextlib.suppress(OSError):
        write_whole(folder / RESULT_FILE, record_bytes(result))
    # Daemon threads of libraries must not delay or crash an exit whose result is already written.
    sys.stdout.flush()
    os._exit(0 if result.status == "done" else 1)
