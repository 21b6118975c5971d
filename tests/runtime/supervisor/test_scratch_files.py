"""Files that a stage leaves in its scratch folder cannot make its supervisor fail or wait."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runtime_world import INGEST, SetClock, StartedAttempt, begin, run_request, small_world

from shoestring.backends.nvml import GpuUsage
from shoestring.core import store_layout
from shoestring.core.errors import DataError
from shoestring.core.receipt import GpuUse, Receipt
from shoestring.core.record import Record, record_bytes
from shoestring.data.run_records import read_record
from shoestring.data.scratch.scratch_files import MAX_FILE_BYTES, read_scratch_file
from shoestring.runtime.supervisor.attempt_receipt import write_attempt_receipt
from shoestring.runtime.supervisor.child import PROGRESS_FILE, RESULT_FILE, ChildResult
from shoestring.runtime.supervisor.child_process import child_result, read_child
from shoestring.runtime.supervisor.guardrails import halve_cores
from shoestring.runtime.supervisor.run_stage import settle_and_record
from shoestring.runtime.supervisor.supervisor import make_heartbeat, send_limits, supervise
from shoestring.spending.heartbeat import Heartbeat
from shoestring.stages.work import Origin, StageProgress

OUTCOME = {"key": "k", "rows": 1}
GARBAGE: dict[str, bytes] = {
    "nothing": b"",
    "bytes": bytes(range(256)),
    "half": b'{"phase": 7',
    "a list": b"[1, 2]",
    "nan": b'{"quality": {"loss": NaN}, "status": "done", "outcome": {"key": "k", "metrics": {"a": NaN}}}',
    "infinity": b'{"quality": {"loss": 1e999}}',
    "huge": b'{"samples": 1' + b"0" * 400 + b"}",
    "beyond digits": b'{"samples": 1' + b"0" * 10_000 + b"}",
    "negative": b'{"samples": -1}',
    "a surrogate": b'{"phase": "\\ud800"}',
    "deep": b"[" * 100_000,
    "long": b" " * MAX_FILE_BYTES + b'{"phase": "read"}',
    "a huge result": b'{"status": "done", "outcome": {"key": "k", "samples": 1' + b"0" * 400 + b"}}",
    "no outcome": b'{"status": "done"}',
    "unknown status": b'{"status": "splendid"}',
}


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


ODD_FILES: dict[str, Callable[[Path], None]] = {
    "a folder": lambda path: path.mkdir(),
    "a FIFO": make_fifo,
    "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "a link to nowhere": lambda path: path.symlink_to("/nowhere/at/all"),
    "a link to itself": lambda path: path.symlink_to(path),
}


@pytest.fixture(scope="module")
def started(laptop: Path, flights_slice: Path, tmp_path_factory: pytest.TempPathFactory) -> StartedAttempt:
    folder = tmp_path_factory.mktemp("started")
    return begin(small_world(laptop, folder, SetClock()), run_request(flights_slice, needs=INGEST))


def read_all(started: StartedAttempt, scratch: Path) -> tuple[Heartbeat, ChildResult]:
    """Do with the files what a supervisor does, up to the bytes that it stores."""
    attempt = replace(started.attempt)
    child = subprocess.Popen(["false"])
    child.wait()
    read_child(attempt, scratch)
    heartbeat, result = make_heartbeat(attempt, "running"), child_result(attempt, child, scratch)
    record_bytes(heartbeat), record_bytes(result)
    return heartbeat, result


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_no_progress_and_no_result(started: StartedAttempt, tmp_path: Path, name: str) -> None:
    for file in (PROGRESS_FILE, RESULT_FILE):
        (tmp_path / file).write_bytes(GARBAGE[name])
    heartbeat, result = read_all(started, tmp_path)
    assert (heartbeat.samples, heartbeat.phase) == (0, "")
    assert (result.status, result.cause) == ("failed", "code")
    assert result.reason.startswith("ingest ")


@pytest.mark.parametrize("name", ODD_FILES)
def test_what_is_no_regular_file_is_no_progress_and_no_result(
    started: StartedAttempt, tmp_path: Path, name: str
) -> None:
    for file in (PROGRESS_FILE, RESULT_FILE):
        ODD_FILES[name](tmp_path / file)
    heartbeat, result = read_all(started, tmp_path)
    assert heartbeat.phase == ""
    assert result.cause == "code"
    assert result.reason.startswith("ingest left a result that cannot be used: result.json ")


@pytest.mark.parametrize("name", ODD_FILES)
def test_the_supervisor_can_write_its_limits_beside_any_file(
    started: StartedAttempt, tmp_path: Path, name: str
) -> None:
    """A stage can only keep its own limits from itself: its supervisor ends it all the same."""
    ODD_FILES[name](tmp_path / "spend_limits.new")
    send_limits(replace(started.attempt, sent_limits=None), tmp_path)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = sorted({*StageProgress.model_fields, *ChildResult.model_fields})


@given(
    st.binary(max_size=200)
    | st.dictionaries(st.sampled_from(NAMES), JSON_VALUES, max_size=4).map(
        lambda content: json.dumps(content).encode()
    )
)
def test_any_content_is_a_record_that_can_be_stored_or_is_refused(
    started: StartedAttempt, tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.json"
    path.write_bytes(content)
    kinds: tuple[type[Record], ...] = (StageProgress, ChildResult)
    for kind in kinds:
        try:
            found = read_scratch_file(path, kind)
        except DataError as error:
            assert str(error).startswith("fuzzed.json ")
        else:
            assert found is not None
            assert kind.model_validate_json(record_bytes(found)) == found


def test_progress_before_the_garbage_counts(started: StartedAttempt, tmp_path: Path) -> None:
    attempt, path = replace(started.attempt), tmp_path / PROGRESS_FILE
    path.write_bytes(record_bytes(StageProgress(phase="reads", samples=7)))
    read_child(attempt, tmp_path)
    path.write_bytes(b"garbage")
    read_child(attempt, tmp_path)
    assert (attempt.progress.phase, attempt.progress.samples) == ("reads", 7)


@pytest.mark.parametrize("gpu_count", [0, 2])
def test_gpus_are_read_on_a_pool_that_has_some(
    started: StartedAttempt, tmp_path: Path, gpu_count: int
) -> None:
    class Samples(GpuUsage):
        taken = 0

        def sample(self) -> None:
            self.taken += 1

    question, samples = started.attempt.decision.question, Samples()
    gpu = (
        {"gpu": "T4", "gpu_count": gpu_count, "gpu_memory_gb": 16.0, "gpu_tflops": 65.0} if gpu_count else {}
    )
    pools = tuple(pool.model_copy(update=gpu) for pool in question.pools)
    decision = started.attempt.decision.model_copy(
        update={"question": question.model_copy(update={"pools": pools})}
    )
    attempt = replace(started.attempt, decision=decision, gpu_usage=samples)
    read_child(attempt, tmp_path)
    assert samples.taken == int(gpu_count > 0)
    samples.use = GpuUse(
        busy=0.5,
        memory_bytes=16 * 10**9,
        peak_memory_bytes=10**9,
        received_bytes=None,
        joules=50.0,
        watts=10.0,
        energy_from="counter",
    )
    assert make_heartbeat(attempt, "running").gpu == samples.use
    write_attempt_receipt(attempt, ChildResult(status="failed"), Decimal(0))
    receipt = read_record(attempt.world.store, store_layout.receipt(attempt.run.run_id, attempt.id), Receipt)
    assert receipt.gpu == samples.use


def test_a_real_stage_that_writes_garbage_has_failed_by_its_own_fault(
    laptop: Path, flights_slice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOESTRING_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    began = begin(small_world(laptop, tmp_path), run_request(flights_slice, needs=INGEST))
    began.attempt.origin = Origin(module="garbage_stage", code="1")
    result = supervise(began.attempt, str(laptop))
    assert result.cause == "code"
    settle_and_record(began.attempt, result)
    receipt = read_record(began.world.store, "runs/r/receipts/ingest-1.json", Receipt)
    assert receipt.status == "failed"
    assert receipt.reason == "ingest left a result that cannot be used: result.json is not a regular file"


def test_the_cores_of_a_process_that_has_ended_are_left_alone() -> None:
    ended = subprocess.Popen(["sleep", "300"])
    ended.send_signal(signal.SIGKILL)
    ended.wait()
    assert not psutil.pid_exists(ended.pid)
    assert halve_cores(ended.pid) is None
