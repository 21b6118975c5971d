"""The scratch files of a killed supervisor are removed when its run ends, or by the next command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil
import pytest
from commands import command
from exec_runs import PYTHON, Exec, wait_until_gone

Found = TypeVar("Found")
LARGE_BYTES, PART_BYTES = 200 << 20, 1 << 20
SUPERVISORS = """\
import os, time
from pathlib import Path

stage = os.getppid()
supervisor = Path(f"/proc/{stage}/stat").read_text().rpartition(")")[2].split()[1]
watcher = os.environ["SHOESTRING_LAUNCHER"].split(".")[-2]
(Path(os.environ["SHOESTRING_CHECKPOINTS"]) / "large").write_bytes(bytes(1 << 20))
Path("new").write_text(f"{os.getpid()} {watcher} {supervisor} {stage}")
Path("new").rename("pids")
while True: time.sleep(0.05)
"""


def wait_for(find: Callable[[], Found | None]) -> Found:
    due_s = time.monotonic() + 90
    while time.monotonic() < due_s:
        if (found := find()) is not None:
            return found
        time.sleep(0.02)
    raise TimeoutError


def stage_process(pid: int) -> psutil.Process | None:
    """Return the process of a stage below a launcher, once it has its job."""
    for process in psutil.Process(pid).children(recursive=True):
        try:
            line = process.cmdline()
            if "shoestring.runtime.supervisor.child" in line and Path(line[-1], "job.json").exists():
                return process
        except psutil.Error:
            continue
    return None


def files_of_shoestring(temporary: Path) -> list[Path]:
    return [each for each in temporary.iterdir() if each.name.startswith("shoestring")]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not adopt the stage")
def test_a_run_whose_supervisor_is_killed_leaves_no_scratch(
    laptop: Path, flights_slice: Path, tmp_path: Path
) -> None:
    (temporary := tmp_path / "temporary").mkdir()
    where = ["--world", str(laptop), "--store", str(tmp_path / "store"), "--out", str(tmp_path / "out")]
    run = subprocess.Popen(
        command("run", str(flights_slice), *where),
        env=os.environ | {"TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    stage = wait_for(lambda: stage_process(run.pid))
    stage.suspend()
    supervisor, scratch = stage.parent(), Path(stage.cmdline()[-1])
    assert supervisor is not None and scratch.parent == temporary
    with (scratch / "large").open("wb") as file:
        for _ in range(LARGE_BYTES // PART_BYTES):
            file.write(bytes(PART_BYTES))
    supervisor.kill()
    out, _ = run.communicate(timeout=120)
    assert run.returncode == 1, out
    assert files_of_shoestring(temporary) == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="exec needs Linux")
def test_what_a_killed_exec_leaves_is_removed_by_the_next_one_once_its_command_has_ended(
    laptop: Path, tmp_path: Path
) -> None:
    """Where the watcher is killed as well, nobody ends the command."""
    (temporary := tmp_path / "temporary").mkdir()
    on, variables = Exec(tmp_path, laptop), {"TMPDIR": str(temporary)}
    on.script("wait.py", SUPERVISORS)
    words = ("--budget", "0.05", "--", PYTHON, "wait.py")
    first = on.start_fresh(*words, env=os.environ | variables, stdout=None, stderr=None)
    pid, *supervisors = map(int, on.wait_for("pids").split())
    # All at once: each of them would end what the others leave.
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for each in supervisors:
            os.kill(each, number)
    first.wait()
    (scratch,) = [each.parents[2] for each in temporary.glob("*/command/checkpoints/large")]
    for is_running in (True, False):
        if not is_running:
            os.kill(pid, signal.SIGKILL)
            wait_until_gone(pid)
        done = on.start("--budget", "0.05", "--", PYTHON, "-c", "pass", **variables)
        _, err = done.communicate(timeout=120)
        assert done.returncode == 0, err
        assert files_of_shoestring(temporary) == ([scratch] if is_running else [])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="exec needs Linux")
def test_the_watcher_of_a_killed_exec_removes_all_that_it_leaves(laptop: Path, tmp_path: Path) -> None:
    (temporary := tmp_path / "temporary").mkdir()
    on, variables = Exec(tmp_path, laptop), {"TMPDIR": str(temporary)}
    on.script("wait.py", SUPERVISORS)
    words = ("--budget", "0.05", "--", PYTHON, "wait.py")
    process = on.start_fresh(*words, env=os.environ | variables, stdout=None, stderr=None)
    _, watcher, *_ = map(int, on.wait_for("pids").split())
    assert files_of_shoestring(temporary)
    process.kill()
    process.wait()
    wait_until_gone(watcher)
    assert files_of_shoestring(temporary) == []
