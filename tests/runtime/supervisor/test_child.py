"""The child process: its progress, its result, and its end when the supervisor is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import psutil
import pytest
from runtime_world import INGEST, begin, pod_environment, run_request, small_world

from shoestring.core import store_layout
from shoestring.core.record import record_bytes
from shoestring.runtime.supervisor.child import (
    ORPHAN_GRACE_S,
    RESULT_FILE,
    ChildJob,
    ChildResult,
    ProgressFile,
)
from shoestring.spending.heartbeat import LOST, Heartbeat, last_heartbeat
from shoestring.stages.work import StageProgress

WAITS = (
    "import os, time; from shoestring.runtime.supervisor.child import StopSignal; "
    "stop = StopSignal(os.getppid()); print(os.getpid(), flush=True)\n"
)


def test_an_orphan_that_does_not_stop_ends_itself_after_its_grace_period() -> None:
    child_text = WAITS + "time.sleep(120)"
    start_child = f"subprocess.Popen([sys.executable, '-c', {child_text!r}])"
    parent_text = f"import subprocess, sys, time; {start_child}; time.sleep(120)"
    parent = subprocess.Popen([sys.executable, "-c", parent_text], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    _, alive = psutil.wait_procs([child], timeout=ORPHAN_GRACE_S + 20)
    assert not alive


def test_term_requests_a_stop_and_a_terminals_interrupt_does_not() -> None:
    text = (
        WAITS
        + "os.kill(os.getpid(), 2); time.sleep(0.3); print(stop(), flush=True)\n"
        + "while not stop(): time.sleep(0.01)"
    )
    child = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    child.stdout.readline()
    assert child.stdout.readline() == "False\n"
    child.send_signal(signal.SIGTERM)
    assert child.wait(timeout=20) == 0


def test_the_progress_file_is_whole_at_every_moment(tmp_path: Path) -> None:
    path, over = tmp_path / "progress.json", threading.Event()
    long = "x" * 200_000

    def write() -> None:
        for samples in range(300):
            # A new file each time: one alone writes at most five times a second.
            ProgressFile(path)(StageProgress(phase=long, samples=samples))
        over.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = set[int]()
    while not over.is_set():
        if path.exists():
            found = StageProgress.model_validate_json(path.read_bytes())
            assert found.phase == long
            seen.add(found.samples)
    writer.join()
    assert len(seen) > 1


def test_progress_is_written_at_most_five_times_a_second(tmp_path: Path) -> None:
    report = ProgressFile(tmp_path / "progress.json")
    for samples in range(1000):
        report(StageProgress(samples=samples))
    assert StageProgress.model_validate_json((tmp_path / "progress.json").read_bytes()).samples < 999


def do(job: ChildJob, folder: Path, env: dict[str, str]) -> tuple[int, ChildResult]:
    """Run the child as the supervisor does."""
    scratch = folder / "scratch"
    scratch.mkdir()
    (scratch / "job.json").write_bytes(record_bytes(job))
    child = subprocess.run(
        [sys.executable, "-m", "shoestring.runtime.supervisor.child", str(scratch)],
        env=env,
        capture_output=True,
        timeout=60,
    )
    return child.returncode, ChildResult.model_validate_json((scratch / RESULT_FILE).read_bytes())


@pytest.fixture
def job(laptop: Path, flights_slice: Path, tmp_path: Path) -> ChildJob:
    began = begin(small_world(laptop, tmp_path), run_request(flights_slice, needs=INGEST))
    choice = began.attempt.choice
    return ChildJob(
        stage="ingest",
        attempt=1,
        run_id="r",
        world=str(laptop),
        inputs={},
        format=choice.format,
        cores=1,
        usd_per_hour=choice.usd_per_hour,
        started_s=time.monotonic(),
        limit_usd=Decimal(1),
        deadline_s=None,
        parent_pid=os.getpid(),
    )


def test_completed_work_has_an_outcome(job: ChildJob, laptop: Path, tmp_path: Path) -> None:
    code, ending = do(job, tmp_path, pod_environment(laptop, tmp_path))
    assert (code, ending.status) == (0, "done")
    assert ending.outcome is not None
    assert ending.outcome.rows == 20_000
    progress = StageProgress.model_validate_json((tmp_path / "scratch" / "progress.json").read_bytes())
    assert progress.phase == "reading flights"


def test_an_ordinary_exception_is_a_failure_with_its_type_and_message(
    job: ChildJob, laptop: Path, tmp_path: Path
) -> None:
    """Preprocess without the data that it reads."""
    code, ending = do(
        job.model_copy(update={"stage": "preprocess"}), tmp_path, pod_environment(laptop, tmp_path)
    )
    assert (code, ending) == (
        1,
        ChildResult(status="failed", cause="code", reason="preprocess failed: KeyError: 'data'"),
    )


def test_an_error_of_shoestrings_is_a_failure_with_its_own_message(
    job: ChildJob, laptop: Path, tmp_path: Path
) -> None:
    code, ending = do(
        job.model_copy(update={"run_id": "nobody"}), tmp_path, pod_environment(laptop, tmp_path)
    )
    assert (code, ending.status) == (1, "failed")
    assert ending.reason.startswith("there is no run called 'nobody'")


def test_a_child_without_its_supervisor_records_when_it_ended(
    job: ChildJob, laptop: Path, tmp_path: Path
) -> None:
    world, now = small_world(laptop, tmp_path), datetime.now(UTC)
    last = Heartbeat(
        run_id="r",
        stage="ingest",
        attempt=1,
        pod=world.pod,
        state="running",
        usd_per_hour=job.usd_per_hour,
        started_at=now - timedelta(seconds=60),
        at=now - timedelta(seconds=30),
        interval_s=1.0,
        spent_usd=Decimal(0),
    )
    world.store.put(store_layout.heartbeat("r", "ingest-1"), record_bytes(last))
    # Process 1 is not the parent of the child.
    do(job.model_copy(update={"parent_pid": 1}), tmp_path, pod_environment(laptop, tmp_path))
    ended = last_heartbeat(world.store, "r", "ingest-1")
    assert ended is not None and ended.state == LOST
    assert now < ended.at <= datetime.now(UTC)
