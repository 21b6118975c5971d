"""The reaper that never ends: processes that look and settle are started, replaced, and ended with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from shoestring.runtime.settlement.keep_reaping import LOOK_FOR_S, RETRY_S, ROUND_S, RepeatedProcess

HANG = (sys.executable, "-S", "-c", "import time; time.sleep(600)")
FAIL = (sys.executable, "-S", "-c", "raise SystemExit(1)")
LIMIT_S = 100.0
NEVER_ENDS = """
import sys
from shoestring.backends.local import WallClock
from shoestring.runtime.settlement.keep_reaping import exit_on_term, keep_reaping
import signal
signal.signal(signal.SIGTERM, exit_on_term)
hang = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
keep_reaping(hang, hang, WallClock())
"""


@contextmanager
def repeated(command: tuple[str, ...], *, overlaps: bool) -> Iterator[RepeatedProcess]:
    found = RepeatedProcess(command, LIMIT_S, overlaps)
    try:
        yield found
    finally:
        found.end()


def process_ids(found: RepeatedProcess) -> list[int]:
    return [each.process.pid for each in found.running]


def test_a_process_that_looks_is_followed_by_another_before_it_ends() -> None:
    assert ROUND_S < LOOK_FOR_S < LIMIT_S
    with repeated(HANG, overlaps=True) as looks:
        looks.step(0.0)
        (first,) = process_ids(looks)
        looks.step(ROUND_S - 1)
        assert process_ids(looks) == [first]
        looks.step(ROUND_S)
        assert len(process_ids(looks)) == 2 and psutil.pid_exists(first)
        # One that hangs is killed, with its folder, and is not waited for.
        looks.step(LIMIT_S + 1)
        assert len(process_ids(looks)) == 1 and not psutil.pid_exists(first)


def test_settlements_do_not_overlap_and_one_that_hangs_is_replaced() -> None:
    with repeated(HANG, overlaps=False) as settle:
        settle.step(0.0)
        (first,) = process_ids(settle)
        settle.step(ROUND_S)
        assert process_ids(settle) == [first]
        settle.step(LIMIT_S + 1)
        (second,) = process_ids(settle)
        assert second != first and not psutil.pid_exists(first)


@pytest.mark.parametrize(("overlaps", "next_s"), [(True, RETRY_S), (False, ROUND_S)])
def test_looks_that_failed_are_tried_again_soon_and_settlements_a_round_later(
    overlaps: bool, next_s: float
) -> None:
    with repeated(FAIL, overlaps=overlaps) as found:
        found.step(0.0)
        found.running[0].process.wait()
        found.step(next_s - 1)
        assert process_ids(found) == []
        found.step(next_s)
        assert len(process_ids(found)) == 1


def test_the_temporary_files_of_a_process_go_with_it(tmp_path: Path) -> None:
    place = tmp_path / "place"
    code = f"import os, pathlib; pathlib.Path({str(place)!r}).write_text(os.environ['TMPDIR'])"
    with repeated((sys.executable, "-S", "-c", code), overlaps=False) as found:
        found.step(0.0)
        found.running[0].process.wait()
        scratch = Path(place.read_text())
        assert scratch.is_dir() and scratch != Path(os.environ.get("TMPDIR", "/tmp"))
        found.step(1.0)
        assert not scratch.exists()


def test_what_it_started_ends_with_it() -> None:
    reaper = subprocess.Popen([sys.executable, "-c", NEVER_ENDS])
    children: list[psutil.Process] = []
    end_s = time.monotonic() + 30
    while len(children) < 2 and time.monotonic() < end_s:
        children = psutil.Process(reaper.pid).children()
        time.sleep(0.05)
    assert len(children) == 2
    reaper.send_signal(signal.SIGTERM)
    assert reaper.wait(30) == 0
    assert not any(child.is_running() for child in children)
