"""Processes that the kernel kills for memory, in a real cgroup with a limit."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoestring.backends.memory_limits import memory_limit

FOLDERS = (
    (Path("/sys/fs/cgroup"), "memory.max"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
)
LIMIT_BYTES = 128 << 20
# A parent in the cgroup, whose child takes more memory than the limit.
PARENT = """
import json, os, signal, subprocess, sys
open(sys.argv[1], "w").write(str(os.getpid()))
from shoestring.backends.memory_limits import memory_limit, oom_kills
before = oom_kills()
child = subprocess.run([sys.executable, "-c", "data = bytearray(400_000_000)"])
found = memory_limit()
print(json.dumps([child.returncode, oom_kills() - before, found.share, found.limit_bytes]))
"""


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A memory cgroup with a limit. Skips where this user cannot make one."""
    for root, limit_file in FOLDERS:
        folder = root / f"shoestring-test-{os.getpid()}"
        if not (root / "cgroup.procs").exists():
            continue
        with contextlib.suppress(OSError):
            folder.mkdir()
            try:
                (folder / limit_file).write_text(str(LIMIT_BYTES))
                with contextlib.suppress(OSError):
                    (folder / "memory.swap.max").write_text("0")
                yield folder
                return
            finally:
                with contextlib.suppress(OSError):
                    folder.rmdir()
    pytest.skip("this user cannot make a memory cgroup")


def test_a_process_that_the_kernel_kills_for_memory_is_counted(cgroup: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PARENT, str(cgroup / "cgroup.procs")], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    code, kills, share, limit_bytes = json.loads(ran.stdout)
    assert (code, kills, limit_bytes) == (-9, 1, LIMIT_BYTES)
    assert 0.9 < share <= 1.0


def test_a_process_without_a_limit_has_none() -> None:
    found = memory_limit()
    assert found is None or found.limit_bytes > found.peak_bytes > 0
