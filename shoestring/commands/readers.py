"""The processes that read the budget of a running command, and the exit codes with which they end.

A training is often not the command itself, but what a shell script, make or torchrun starts. These end by
SIGTERM with codes of their own, also where the training behind them ends well within the grace.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path

import psutil

from shoestring.spending.budget_file import END_SUFFIX, readers_folder

TERM_CODE = 128 + signal.SIGTERM
BY_SIGNAL = (TERM_CODE, 128 + signal.SIGKILL)
MAKES = ("make", "gmake")
LAUNCHERS = (
    "torchrun",
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate",
    "accelerate.commands.launch",
)
# Creation times of processes have a resolution of 10 ms, and boot times of a second.
START_ERROR_S = 2.0


class BudgetReaders:
    """The processes that have left a mark in the folder of a budget file.

    `asked`: those that ran when the command was asked to end.
    """

    def __init__(self, budget_file: Path) -> None:
        self._folder = readers_folder(budget_file)
        self._folder.mkdir()
        self._codes = dict[int, int]()
        self.asked, self._term_codes = set[int](), set[int]()

    def note_term(self, command_lines: Iterable[list[str]]) -> None:
        """Note that the group is asked to end. `command_lines`: of its processes."""
        self.asked, self._term_codes = self.running(), codes_of_term(command_lines)

    def code_after_term(self, code: int, pid: int, *, was_read: bool) -> int | None:
        """Return the exit code of a command that SIGTERM met at its own end; None: the signal has ended it.

        What read the budget ends by itself within the grace. What has started it may end by the signal.
        `code`, `pid`: of the command. `was_read`: something has read the budget file.
        """
        is_reader, codes = pid in self.asked, [self.code(each) for each in self.asked - {pid}]
        if failed := [each for each in codes if each and each not in BY_SIGNAL]:
            return failed[0]
        if not (was_read or self.asked):
            return None
        if code in BY_SIGNAL or (code in self._term_codes and not is_reader):
            return 0 if codes and not is_reader and all(each == 0 for each in codes) else None
        return code

    def running(self) -> set[int]:
        """Return the ids of those that run."""
        return {pid for pid, mark in self._marks() if self._runs(pid, mark)}

    def ending(self) -> set[int]:
        """Return the ids of those that have seen the end of their budget, and write their results."""
        return {pid for pid in self.running() if (self._folder / f"{pid}{END_SUFFIX}").exists()}

    def code(self, pid: int) -> int | None:
        """Return the exit code of one that has ended; None: it is not known. Signals count from 128."""
        if pid not in self._codes and (found := self._adopted_code(pid)) is not None:
            self._codes[pid] = found
        # A process whose own parent waits for it has left its code.
        if pid not in self._codes:
            with contextlib.suppress(OSError):
                if left := (self._folder / str(pid)).read_bytes():
                    self._codes[pid] = left[-1]
        return self._codes.get(pid)

    def reap_adopted(self, command_pid: int) -> None:
        """Wait for the children of this process that have ended, except the command; keep the codes of
        readers.

        They became its children when their own parents ended. A thousand of them make each look at the
        processes of this machine slow.
        """
        while (pid := ended_child()) not in (None, command_pid):
            code = exit_code(os.waitpid(pid, 0)[1])
            if (self._folder / str(pid)).exists():
                self._codes[pid] = code

    def _marks(self) -> Iterable[tuple[int, Path]]:
        return [(int(each.name), each) for each in self._folder.iterdir() if each.name.isdecimal()]

    def _runs(self, pid: int, mark: Path) -> bool:
        if pid in self._codes:
            return False
        with contextlib.suppress(psutil.NoSuchProcess, OSError):
            process = psutil.Process(pid)
            # A later process may have the same id.
            is_same = process.create_time() < mark.stat().st_mtime + START_ERROR_S
            return is_same and is_running(process)
        return False

    def _adopted_code(self, pid: int) -> int | None:
        """Return the code of a child of this process, whose own parent has ended, once it has ended, too."""
        try:
            found, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return None
        return exit_code(status) if found else None


def is_running(process: psutil.Process) -> bool:
    """Return whether a process runs: one that has ended and was not waited for does not."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def ended_child() -> int | None:
    """Return the id of a child of this process that has ended; None: there is none."""
    # macOS has no such call in Python 3.11, and no process adopts another one there.
    if not hasattr(os, "waitid"):
        return None
    with contextlib.suppress(ChildProcessError):
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return found.si_pid if found else None
    return None


def exit_code(status: int) -> int:
    """Return the exit code in a status of `waitpid`; a signal's number counts from 128, as in shells."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def codes_of_term(command_lines: Iterable[list[str]]) -> set[int]:
    """Return the exit codes by which the programs of a process group end where SIGTERM ends them.

    GNU make ends with 2 ("Errors encountered"); torchrun and accelerate with 1 (an uncaught SignalException),
    or by SIGABRT where a thread of torch's still runs at that end.
    """
    codes = {TERM_CODE}
    for words in command_lines:
        name = program_name(words)
        if name in MAKES:
            codes.add(2)
        if name in LAUNCHERS:
            codes |= {1, 128 + signal.SIGABRT}
    return codes


def program_name(words: list[str]) -> str:
    """Return the name of the program in a command line: Python's script or module, not Python."""
    names = [Path(word).name for word in words if not word.startswith("-")]
    is_python = len(names) > 1 and names[0].startswith("python")
    return names[is_python] if names else ""
