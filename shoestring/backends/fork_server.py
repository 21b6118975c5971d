"""A process that has imported what others need, and forks one for each request: an import is paid once.

A request has arguments, a folder, variables and three standard streams. The server forks twice for it: the
second process handles the request, and the first waits for it and reports its exit code. Linux only.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

import psutil

START_S = 60.0
"""Seconds in which a server has imported, or has forked."""
NOT_SERVERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals to the process group are for the forked processes. A server ends with its client."""


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """What a forked process gets. `variables` are its whole environment."""

    arguments: tuple[str, ...]
    folder: str
    variables: Mapping[str, str]


class ForkedProcess:
    """A forked process, with the methods of `subprocess.Popen` that wait for it and signal it."""

    def __init__(self, reports: socket.socket, pid: int) -> None:
        self._reports, self.pid = reports, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code; None: it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code; that of SIGKILL where nobody is left to report it. Raises TimeoutExpired."""
        if self.returncode is None:
            self._reports.settimeout(timeout)
            try:
                found = self._reports.recv(100)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired("a forked process", timeout or 0) from None
            self.returncode = int(found or -signal.SIGKILL)
            self._reports.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """A server, as its client knows it. It ends when the client closes it, or ends itself."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str]) -> None:
        """Start the server. `command` gets one more argument: the handle that `serve` needs."""
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [*command, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                env=dict(variables),
                pass_fds=[theirs.fileno()],
            )

    def wait_until_ready(self) -> float | None:
        """Wait for the imports of the server; return the seconds from its start to their end. None: it has
        ended instead, or takes too long.
        """
        self._control.settimeout(START_S)
        with contextlib.suppress(OSError, ValueError):
            return float(self._control.recv(100))
        return None

    def start(self, request: ForkRequest, streams: tuple[int, int, int]) -> ForkedProcess:
        """Fork a process for a request. `streams`: handles of its standard input, output and error.

        Raises OSError: the server has ended, or cannot fork.
        """
        reports, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        content = os.memfd_create("request")
        try:
            with theirs:
                with os.fdopen(os.dup(content), "wb") as file:
                    file.write(json.dumps(asdict(request)).encode())
                socket.send_fds(self._control, [b"fork"], [theirs.fileno(), content, *streams])
            reports.settimeout(START_S)
            if not (pid := reports.recv(100)):
                raise OSError("the server of processes has ended")
        except OSError:
            reports.close()
            raise
        finally:
            os.close(content)
        return ForkedProcess(reports, int(pid))

    def close(self) -> None:
        """End the server. What it has forked goes on."""
        self._control.close()
        self.process.wait()


def serve(handle: int, run: Callable[[ForkRequest], object]) -> NoReturn:
    """Serve until the client is gone: call `run` with each request, in a process of its own."""
    for number in NOT_SERVERS:
        signal.signal(number, signal.SIG_IGN)
    control = socket.socket(fileno=handle)
    gc.freeze()
    try:
        control.send(f"{time.time() - psutil.Process().create_time():.3f}".encode())
    except BrokenPipeError:
        os._exit(0)
    while True:
        data, handles, _, _ = socket.recv_fds(control, 100, 5)
        if not data:
            os._exit(0)
        if os.fork() == 0:
            control.close()
            request = _fork(*handles)
            _leave(_exit_code(partial(run, request)))
        for each in handles:
            os.close(each)
        # The processes that waited for earlier ones.
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _exit_code(run: Callable[[], object]) -> int:
    """Run to the end; return the exit code that Python would end with, or that of SIGINT."""
    try:
        run()
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        print(error.code, file=sys.stderr)
        return 1
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _leave(code: int) -> NoReturn:
    """End a forked process as Python does, but without the destructors of libraries in C++: they would end
    threads that only the server has.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if code == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code & 0xFF)


def _fork(reports: int, content: int, *streams: int) -> ForkRequest:
    """Fork the process of a request, and return in it; the other one reports its exit code, and ends."""
    reporting = socket.socket(fileno=reports)
    if pid := os.fork():
        for each in (content, *streams):
            os.close(each)
        # The client may give up.
        with contextlib.suppress(OSError):
            reporting.send(str(pid).encode())
            _, status = os.waitpid(pid, 0)
            reporting.send(str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    reporting.close()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in NOT_SERVERS[1:]:
        signal.signal(number, signal.SIG_DFL)
    for standard, each in enumerate(streams):
        os.dup2(each, standard)
        os.close(each)
    with os.fdopen(content, "rb") as file:
        file.seek(0)
        return ForkRequest(**json.load(file))


def become(request: ForkRequest, program: str) -> None:
    """Make this process look like `python -m` with these arguments. `program`: the path of the module."""
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.variables)
    sys.argv = [program, *request.arguments]
    sys.path[0] = request.folder


def is_available() -> bool:
    """Return whether this system has what a server needs."""
    return sys.platform == "linux" and Path("/proc/self").exists()
