"""The memory of a container, and processes that the kernel kills for it, in a real cgroup with a limit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from memory_cgroups import memory_cgroup

from shoestring.backends.memory_limits import ContainerMemory

LIMIT_BYTES = 256 << 20
FILE_BYTES = 2 * LIMIT_BYTES
# A process that is in the cgroup before it uses any memory.
IN_CGROUP = """
import json, os, subprocess, sys
open(sys.argv[1], "w").write(str(os.getpid()))
from shoestring.backends.memory_limits import ContainerMemory, find_cgroup, read_number
memory = ContainerMemory()
"""
# It has a child that takes more memory than the limit.
KILLED = """
code = "open('/proc/self/oom_score_adj', 'w').write('1000'); data = bytearray(1_000_000_000)"
child = subprocess.run([sys.executable, "-c", code])
print(json.dumps([child.returncode, memory.kills(), memory.has_limit]))
"""
HOLDS = """
data = bytearray(180 << 20)
print(json.dumps(memory.share()))
"""
# It reads a file that is larger than the limit, so that its cache fills the container.
READS = """
with open(sys.argv[2], "rb") as file:
    while file.read(1 << 20):
        pass
print(json.dumps([read_number(find_cgroup().used), memory.share()]))
"""


@pytest.fixture
def cgroup() -> Iterator[Path]:
    with memory_cgroup(LIMIT_BYTES) as folder:
        yield folder


def run_in(cgroup: Path, code: str, *arguments: str) -> object:
    ran = subprocess.run(
        [sys.executable, "-c", IN_CGROUP + code, str(cgroup / "cgroup.procs"), *arguments],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_a_process_that_the_kernel_kills_for_memory_is_counted(cgroup: Path) -> None:
    assert run_in(cgroup, KILLED) == [-9, 1, True]


def test_the_memory_that_a_process_holds_is_a_share_of_the_limit(cgroup: Path) -> None:
    share = run_in(cgroup, HOLDS)
    assert isinstance(share, float)
    assert 180 / 256 < share <= 1.0


def is_on_disk(folder: str) -> bool:
    """Return whether the files of a folder are on a disk: those in memory are not cache."""
    mounts = [each for each in psutil.disk_partitions(all=True) if folder.startswith(each.mountpoint)]
    return bool(mounts) and max(mounts, key=lambda each: len(each.mountpoint)).fstype not in (
        "tmpfs",
        "ramfs",
    )


def test_file_cache_that_the_kernel_can_drop_is_not_counted(cgroup: Path) -> None:
    if not is_on_disk("/var/tmp"):
        pytest.skip("/var/tmp is in memory")
    with tempfile.NamedTemporaryFile(dir="/var/tmp") as file:
        for _ in range(FILE_BYTES >> 20):
            file.write(bytes(1 << 20))
        file.flush()
        os.fsync(file.fileno())
        # What this process has in the cache is charged to its own cgroup.
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        found = run_in(cgroup, READS, file.name)
    assert isinstance(found, list)
    used_bytes, share = found
    assert used_bytes > 0.8 * LIMIT_BYTES, "the cache fills the container"
    assert share < 0.5


def test_without_a_limit_there_is_no_share() -> None:
    memory = ContainerMemory()
    assert (memory.share() is None) == (not memory.has_limit)
