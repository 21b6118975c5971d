"""The processes of a command, remembered while their parents live, so that they are found after that. Linux.

A process is one of the command's if it is below one of them, is in a process group or a session of one, or
has a name of the command in its environment.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from shoestring.backends.processes import END_TIMEOUT_S, POLL_S, child_ids

ENDED_STATES, STOPPED_STATES = "ZXx", "Tt"


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """A process in the kernel's table. A later one with the same id has another `start`."""

    pid: int
    state: str
    group: int
    session: int
    start: int

    @property
    def is_running(self) -> bool:
        return self.state not in ENDED_STATES

    @property
    def is_stopped(self) -> bool:
        """True while a signal or a debugger stops it."""
        return self.state in STOPPED_STATES


def read_stat(pid: int) -> ProcessStat | None:
    """Return what the kernel has of a process; None: there is no such process."""
    try:
        # proc_pid_stat(5): the name, field 2, may hold blanks and parentheses.
        words = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return ProcessStat(pid, words[0], int(words[2]), int(words[3]), int(words[19]))


@dataclass(slots=True)
class RememberedProcesses:
    """`spared`: ids of processes that are none of the command's, of their groups and of their sessions."""

    spared: frozenset[int]
    _known: dict[int, ProcessStat] = field(default_factory=dict)
    _groups: set[int] = field(default_factory=set)

    def look(self, roots: Iterable[int]) -> None:
        """Remember `roots`, and the processes below them and below those that were known."""
        found, ahead = dict[int, ProcessStat](), [*roots, *filter(self._is_same, self._known)]
        while ahead:
            pid = ahead.pop()
            if pid not in found and (stat := read_stat(pid)) is not None and stat.is_running:
                found[pid] = stat
                ahead += child_ids(pid)
        self._known = {pid: stat for pid, stat in found.items() if pid not in self.spared}
        # No other process gets the id of a group while one is in it.
        groups = {each for stat in self._known.values() for each in (stat.group, stat.session)}
        self._groups = groups - self.spared

    def running(self, name: str = "") -> list[ProcessStat]:
        """Return those that run now. `name`: a text in the environment of each; empty: none is known."""
        self.look(())
        for pid in psutil.pids():
            if pid not in self._known and pid not in self.spared and self._is_of_command(pid, name):
                self.look([pid])
        return list(self._known.values())

    def end(self, name: str = "") -> bool:
        """Kill them all; return whether none is left."""
        due_s = time.monotonic() + END_TIMEOUT_S
        while (running := self.running(name)) and time.monotonic() < due_s:
            for each in running:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(each.pid, signal.SIGKILL)
            time.sleep(POLL_S)
        return not running

    def _is_same(self, pid: int) -> bool:
        stat = read_stat(pid)
        return stat is not None and stat.start == self._known[pid].start

    def _is_of_command(self, pid: int, name: str) -> bool:
        stat = read_stat(pid)
        if stat is None or not stat.is_running:
            return False
        return stat.group in self._groups or stat.session in self._groups or has_name(pid, name)


def has_name(pid: int, name: str) -> bool:
    """Return whether the environment with which a program was started has a text in it."""
    with suppress(OSError):
        return bool(name) and name.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    return False
