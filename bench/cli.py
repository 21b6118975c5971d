"""How the benches run Shoestring: the real command, in a process of its own."""

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
# Walking all processes takes tens of milliseconds: more often, and the bench would slow what it times.
SAMPLE_S = 1.0


@dataclass(frozen=True)
class Ran:
    """One finished command. `peak_bytes` is the most that its process tree held at once, sampled once a second."""

    code: int
    seconds: float
    peak_bytes: int
    summary: dict[str, Any]
    stdout: str
    stderr: str


def tree(pid: int) -> list[psutil.Process]:
    """A process and all below it, as far as they still live."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def held_bytes(pid: int) -> int:
    total = 0
    for process in tree(pid):
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def start(
    *arguments: str, env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*SHOESTRING, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | (env or {}),
        cwd=cwd,
    )


def finish(process: subprocess.Popen[str], began_s: float) -> Ran:
    """Wait for it, and watch its memory meanwhile. A `--json` command's stdout becomes `summary`."""
    peak = 0
    while process.poll() is None:
        peak = max(peak, held_bytes(process.pid))
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(SAMPLE_S)
    out, err = process.communicate()
    seconds = time.monotonic() - began_s
    return Ran(process.returncode, seconds, peak, json.loads(out) if out.startswith("{") else {}, out, err)


def shoestring(*arguments: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> Ran:
    began_s = time.monotonic()
    return finish(start(*arguments, env=env, cwd=cwd), began_s)
