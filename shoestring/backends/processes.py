"""The processes of a stage on this machine: measured and ended as a whole, also those that detached.

On Linux the supervisor adopts every descendant whose parent ends (prctl(2), PR_SET_CHILD_SUBREAPER), so none
escapes by a double fork or a session of its own. On other systems a process that detaches is not found.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from shoestring.core.pod_ref import LocalProcess, this_place

PR_SET_CHILD_SUBREAPER = 36
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
POLL_S = 0.02
# A tree is read again while it changes, at most this often.
MAX_READS = 5
END_TIMEOUT_S = 5.0
"""A killed process that does not end in this time hangs in the kernel."""

ProcessKey = tuple[int, float]
"""A process id and its creation time, which tell a process from a later one with the same id."""


@dataclass(frozen=True, slots=True)
class TreeUsage:
    """The CPU seconds of all processes of a tree, also those that ended, and the memory of the running ones.

    Memory that processes share is counted once where the system tells it.
    """

    cpu_s: float
    rss_bytes: int


def adopt_orphans(*, adopt: bool = True) -> None:
    """Make this process the parent of its descendants whose own parent ends, or no longer. Only Linux can."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0)


def descendants(pid: int) -> list[psutil.Process]:
    """Return the running descendants of a process, parents before their children."""
    if not Path(f"/proc/{pid}/task/{pid}/children").exists():
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(pid).children(recursive=True)
        return []
    for _ in range(MAX_READS):
        found, children = _below(pid), set(child_ids(pid))
        # Where a process ended meanwhile, what it had started may have come to this parent, and is missing.
        if children <= {each.pid for each in found}:
            break
    return found


def _below(pid: int) -> list[psutil.Process]:
    # Reading all of /proc, as psutil does, takes 30 times as long.
    found, ahead = [], list(child_ids(pid))
    while ahead:
        pid = ahead.pop(0)
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(pid))
            ahead += child_ids(pid)
    return found


def find_process(pod: LocalProcess) -> psutil.Process | None:
    """Return the process of this machine that stands for a pod; None: it has ended."""
    if pod.boot and (pod.boot, pod.namespace) != this_place():
        return None
    try:
        process = psutil.Process(pod.pid)
        is_same = abs(int(process.create_time() * 1000) - pod.created_ms) < 1000
        return process if is_same and not _is_zombie(process) else None
    except psutil.NoSuchProcess:
        return None


def process_ref(process: psutil.Process) -> LocalProcess:
    """Return the reference to a process in the PID namespace of this one."""
    return LocalProcess(socket.gethostname(), process.pid, int(process.create_time() * 1000), *this_place())


def is_running(process: psutil.Process) -> bool:
    """Return whether this very process runs: it has not ended, and no later one has its id."""
    return process.is_running() and not _is_zombie(process)


def end_descendants() -> None:
    """Kill all descendants of this process."""
    _end_own_children()
    _end(lambda: descendants(os.getpid()))


def end_tree(pid: int) -> None:
    """Kill another process and all its descendants."""
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        # A stopped parent starts no further children while the tree is read.
        root.suspend()
        _end_children(pid)
        _end(lambda: [*descendants(pid), root] if root.is_running() else [])


class ProcessTree:
    """The descendants of this process that begin after this object was made."""

    def __init__(self) -> None:
        adopt_orphans()
        self._others = {_key(process) for process in descendants(os.getpid())}
        self._waited_cpu_s = _children_cpu_s(psutil.Process())

    def processes(self) -> list[psutil.Process]:
        """Return the running ones. Those of another tree of this process are left out."""
        found, others = [], set(self._others)
        for process in descendants(os.getpid()):
            with contextlib.suppress(psutil.NoSuchProcess):
                if _key(process) in others or _parent_key(process) in others:
                    others.add(_key(process))
                else:
                    found.append(process)
        return found

    def usage(self) -> TreeUsage:
        """Return the use of CPU and memory so far."""
        cpu_s, rss_bytes = _children_cpu_s(psutil.Process()) - self._waited_cpu_s, 0
        for index, process in enumerate(self.processes()):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                times, memory = process.cpu_times(), process.memory_info()
                cpu_s += times.user + times.system + _children_cpu_s(process)
                rss_bytes += memory.rss - (getattr(memory, "shared", 0) if index else 0)
        return TreeUsage(max(0.0, cpu_s), rss_bytes)

    def end(self) -> None:
        """Kill them all, and adopt no more. The caller has waited for its own children."""
        others, due_s = {pid for pid, _ in self._others}, time.monotonic() + END_TIMEOUT_S
        while time.monotonic() < due_s:
            _end_own_children(others)
            if not (running := self.processes()):
                break
            _kill(running)
            for process in running:
                _reap(process.pid)
            time.sleep(POLL_S)
        adopt_orphans(adopt=False)


def _end(find: Callable[[], list[psutil.Process]]) -> None:
    due_s = time.monotonic() + END_TIMEOUT_S
    while time.monotonic() < due_s:
        running = [process for process in find() if not _is_zombie(process)]
        if not running:
            return
        _kill(running)
        # Not `wait`: whoever started a process needs its exit code.
        time.sleep(POLL_S)


def _end_own_children(others: Collection[int] = ()) -> None:
    """Kill the children of this process, without `others`, and reap them, until there is none. Linux only.

    A process that lives only to start the next one has ended before its age is read. So only ids are used
    here: none is given to another process before its parent has waited for it. And nothing else is done, so
    that a round is shorter than the life of such a process.
    """
    own_pid, due_s = os.getpid(), time.monotonic() + END_TIMEOUT_S
    while (found := set(child_ids(own_pid)) - {*others}) and time.monotonic() < due_s:
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in found:
            _reap(pid)


def _end_children(parent: int) -> None:
    """Kill the children of another process, which is stopped, until all are dead. Linux only."""
    killed, dying, due_s = set[int](), set[int](), time.monotonic() + END_TIMEOUT_S
    while time.monotonic() < due_s and ((found := set(child_ids(parent)) - killed) or dying):
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        # What a process started is a child of its parent once it is dead, not earlier.
        dead = {pid for pid in dying if _is_dead(pid)}
        killed, dying = killed | found, (dying | found) - dead


def _reap(pid: int) -> bool:
    """Return whether a child of this process has ended and is forgotten."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _kill(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process.send_signal(signal.SIGKILL)


def _is_dead(pid: int) -> bool:
    try:
        return _is_zombie(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return True


def _is_zombie(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def child_ids(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                yield from map(int, (task / "children").read_text().split())


def _key(process: psutil.Process) -> ProcessKey:
    return process.pid, process.create_time()


def _parent_key(process: psutil.Process) -> ProcessKey | None:
    parent = process.parent()
    return _key(parent) if parent else None


def _children_cpu_s(process: psutil.Process) -> float:
    """Return the CPU seconds of children that ended and were waited for, with theirs."""
    times = process.cpu_times()
    return float(getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0))


def boot_fraction_s() -> float:
    """Return the seconds that psutil's creation times lack: Linux counts them from a boot time in whole
    seconds.
    """
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return 0.0
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) - psutil.boot_time()


def thread_variables(cores: int) -> dict[str, str]:
    """Return the environment that sets the thread count of numeric libraries, which read it when they are
    loaded.

    A thread that spins while it waits takes its core from other processes. With another process on one of two
    cores, spinning threads slowed training from 50,000 rows/s to 1,500 rows/s.
    """
    return dict.fromkeys(THREAD_VARIABLES, str(cores)) | {"OMP_WAIT_POLICY": "PASSIVE"}


def least_busy_cores(count: int) -> set[int]:
    """Return the `count` cores of this process's affinity with the lowest use over 50 ms."""
    allowed = sorted(os.sched_getaffinity(0))
    busy = dict(enumerate(psutil.cpu_percent(interval=0.05, percpu=True)))
    return set(sorted(allowed, key=lambda core: (busy.get(core, 0.0), core))[:count])
