"""The memory limit of this process's container, how close to it the container came, and processes that the
kernel killed for memory.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
UNLIMITED_BYTES = 1 << 60
"""cgroups v1 write a number above this for no limit."""
FILES = {
    "": ("memory.events", "memory.peak", "memory.max"),
    "memory": ("memory.oom_control", "memory.max_usage_in_bytes", "memory.limit_in_bytes"),
}
"""Mount of a version of cgroups -> its files of kills, peak and limit. The mount of v2 is the root."""


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """The highest memory use of a container since its start, and its limit, in bytes."""

    peak_bytes: int
    limit_bytes: int

    @property
    def share(self) -> float:
        return self.peak_bytes / self.limit_bytes


def memory_limit() -> MemoryLimit | None:
    """Return the peak and the limit of this process's cgroup; None without a limit."""
    for _, peak, limit in _memory_files():
        with contextlib.suppress(OSError, ValueError):
            found = MemoryLimit(int(peak.read_text()), int(limit.read_text()))
            return found if found.limit_bytes < UNLIMITED_BYTES else None
    return None


def oom_kills() -> int:
    """Return how many processes the kernel has killed for memory: in this container if it has a memory limit,
    else on this machine. 0 where the system does not tell.
    """
    kills = [events for events, _, _ in _memory_files()] if memory_limit() else []
    for path in (*kills, Path("/proc/vmstat")):
        with contextlib.suppress(OSError, ValueError):
            for line in path.read_text().splitlines():
                name, _, count = line.partition(" ")
                if name == "oom_kill":
                    return int(count)
    return 0


def _memory_files() -> list[tuple[Path, Path, Path]]:
    """Return the files of kills, peak and limit of this process's memory cgroup, v2 before v1.

    Inside a container the cgroup's own folder may be mounted as the root.
    """
    found = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            number, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            mount = "" if number == "0" else "memory"
            if number != "0" and "memory" not in controllers.split(","):
                continue
            for folder in (CGROUPS / mount / path.lstrip("/"), CGROUPS / mount):
                names = [folder / name for name in FILES[mount]]
                if all(name.exists() for name in names):
                    found.append((names[0], names[1], names[2]))
                    break
    return found
