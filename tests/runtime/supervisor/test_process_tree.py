"""Everything that a stage starts is measured, and ended with it, in real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from runtime_world import INGEST, StartedAttempt, begin, run_request, small_world

from shoestring.backends.processes import ProcessTree, end_tree
from shoestring.config.guardrails import Guardrails, UsageCap
from shoestring.core.receipt import Receipt
from shoestring.data.run_records import read_record
from shoestring.runtime.supervisor.run_stage import settle_and_record
from shoestring.runtime.supervisor.supervisor import supervise
from shoestring.stages.work import Origin

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process adopt orphans")


def spawning(
    laptop: Path, flights_slice: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: bool
) -> tuple[StartedAttempt, Path]:
    """Return an attempt at `spawning_stage`, and the file that will hold the id of its daemon."""
    monkeypatch.setenv("SHOESTRING_STORE", str(folder / "store"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    began = begin(small_world(laptop, folder), run_request(flights_slice, needs=INGEST))
    pid_file = folder / "daemon.pid"
    origin = Origin(module="spawning_stage", code="1", settings={"pid_file": str(pid_file)} | settings)
    began.attempt.origin = origin
    return began, pid_file


@on_linux
@pytest.mark.slow
def test_all_processes_of_a_stage_are_measured_and_none_outlives_it(
    laptop: Path, flights_slice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, pid_file = spawning(laptop, flights_slice, tmp_path, monkeypatch)
    result = supervise(began.attempt, str(laptop))
    assert result.status == "done", result.reason
    assert not psutil.pid_exists(int(pid_file.read_text()))
    settle_and_record(began.attempt, result)
    receipt = read_record(began.world.store, "runs/r/receipts/ingest-1.json", Receipt)
    assert receipt.cpu_s > 2.0
    assert receipt.peak_rss_bytes > 300e6
    assert receipt.usage.core_minutes > 2.0 / 60


@on_linux
@pytest.mark.slow
def test_a_memory_guardrail_sees_a_subprocess(
    laptop: Path, flights_slice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, pid_file = spawning(laptop, flights_slice, tmp_path, monkeypatch, stays=True)
    guardrails = Guardrails(memory_gb=UsageCap(max=0.25, action="stop"))
    policy = began.world.policy.model_copy(update={"guardrails": guardrails})
    result = supervise(replace(began.attempt, world=replace(began.world, policy=policy)), str(laptop))
    assert result.cause == "guardrail" and "guardrail memory_gb" in result.reason
    assert not psutil.pid_exists(int(pid_file.read_text()))


SUPERVISOR = """
import subprocess, sys
from shoestring.backends.processes import ProcessTree
tree = ProcessTree()
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]])
print(child.pid, flush=True)
child.wait()
"""
CHILD = """
import os, signal, sys, time
from pathlib import Path
from shoestring.backends.processes import adopt_orphans
from shoestring.runtime.supervisor import child
from spawning_stage import detach
child.ORPHAN_GRACE_S = 0.2
adopt_orphans()
child.StopSignal(os.getppid())
detach(Path(sys.argv[1]))
print("ready", flush=True)
time.sleep(300)
"""


@on_linux
def test_a_killed_supervisor_leaves_nothing_behind(tmp_path: Path) -> None:
    pid_file = tmp_path / "daemon.pid"
    paths = os.pathsep.join((str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])))
    supervisor = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, CHILD, str(pid_file)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": paths},
    )
    assert supervisor.stdout is not None
    child = int(supervisor.stdout.readline())
    assert supervisor.stdout.readline() == "ready\n"
    daemon = int(pid_file.read_text())
    supervisor.send_signal(signal.SIGKILL)
    supervisor.wait()
    due_s = time.monotonic() + 30
    while any(map(is_running, (child, daemon))) and time.monotonic() < due_s:
        time.sleep(0.1)
    assert not is_running(child) and not is_running(daemon)


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_tree_is_ended_also_where_its_root_is_stopped() -> None:
    code = "import subprocess as s; p = s.Popen(['sleep', '300']); print(p.pid, flush=True); p.wait()"
    root = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert root.stdout is not None
    leaf = int(root.stdout.readline())
    root.send_signal(signal.SIGSTOP)
    end_tree(root.pid)
    assert root.wait(timeout=30) == -signal.SIGKILL
    assert not is_running(leaf)


CHAIN = """
import os, sys, time
from pathlib import Path
from shoestring.backends.processes import ProcessTree, adopt_orphans, end_tree

def start_chain():
    end_s = time.monotonic() + 30
    while time.monotonic() < end_s:
        if os.fork():
            os._exit(0)
        os.setsid()
        Path(sys.argv[1]).write_text(str(time.monotonic()))
    os._exit(0)

def start_root():
    adopt_orphans()
    os.fork() or start_chain()
    time.sleep(300)

tree = ProcessTree()
root = os.fork() or (start_root() if sys.argv[2] == "other" else start_chain())
time.sleep(0.5)
if sys.argv[2] == "other":
    end_tree(root)
else:
    os.waitpid(root, 0)
    tree.end()
print(time.monotonic())
"""


@on_linux
@pytest.mark.parametrize("tree", ["own", "other"])
def test_processes_that_live_only_to_start_the_next_one_are_ended(tree: str, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    ended = subprocess.run(
        [sys.executable, "-c", CHAIN, str(seen), tree], capture_output=True, text=True, check=True, timeout=60
    )
    time.sleep(0.5)
    assert float(seen.read_text() or 0) <= float(ended.stdout)


def test_other_processes_of_this_one_are_left_alone() -> None:
    other = subprocess.Popen(["sleep", "300"])
    tree = ProcessTree()
    own = subprocess.Popen(["sleep", "300"])
    assert [process.pid for process in tree.processes()] == [own.pid]
    tree.end()
    assert not is_running(own.pid)
    assert other.poll() is None
    other.kill()
    other.wait()


@on_linux
def test_a_process_is_listed_also_while_its_parent_ends() -> None:
    tree, missed = ProcessTree(), 0
    for _ in range(20):
        shell = subprocess.Popen(["bash", "-c", "sleep 9 & sleep 0.05"])
        waiting, found = threading.Thread(target=shell.wait, daemon=True), set[int]()
        waiting.start()
        while waiting.is_alive():
            now = {each.pid for each in tree.processes() if is_sleeping(each, "9")}
            missed, found = missed + bool(found - now), found | now
        assert len(found) == 1
        orphan = psutil.Process(found.pop())
        orphan.kill()
        # On busy cores it outlives its signal, and the next round would find two.
        orphan.wait(timeout=10)
    tree.end()
    assert missed == 0


def is_sleeping(process: psutil.Process, seconds: str) -> bool:
    try:
        return process.cmdline() == ["sleep", seconds]
    except psutil.Error:
        return False
