"""A command as a process group of its own, on the terminal of its supervisor."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from shoestring.commands.readers import exit_code, is_running
from shoestring.core.errors import UsageError

SUSPENDED = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
"""The signals by which a terminal suspends a program."""
CANNOT_SUSPEND = (
    "shoestring: a command inside a budget cannot be suspended, since its time costs money: Ctrl-C ends it"
)


class CommandGroup:
    """A running command and what it starts in its process group. `code`: its exit code, None while it runs;
    a signal's number is counted from 128, as shells do.

    A terminal gives it the keyboard, so Ctrl-C reaches it, and not its supervisor.
    """

    def __init__(
        self,
        argv: Sequence[str],
        variables: Mapping[str, str],
        folder: Path | None,
        handles: Collection[int] = (),
    ) -> None:
        """Start the command, which inherits `handles`.

        Raises UsageError: there is no such program or folder, or it cannot be run.
        """
        self.code: int | None = None
        self.ended, self._found = threading.Event(), list[psutil.Process]()
        try:
            # Its own group, so that TERM reaches what a shell script runs, and not the supervisor.
            self._process = subprocess.Popen(
                argv,
                env=os.environ | variables,
                cwd=folder,
                process_group=0,
                stdin=None,
                pass_fds=handles,
            )
        except OSError as error:
            what = error.filename or argv[0]
            raise UsageError(f"cannot run {argv[0]}: {what}: {error.strerror}") from None
        self.pid = self._process.pid
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        while True:
            _, status = os.waitpid(self.pid, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                break
            if os.WSTOPSIG(status) in SUSPENDED:
                if os.WSTOPSIG(status) == signal.SIGTSTP:
                    print(CANNOT_SUSPEND, file=sys.stderr, flush=True)
                self.send(signal.SIGCONT)
        self.code = exit_code(status)
        # Popen must not wait for an id that may be another process's by now.
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self.ended.set()

    def processes(self) -> list[psutil.Process]:
        """Return the running processes of the group that this process started or adopted."""
        # A listing lacks what is below a process that ends meanwhile, so that what was found before stays.
        found = {*self._found, *psutil.Process().children(recursive=True)}
        self._found = [each for each in found if self._has(each) and is_running(each)]
        return self._found

    def command_lines(self) -> list[list[str]]:
        found = list[list[str]]()
        for each in self.processes():
            with contextlib.suppress(psutil.Error):
                found.append(each.cmdline())
        return found

    def _has(self, process: psutil.Process) -> bool:
        try:
            return os.getpgid(process.pid) == self.pid
        except ProcessLookupError:
            return False

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all processes of the group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def terminate(self, readers: Collection[int] = (), ending: Collection[int] = ()) -> None:
        """Ask the group to end. A process that is stopped reads the request once it continues.

        `readers`: processes that read their budget. What reads their output, such as `tee` or `$(...)`, goes
        on until they end: without it, they would fail at their next line. `ending`: those that write their
        results. What they have started for it, such as an upload, is theirs to end.
        """
        spared = (self._listeners(readers) | descendants_of(ending)) - {*readers}
        if not spared:
            self.send(signal.SIGTERM)
        for each in self.processes() if spared else ():
            if each.pid not in spared:
                with contextlib.suppress(psutil.Error):
                    each.terminate()
        self.send(signal.SIGCONT)

    def _listeners(self, readers: Collection[int]) -> set[int]:
        """Return the processes of the group that read what these write, and what those write, to the last."""
        others, found, sources = {each.pid for each in self.processes()} - {*readers}, set[int](), {*readers}
        while sources:
            written = set[str]().union(*(pipes_of(pid, writes=True) for pid in sources))
            sources = {pid for pid in others - found if written & pipes_of(pid, writes=False)}
            found |= sources
        return found

    def kill(self) -> None:
        self.send(signal.SIGKILL)


def descendants_of(pids: Collection[int]) -> set[int]:
    found = set[int]()
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            found.update(each.pid for each in psutil.Process(pid).children(recursive=True))
    return found


def pipes_of(pid: int, *, writes: bool) -> set[str]:
    """Return the pipes, by the kernel's names, to which a process prints (1 and 2), or from which it reads.

    Linux only.
    """
    found, folder = set[str](), Path(f"/proc/{pid}/fd")
    with contextlib.suppress(OSError):
        for each in folder.iterdir():
            if writes and each.name not in ("1", "2"):
                continue
            with contextlib.suppress(OSError, ValueError):
                lines = Path(f"/proc/{pid}/fdinfo/{each.name}").read_text().splitlines()
                flags = next(line.split()[1] for line in lines if line.startswith("flags:"))
                if (int(flags, 8) & os.O_ACCMODE != os.O_RDONLY) == writes:
                    found.add(str(each.readlink()))
    return {name for name in found if name.startswith("pipe:")}


@contextlib.contextmanager
def keyboard_of(group: CommandGroup) -> Iterator[None]:
    """Give the group the keyboard of the terminal, if this process has it, until the block ends."""
    try:
        owner = os.tcgetpgrp(0)
    except OSError:
        owner = None
    if owner != os.getpgrp():
        yield
        return
    # The terminal suspends a background process that hands the keyboard over, unless it ignores that.
    previous = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        with contextlib.suppress(OSError):
            os.tcsetpgrp(0, group.pid)
        yield
    finally:
        with contextlib.suppress(OSError):
            os.tcsetpgrp(0, owner)
        signal.signal(signal.SIGTTOU, previous)
