"""The reaper that never ends: it does nothing itself, and starts processes that look and settle.

Each process reads the world's files again, and takes all that it kept with it, so nothing grows. A new one
that looks begins before the old one ends, and whatever becomes of either: no pod goes unseen meanwhile. A
settlement takes longer the more runs there are, so it is a process of its own, which no look waits for.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import FrameType

from shoestring.core.interfaces import Clock
from shoestring.data.scratch.temporary_folders import TemporaryFolder, make_folder, remove_left_over

ROUND_S = 60.0
"""Time from one process that looks, or settles, to the next."""
OVERLAP_S = 15.0
"""How long a process continues to look after the next one was started, which first imports and connects."""
LOOK_FOR_S = ROUND_S + OVERLAP_S
SETTLE_LIMIT_S = 300.0
"""A settlement that takes longer is killed. The next one continues: all that it wrote stays."""
RETRY_S = 5.0
"""Time from a process that looked and failed to the next."""
POLL_S = 0.5
END_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class StartedProcess:
    """A process with a folder for its temporary files, which is deleted with it. Times are monotonic."""

    process: subprocess.Popen[bytes]
    scratch: TemporaryFolder
    started_s: float

    def end(self) -> None:
        self.process.kill()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(END_TIMEOUT_S)
        self.scratch.remove()


@dataclass(slots=True)
class RepeatedProcess:
    """A command that is started every `ROUND_S`, and killed after `limit_s`.

    `overlaps`: it is started while the one before still runs, and `RETRY_S` after one that failed. Otherwise
    there is one at a time. `due_s`: when it is started next; at first that is at once.
    """

    command: Sequence[str]
    limit_s: float
    overlaps: bool
    running: list[StartedProcess] = field(default_factory=list)
    due_s: float = float("-inf")

    def step(self, now_s: float) -> None:
        """End what has ended or is too old, and start the command if it is due."""
        for each in list(self.running):
            code = each.process.poll()
            if code is not None or now_s > each.started_s + self.limit_s:
                self.running.remove(each)
                each.end()
                if code and self.overlaps:
                    self.due_s = min(self.due_s, max(now_s, each.started_s + RETRY_S))
        if now_s >= self.due_s and (self.overlaps or not self.running):
            self.due_s = now_s + ROUND_S
            scratch = make_folder()
            variables = os.environ | {"TMPDIR": str(scratch.path)}
            # It may outlive this process, so it holds the folder as well.
            process = subprocess.Popen(self.command, env=variables, pass_fds=[scratch.handle])
            self.running.append(StartedProcess(process, scratch, now_s))

    def end(self) -> None:
        while self.running:
            self.running.pop().end()


def keep_reaping(look: Sequence[str], settle: Sequence[str], clock: Clock) -> None:
    """Start processes that look for `LOOK_FOR_S`, and others that settle, until this process is ended."""
    remove_left_over()
    processes = [
        RepeatedProcess(look, LOOK_FOR_S + OVERLAP_S, overlaps=True),
        RepeatedProcess(settle, SETTLE_LIMIT_S, overlaps=False),
    ]
    try:
        while True:
            for each in processes:
                each.step(clock.monotonic_s())
            clock.sleep(POLL_S)
    finally:
        for each in processes:
            each.end()


def exit_on_term(number: int, frame: FrameType | None) -> None:
    """Handle SIGTERM. Without a handler it would not end the first process of a container."""
    raise SystemExit(0)
