"""The child process as its supervisor sees it: started, read, and how it ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

from shoestring.backends.memory_limits import memory_limit, oom_kills
from shoestring.core.record import record_bytes
from shoestring.runtime.supervisor.attempt import Attempt
from shoestring.runtime.supervisor.child import (
    JOB_FILE,
    PROGRESS_FILE,
    RESULT_FILE,
    ChildJob,
    ChildResult,
)
from shoestring.stages.work import StageProgress


def start_child(
    attempt: Attempt, world_argument: str, scratch: Path, *, may_migrate: bool
) -> subprocess.Popen[bytes]:
    """Start the process that runs the stage's code, with its job in the scratch folder."""
    placement = attempt.decision.placement
    variables = attempt.world.cluster.apply_placement(placement) if placement else {}
    meter = attempt.meter()
    job = ChildJob(
        stage=attempt.stage,
        attempt=attempt.id.number,
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
        may_ask_for_pool=may_migrate,
        origin=attempt.origin,
        storage_class=attempt.choice.storage_class,
        planned_samples=attempt.choice.samples or None,
    )
    (scratch / JOB_FILE).write_bytes(record_bytes(job))
    command = [sys.executable, "-m", "shoestring.runtime.supervisor.child", str(scratch)]
    return subprocess.Popen(command, env=os.environ | variables, stdin=subprocess.DEVNULL)


def wait_in_thread(child: subprocess.Popen[bytes]) -> threading.Event:
    """Return an event that is set when the child ends. `Popen.wait` with a timeout would poll 70 times a
    second.
    """
    ended = threading.Event()

    def wait() -> None:
        child.wait()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    return ended


def read_child(attempt: Attempt, pid: int, scratch: Path) -> None:
    """Read the usage of the child and of all that it started, and its progress, into the attempt."""
    usage = attempt.world.telemetry.usage(pid)
    if attempt.processes:
        tree = attempt.processes.usage()
        usage = replace(usage, cpu_s=tree.cpu_s, rss_bytes=tree.rss_bytes)
    attempt.cpu_s = max(attempt.cpu_s, usage.cpu_s)
    attempt.peak_rss_bytes = max(attempt.peak_rss_bytes, usage.rss_bytes)
    attempt.gpu_usage.add_sample(usage)
    limit = memory_limit()
    attempt.memory_share = round(limit.share, 4) if limit else None
    path = scratch / PROGRESS_FILE
    if path.exists():
        attempt.progress = StageProgress.model_validate_json(path.read_bytes())


def child_result(attempt: Attempt, child: subprocess.Popen[bytes], scratch: Path) -> ChildResult:
    """Return how the child ended, from its result file or else from its exit code."""
    path = scratch / RESULT_FILE
    if path.exists():
        result = ChildResult.model_validate_json(path.read_bytes())
        if result.status == "done":
            return result
        reason = "; ".join(filter(None, (attempt.stop_reason, result.reason)))
        cause = attempt.stop_cause if result.status == "stopped" and attempt.stop_cause else result.cause
        return result.model_copy(update={"reason": reason, "cause": cause})
    if attempt.stop_reason:
        return ChildResult(status="stopped", cause=attempt.stop_cause, reason=attempt.stop_reason)
    code = child.returncode
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    before = attempt.oom_kills_before
    if code == -signal.SIGKILL and before is not None and oom_kills() > before:
        reason = f"the kernel killed {attempt.stage}'s process for memory; the next attempt gets more"
        return ChildResult(status="failed", cause="memory", reason=reason)
    return ChildResult(
        status="failed",
        cause="lost" if -code in (signal.SIGKILL, signal.SIGTERM) else "code",
        reason=f"{attempt.stage}'s process ended without a result ({how}); "
        "a resumed run continues from its checkpoint",
    )
