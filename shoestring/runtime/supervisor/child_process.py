"""The child process as its supervisor sees it: started, read, and how it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from shoestring.core.errors import DataError
from shoestring.core.pod_ref import LocalProcess
from shoestring.core.record import record_bytes
from shoestring.data.scratch.scratch_files import read_scratch_file
from shoestring.runtime.supervisor.attempt import Attempt
from shoestring.runtime.supervisor.child import (
    JOB_FILE,
    PROGRESS_FILE,
    RESULT_FILE,
    ChildJob,
    ChildResult,
)
from shoestring.spending.end_evidence import EndEvidence, StageReport
from shoestring.spending.ends import how_it_ended
from shoestring.stages.work import StageProgress

STAGE_PROCESS = "shoestring.runtime.supervisor.child"
"""The module that the child of a supervisor runs."""


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
        device="cuda" if placement and placement.accelerator else "cpu",
        usd_per_hour=meter.usd_per_hour,
        started_s=meter.started_s,
        limit_usd=meter.limit_usd,
        deadline_s=meter.deadline_s,
        parent_pid=os.getpid(),
        may_ask_for_pool=may_migrate,
        origin=attempt.origin,
        command=attempt.command,
        storage_class=attempt.choice.storage_class,
        planned_samples=attempt.choice.samples or None,
        pool=attempt.pool,
        sudden_ends_per_hour=sudden_ends_per_hour(attempt),
        family=family.name if (family := attempt.decision.question.family) else "",
    )
    (scratch / JOB_FILE).write_bytes(record_bytes(job))
    command = [sys.executable, "-m", STAGE_PROCESS, str(scratch)]
    # A command has the terminal of whoever started it.
    stdin = None if attempt.command else subprocess.DEVNULL
    return subprocess.Popen(command, env=os.environ | variables, stdin=stdin)


def sudden_ends_per_hour(attempt: Attempt) -> float:
    """Return how often the pod of an attempt is expected to end without notice."""
    engine, terms = attempt.decision.question.engine, attempt.pool.markets.get(attempt.choice.market)
    return terms.preemptions_per_hour if terms and engine and not engine.gives_notice else 0.0


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


def read_child(attempt: Attempt, scratch: Path) -> None:
    """Read the usage of the child and of all that it started, and its progress, into the attempt."""
    if attempt.processes:
        usage = attempt.processes.usage()
        attempt.cpu_s = max(attempt.cpu_s, usage.cpu_s)
        attempt.peak_rss_bytes = max(attempt.peak_rss_bytes, usage.rss_bytes)
    if attempt.pool.gpu_count:
        attempt.gpu_usage.sample()
    # A file that is no progress changes nothing: what was reported before it counts.
    with contextlib.suppress(DataError):
        attempt.progress = read_scratch_file(scratch / PROGRESS_FILE, StageProgress) or attempt.progress


def read_result(stage: str, path: Path) -> ChildResult | None:
    """Return the result that the child wrote; None: it wrote none. One that makes no sense is its failure."""
    try:
        result = read_scratch_file(path, ChildResult)
    except DataError as error:
        reason = f"{stage} left a result that cannot be used: {error}"
        return ChildResult(status="failed", cause="code", reason=reason)
    if result and result.status == "done" and result.outcome is None:
        return ChildResult(status="failed", cause="code", reason=f"{stage} ended as done but left no outcome")
    return result


def child_result(attempt: Attempt, child: subprocess.Popen[bytes], scratch: Path) -> ChildResult:
    """Return how the child ended, from its result file or else from its exit code."""
    found = read_result(attempt.stage, scratch / RESULT_FILE)
    evidence = EndEvidence(
        stage=attempt.stage,
        report=StageReport(found.status, found.cause, found.reason) if found else None,
        stop_reason=attempt.stop_reason,
        stop_cause=attempt.stop_cause,
        exit_code=child.returncode,
        memory_kill=ran_out_of_memory(attempt, child.returncode),
    )
    end = how_it_ended(evidence)
    outcome = found.outcome if found and end.status == "done" else None
    return ChildResult.model_validate(
        {"status": end.status, "outcome": outcome, "cause": end.cause, "reason": end.reason}
        | {"exit_code": found.exit_code if found else None}
    )


def ran_out_of_memory(attempt: Attempt, code: int) -> bool:
    """Return whether the kernel killed a process of the stage for memory.

    The container of a pod that has a memory limit counts the stage's own processes. Elsewhere others are
    counted, too, so the child itself must have been killed, and not by its supervisor.
    """
    memory = attempt.memory
    if memory is None or not memory.kills():
        return False
    is_own = memory.has_limit and not isinstance(attempt.world.pod, LocalProcess)
    return is_own or (code == -signal.SIGKILL and not attempt.stop_reason)
