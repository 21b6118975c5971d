"""A command as a process group of its own, on the terminal of its supervisor."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

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

    def __init__(self, argv: Sequence[str], variables: Mapping[str, str], folder: Path | None) -> None:
        """Start the command. Raises UsageError: there is no such program or folder, or it cannot be run."""
        self.code: int | None = None
        self.ended = threading.Event()
        try:
            # Its own group, so that TERM reaches what a shell script runs, and not the supervisor.
            self._process = subprocess.Popen(
                argv, env=os.environ | variables, cwd=folder, process_group=0, stdin=None
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
        code = os.waitstatus_to_exitcode(status)
        self.code = code if code >= 0 else 128 - code
        # Popen must not wait for an id that may be another process's by now.
        self._process.returncode = code
        self.ended.set()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all processes of the group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def terminate(self) -> None:
        """Ask the group to end. A process that is stopped reads the request once it continues."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)

    def kill(self) -> None:
        self.send(signal.SIGKILL)


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
