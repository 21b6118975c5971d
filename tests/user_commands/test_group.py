"""A process group that is asked to end: what reads the output of a training continues until that ends."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoestring.backends.processes import adopt_orphans
from shoestring.commands.group import CommandGroup

# Ends 0.5 s after SIGTERM, with a line that somebody has to read.
READER = """\
import os, signal, sys, time
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
open("pid", "w").write(str(os.getpid()))
while not asked:
    time.sleep(0.01)
time.sleep(0.5)
print("exported", flush=True)
open("end", "w").write("whole")
"""


@pytest.fixture(autouse=True)
def _adopting() -> Iterator[None]:
    adopt_orphans()
    yield
    adopt_orphans(adopt=False)


def run(
    script: str, folder: Path, *, is_reader: bool, is_ending: bool = False, before: str = "", after: str = ""
) -> CommandGroup:
    """Start a shell script, ask it to end once its training runs, and wait for the end of all.

    `before`, `after`: lines of the training.
    """
    (folder / "train.py").write_text(before + READER + after)
    group = CommandGroup(["bash", "-c", script.replace("TRAIN", f"{sys.executable} train.py")], {}, folder)
    until_s = time.monotonic() + 30
    while not (folder / "pid").exists() or not (folder / "pid").read_text():
        assert time.monotonic() < until_s
        time.sleep(0.02)
    time.sleep(0.2)
    pids = [int((folder / "pid").read_text())]
    group.terminate(pids if is_reader else (), pids if is_ending else ())
    while running := group.processes():
        assert time.monotonic() < until_s, running
        time.sleep(0.02)
    assert group.ended.wait(10)
    return group


def test_what_a_shell_leaves_behind_is_never_missing_while_the_shell_ends(tmp_path: Path) -> None:
    missed = 0
    for _ in range(20):
        group, is_seen = CommandGroup(["bash", "-c", "sleep 9 & sleep 0.05"], {}, tmp_path), False
        until_s = time.monotonic() + 0.12
        while time.monotonic() < until_s:
            is_there = ["sleep", "9"] in group.command_lines()
            missed, is_seen = missed + (is_seen and not is_there), is_seen or is_there
        left = [each.pid for each in group.processes()]
        group.kill()
        assert group.ended.wait(10) and is_seen and len(left) == 1
        os.waitpid(left[0], 0)
    assert missed == 0


PIPELINES = ("TRAIN | tee log", "TRAIN 2>&1 | cat | tee log", "TRAIN > >(tee log)", "echo $(TRAIN) | tee log")


@pytest.mark.parametrize("script", PIPELINES)
def test_what_listens_to_a_reader_of_the_budget_goes_on_until_it_ends(script: str, tmp_path: Path) -> None:
    group = run(script, tmp_path, is_reader=True)
    assert (tmp_path / "end").exists() and "exported" in (tmp_path / "log").read_text()
    assert group.code in (0, 128 + signal.SIGTERM)


def test_other_processes_are_asked_at_once(tmp_path: Path) -> None:
    began_s = time.monotonic()
    run("sleep 100 & sleep 100 | cat & TRAIN | tee log; sleep 100", tmp_path, is_reader=True)
    assert (tmp_path / "end").exists() and time.monotonic() - began_s < 25


def test_without_a_reader_all_processes_are_asked(tmp_path: Path) -> None:
    run("TRAIN | tee log", tmp_path, is_reader=False)
    assert not (tmp_path / "end").exists()


@pytest.mark.parametrize("is_ending", [True, False])
def test_what_a_reader_has_started_for_its_results_is_its_own_to_end(is_ending: bool, tmp_path: Path) -> None:
    upload = "import subprocess\nupload = subprocess.Popen(['sh', '-c', 'sleep 1; echo whole > uploaded'])\n"
    run("TRAIN", tmp_path, is_reader=True, is_ending=is_ending, before=upload, after="upload.wait()\n")
    assert (tmp_path / "uploaded").exists() == is_ending
