"""A training script that is killed, and one whose process group gets SIGTERM."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from multiprocessing.context import ForkContext, ForkProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from shoestring.training.own_loop.checkpoints.saved_state import checkpoint_files
from shoestring.training.own_loop.loading.loader_workers import separate_workers
from shoestring.training.own_loop.termination import Termination

SCRIPT = Path(__file__).parent / "budgeted_script.py"
PATIENCE_S = 60.0
ROWS, PEAK = 64, 0.1


def start(seconds: float, folder: Path, log: Path, workers: int = 0) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-W", "ignore", SCRIPT, str(seconds), folder, log, str(workers)]
    return subprocess.Popen(command, start_new_session=True)


def lines_of(log: Path) -> list[tuple[int, float, list[int]]]:
    """Return epoch, rate and rows of each step. A killed process may have begun a line."""
    found = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    return [
        (int(each[0]), float(each[1]), [int(row) for row in each[2:]]) for each in found if len(each) == 6
    ]


def wait_for_checkpoint(folder: Path, log: Path, steps: int) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not (folder.exists() and checkpoint_files(folder) and len(lines_of(log)) >= steps):
        assert time.monotonic() < until_s, "the script has written no checkpoint"
        time.sleep(0.02)


def test_a_killed_script_continues_and_ends_annealed(tmp_path: Path) -> None:
    folder, logs = tmp_path / "checkpoints", [tmp_path / "first.log", tmp_path / "rest.log"]
    first = start(3.0, folder, logs[0])
    wait_for_checkpoint(folder, logs[0], 40)
    first.send_signal(signal.SIGKILL)
    first.wait()
    saved = max(int(path.stem.split("-")[1]) for path in checkpoint_files(folder))
    assert start(3.0, folder, logs[1]).wait(PATIENCE_S) == 0
    killed, rest = map(lines_of, logs)
    assert 0 < saved <= len(killed)
    check_whole_epochs([*killed[:saved], *rest])
    assert max(rate for _, rate, _ in [*killed, *rest]) == pytest.approx(PEAK)
    last = [rate for _, rate, _ in rest][-3:]
    assert max(last) < 0.1 * PEAK


def check_whole_epochs(steps: list[tuple[int, float, list[int]]]) -> None:
    """Check that each epoch but the last one has each row once."""
    seen: dict[int, Counter[int]] = {}
    for epoch, _, rows in steps:
        seen.setdefault(epoch, Counter()).update(rows)
    assert list(seen) == list(range(len(seen)))
    for epoch in range(len(seen) - 1):
        assert seen[epoch] == Counter(range(ROWS))
    assert set(seen[len(seen) - 1].values()) <= {1}


@pytest.mark.parametrize("workers", [0, 1])
def test_sigterm_to_the_group_ends_a_script_with_its_last_step_saved(workers: int, tmp_path: Path) -> None:
    folder, log = tmp_path / "checkpoints", tmp_path / "steps.log"
    script = start(60.0, folder, log, workers)
    until_s = time.monotonic() + PATIENCE_S
    while len(lines_of(log)) < 30:
        assert time.monotonic() < until_s
        time.sleep(0.02)
    os.killpg(script.pid, signal.SIGTERM)
    assert script.wait(PATIENCE_S) == 0
    newest = checkpoint_files(folder)[0]
    assert int(newest.stem.split("-")[1]) == len(lines_of(log))


class InterruptedWorker(ForkProcess):
    """A worker that gets a signal before it has left the process group of its script."""

    def run(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        super().run()


class InterruptingContext(ForkContext):
    Process = InterruptedWorker


def test_a_worker_that_a_loader_is_making_survives_a_signal_to_the_group() -> None:
    separate_workers()
    rows = TensorDataset(torch.arange(8))
    loader: DataLoader[Any] = DataLoader(rows, num_workers=2, multiprocessing_context=InterruptingContext())
    with Termination() as termination:
        assert sorted(int(each) for (each,) in loader) == list(range(8))
    assert not termination.requested


def test_a_process_that_is_forked_within_the_loop_can_be_terminated() -> None:
    with Termination():
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(PATIENCE_S,))
        child.start()
        time.sleep(0.2)
        child.terminate()
        child.join(10)
    assert child.exitcode == -signal.SIGTERM
