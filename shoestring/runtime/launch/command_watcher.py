"""A process that ends the command of `shoestring exec`, and settles it, where `exec` cannot.

A command has the rights of its user: it can stop or kill `exec` and the process of its stage. This one is
forked before `exec` starts a thread, has a session of its own, and ignores HUP, INT and TERM. `exec` sends it
through a pipe when the money is gone; it reads no file that the command could write. `exec` ends the command
where this process is gone.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime

import psutil

from shoestring.backends.processes import process_ref
from shoestring.backends.remembered_processes import ProcessStat, RememberedProcesses, read_stat
from shoestring.config.world import World
from shoestring.core.errors import ShoestringError, UnknownName
from shoestring.core.pod_ref import LocalProcess
from shoestring.core.text import shown_text
from shoestring.data.scratch.temporary_folders import remove_left_over
from shoestring.reporting.publish import publish
from shoestring.runtime.settlement.settle import settle_run
from shoestring.runtime.supervisor.child import ORPHAN_GRACE_S
from shoestring.runtime.supervisor.spend_limits import WatchedCommand
from shoestring.spending.heartbeat import record_lost

LOOK_EVERY_S = 0.2
EARLIER_S, LATER_S = 0.05, 1.0
"""A change of the end by less is not worth a message. Where a price may rise, it is later at each moment."""
OVERDUE_S = 1.0
"""`exec` ends its command before its money is gone. This long after that, the watcher does."""
STOPPED_LOOKS = 2
"""Looks in a row that find a process stopped: a shell may stop and continue all of a job."""
SETTLE_FOR_S, SETTLE_EVERY_S = 60.0, 2.0
IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)


@dataclass(slots=True)
class CommandWatcher:
    """The process, as `exec` knows it."""

    pod: LocalProcess
    _pipe: int
    _sent: WatchedCommand = field(default_factory=WatchedCommand)

    @property
    def pid(self) -> int:
        return self.pod.pid

    def send(self, command: WatchedCommand) -> None:
        """Send it what has changed. It may be gone."""
        sent, self._sent = self._sent, command
        is_near = -EARLIER_S < command.ends_s - sent.ends_s < LATER_S
        if command == sent or (is_near and replace(command, ends_s=sent.ends_s) == sent):
            self._sent = sent
            return
        # A watcher that is stopped reads nothing.
        with suppress(OSError):
            os.write(self._pipe, json.dumps(asdict(command)).encode() + b"\n")

    def close(self) -> None:
        """End it: `exec` has settled the command."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        os.close(self._pipe)


@contextmanager
def command_watcher(open_world: Callable[[], World]) -> Iterator[CommandWatcher]:
    """Fork the watcher of this process, which must have started no thread; end it when the block has ended.

    `open_world` opens the world in which it settles. The libraries below NumPy and pyarrow may have threads:
    they provide for a fork.
    """
    own_pid, (reads, writes) = os.getpid(), os.pipe()
    os.set_blocking(writes, False)
    sys.stderr.flush()
    if (pid := os.fork()) == 0:
        try:
            os.close(writes)
            _leave_terminal()
            _Watch(reads, own_pid, open_world).run()
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(reads)
    watcher = CommandWatcher(process_ref(psutil.Process(pid)), writes)
    try:
        yield watcher
    finally:
        watcher.close()


def _leave_terminal() -> None:
    """Leave the session of `exec` and its streams, except for the errors."""
    os.setsid()
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)


class _Watch:
    def __init__(self, pipe: int, exec_pid: int, open_world: Callable[[], World]) -> None:
        os.set_blocking(pipe, False)
        self._pipe, self._exec_pid, self._open_world = pipe, exec_pid, open_world
        self._command, self._unread = WatchedCommand(), b""
        spared = {1, exec_pid, os.getpid(), os.getpgid(exec_pid), os.getsid(exec_pid)}
        self._processes = RememberedProcesses(frozenset(spared))
        self._stopped_looks = 0

    def run(self) -> None:
        """Watch until `exec` is gone, and then until its command is settled."""
        while os.getppid() == self._exec_pid:
            self._wait()
            self._processes.look([self._exec_pid])
            if self._command.child_pid and os.getppid() == self._exec_pid:
                self._end_if_due()
        self._read()
        if self._command.run_id:
            self._end_after_exec()
            self._settle()

    def _wait(self) -> None:
        if self._pipe in select.select([self._pipe], [], [], LOOK_EVERY_S)[0] and not self._read():
            # `exec` has closed it: it ends.
            time.sleep(LOOK_EVERY_S)

    def _read(self) -> bool:
        """Read what `exec` has sent; return False at the end of its messages."""
        with suppress(BlockingIOError):
            while found := os.read(self._pipe, 1 << 16):
                *lines, self._unread = (self._unread + found).split(b"\n")
                if lines:
                    self._command = WatchedCommand(**json.loads(lines[-1]))
            return False
        return True

    def _end_if_due(self) -> None:
        """End the command where its supervisor cannot: it is stopped, or late."""
        now_s, command = time.monotonic(), self._command
        child = read_stat(command.child_pid)
        is_due = now_s >= command.ends_s or child is None or not child.is_running
        if self._is_stopped(read_stat(self._exec_pid)) and is_due:
            self._processes.end(command.scratch)
            _say(f"{command.run_id}: its supervisor was stopped, so its command was killed")
            # It settles what the command has cost. Nothing is left that could stop it again.
            os.kill(self._exec_pid, signal.SIGCONT)
        elif now_s >= command.ends_s + OVERDUE_S:
            self._processes.end(command.scratch)

    def _is_stopped(self, supervisor: ProcessStat | None) -> bool:
        is_now = supervisor is not None and supervisor.is_stopped
        self._stopped_looks = self._stopped_looks + 1 if is_now else 0
        return self._stopped_looks >= STOPPED_LOOKS

    def _end_after_exec(self) -> None:
        """Give the process of the stage its grace, in which it ends the command; then end what is left."""
        due_s = min(time.monotonic() + ORPHAN_GRACE_S + OVERDUE_S, self._command.ends_s)
        while (child := read_stat(self._command.child_pid)) and child.is_running and not child.is_stopped:
            if time.monotonic() >= due_s:
                break
            self._processes.look([child.pid])
            time.sleep(LOOK_EVERY_S)
        self._processes.end(self._command.scratch)

    def _settle(self) -> None:
        """Record the end of the command, and settle its run. A store that is away is tried again."""
        ended_at, due_s, run_id = datetime.now(UTC), time.monotonic() + SETTLE_FOR_S, self._command.run_id
        end = "its command was ended, and is settled"
        while True:
            try:
                world = self._open_world()
                if self._command.attempt:
                    record_lost(world.store, run_id, self._command.attempt, ended_at)
                settle_run(world, run_id)
                publish(world.store, run_id)
            except UnknownName:
                # It was never begun.
                break
            except ShoestringError as error:
                if time.monotonic() < due_s:
                    time.sleep(SETTLE_EVERY_S)
                    continue
                end = f"its command was ended; the next command settles it, since now: {error}"
            _say(f"{run_id}: its supervisor was killed: {end}")
            break
        remove_left_over()


def _say(sentence: str) -> None:
    with suppress(OSError):
        os.write(2, f"shoestring: {shown_text(sentence)}\n".encode())
