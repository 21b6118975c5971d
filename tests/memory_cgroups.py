"""A real memory cgroup with a limit, where this user can make one."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDERS = (
    (Path("/sys/fs/cgroup"), "memory.max"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
)


@contextlib.contextmanager
def memory_cgroup(limit_bytes: int) -> Iterator[Path]:
    """Yield the folder of a memory cgroup with this limit. Skips the test where this user cannot make one."""
    for root, limit_file in FOLDERS:
        folder = root / f"shoestring-test-{os.getpid()}"
        if not (root / "cgroup.procs").exists():
            continue
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            if not (folder / limit_file).exists():
                continue
            (folder / limit_file).write_text(str(limit_bytes))
            with contextlib.suppress(OSError):
                (folder / "memory.swap.max").write_text("0")
            yield folder
            return
        finally:
            remove_cgroup(folder)
    pytest.skip("this user cannot make a memory cgroup")


def remove_cgroup(folder: Path) -> None:
    """Remove a cgroup once its last process has ended."""
    due_s = time.monotonic() + 5
    while time.monotonic() < due_s:
        with contextlib.suppress(OSError):
            folder.rmdir()
            return
        time.sleep(0.05)
