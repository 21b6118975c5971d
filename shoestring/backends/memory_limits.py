"""The memory limit of this process's container, how close to it the container is, and processes that the
kernel killed for memory.

What counts against the limit is the working set, as for the kubelet: all memory of the container except file
cache that the kernel can drop at once (`inactive_file`). A stage that reads large files fills its container
with such cache and is in no danger.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
VMSTAT = Path("/proc/vmstat")
UNLIMITED_BYTES = 1 << 60
"""cgroups v1 write a number above this for no limit."""


@dataclass(frozen=True, slots=True)
class CgroupFiles:
    """The files of one memory cgroup, and the name of the droppable cache in the one of its parts."""

    kills: Path
    used: Path
    parts: Path
    limit: Path
    cache: str


class ContainerMemory:
    """The memory of this process's container since this object was made; of this machine without a limit."""

    def __init__(self) -> None:
        found = find_cgroup()
        self._files = found if found and read_number(found.limit) else None
        self._kills_before = self._read_kills()

    @property
    def has_limit(self) -> bool:
        return self._files is not None

    def share(self) -> float | None:
        """Return the working set as a share of the limit; None without a limit."""
        if self._files is None:
            return None
        limit_bytes, used_bytes = read_number(self._files.limit), read_number(self._files.used)
        if not limit_bytes or used_bytes is None:
            return None
        return max(0, used_bytes - (read_count(self._files.parts, self._files.cache) or 0)) / limit_bytes

    def kills(self) -> int:
        """Return how many processes the kernel has killed for memory: in this container if it has a limit,
        else on this machine. 0 where the system does not count them.
        """
        return self._read_kills() - self._kills_before

    def _read_kills(self) -> int:
        count = read_count(self._files.kills, "oom_kill") if self._files else None
        return (read_count(VMSTAT, "oom_kill") or 0) if count is None else count


def find_cgroup() -> CgroupFiles | None:
    """Return the files of this process's memory cgroup, v2 before v1; None where there is none.

    Inside a container the cgroup's own folder may be mounted as the root.
    """
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        is_v2 = number == "0"
        if not is_v2 and "memory" not in controllers.split(","):
            continue
        mount = CGROUPS if is_v2 else CGROUPS / "memory"
        for folder in (mount / path.lstrip("/"), mount):
            files = cgroup_files(folder, is_v2=is_v2)
            if files.limit.exists() and files.used.exists():
                return files
    return None


def cgroup_files(folder: Path, *, is_v2: bool) -> CgroupFiles:
    names = (
        ("memory.events", "memory.current", "memory.stat", "memory.max")
        if is_v2
        else ("memory.oom_control", "memory.usage_in_bytes", "memory.stat", "memory.limit_in_bytes")
    )
    kills, used, parts, limit = (folder / name for name in names)
    return CgroupFiles(kills, used, parts, limit, "inactive_file" if is_v2 else "total_inactive_file")


def read_number(path: Path) -> int | None:
    """Return the number in a file; None: it holds none, or it is a limit that is none."""
    try:
        number = int(path.read_text())
    except (OSError, ValueError):
        return None
    return number if number < UNLIMITED_BYTES else None


def read_count(path: Path, name: str) -> int | None:
    """Return the number behind a name in a file of such lines; None: it is not there."""
    try:
        for line in path.read_text().splitlines():
            key, _, count = line.partition(" ")
            if key == name:
                return int(count)
    except (OSError, ValueError):
        return None
    return None
