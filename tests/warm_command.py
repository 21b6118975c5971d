"""A process that imports the command line once and forks for each command. It saves 1 to 2 s of imports each.

`python tests/warm_command.py SOCKET` listens there until its standard input closes. A request names the
arguments, the working directory and the environment, and passes three descriptors for the standard streams.
The forked process is what `python -m shoestring ARGUMENTS` would be: it runs main() and ends as Python ends.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

MAX_REQUEST_BYTES = 1 << 20
# Most commands import these, each on its first use.
SLOW_IMPORTS = ("kfp", "kubernetes.client", "shoestring.pipelines.train")
START_S = 60.0


class CommandTimeout(Exception):
    """The command did not end within its time."""


class WarmProcess:
    """A running command, with the methods of `subprocess.Popen` that tests call."""

    def __init__(self, client: socket.socket, out: int, err: int, pid: int) -> None:
        self._client, self._out, self._err, self.pid = client, out, err, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code; None: it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code. Raises TimeoutExpired."""
        if self.returncode is None:
            self._client.settimeout(timeout)
            try:
                self.returncode = int(self._client.recv(100))
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired("shoestring", timeout or 0) from None
            self._client.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end; return the two outputs. Raises TimeoutExpired."""
        self.wait(timeout)
        return text_of(self._out), text_of(self._err)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@dataclass(frozen=True)
class WarmServer:
    """The process, as its clients know it."""

    address: str
    process: subprocess.Popen[bytes]

    def run(self, arguments: list[str], variables: dict[str, str], timeout_s: float) -> tuple[int, str, str]:
        """Return the exit code and the two outputs of one command. Raises CommandTimeout."""
        process = self.start(arguments, variables)
        try:
            out, err = process.communicate(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise CommandTimeout(f"{arguments} took more than {timeout_s:.0f} s") from None
        return process.wait(), out, err

    def start(self, arguments: list[str], variables: dict[str, str]) -> WarmProcess:
        """Start one command, in a process group of its own."""
        content = {"arguments": arguments, "cwd": str(Path.cwd()), "environment": variables}
        request = json.dumps(content).encode()
        assert len(request) < MAX_REQUEST_BYTES
        out, err = os.memfd_create("out"), os.memfd_create("err")
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        client.connect(self.address)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_REQUEST_BYTES)
        with Path(os.devnull).open() as nothing:
            socket.send_fds(client, [request], [nothing.fileno(), out, err])
        client.settimeout(START_S)
        return WarmProcess(client, out, err, int(client.recv(100)))


def text_of(output: int) -> str:
    """Return what was written to a memory file, and close it."""
    with os.fdopen(output, "rb") as opened:
        opened.seek(0)
        return opened.read().decode()


@cache
def warm_server() -> WarmServer:
    """Start the server of this process; it ends with it."""
    address = str(Path(tempfile.mkdtemp(prefix="warm-")) / "socket")
    process = subprocess.Popen(
        [sys.executable, __file__, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], START_S)
    assert ready and process.stdout.readline() == b"ready\n", "the command server did not start"
    atexit.register(end, process, Path(address))
    return WarmServer(address, process)


def end(process: subprocess.Popen[bytes], address: Path) -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.wait(timeout=10)
    address.unlink(missing_ok=True)
    address.parent.rmdir()


def accept(listener: socket.socket) -> dict[str, Any] | None:
    """Fork for the next request. Return None in the server, and the request in the process of the command."""
    connection, _ = listener.accept()
    if os.fork():
        connection.close()
        while True:  # the handlers of earlier requests
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    return None
            except ChildProcessError:
                return None
    listener.close()
    data, streams, _, _ = socket.recv_fds(connection, MAX_REQUEST_BYTES, 3)
    if command := os.fork():
        with contextlib.suppress(OSError):  # The client gave up: its time is over.
            connection.send(str(command).encode())
            _, status = os.waitpid(command, 0)
            connection.send(str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    connection.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    return dict(json.loads(data))


def become(request: dict[str, Any]) -> None:
    """Make this process look like `python -m shoestring`, as far as a command can see."""
    os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    if kube_config := sys.modules.get("kubernetes.config.kube_config"):
        # It read $KUBECONFIG when it was imported.
        vars(kube_config)["KUBE_CONFIG_DEFAULT_LOCATION"] = os.environ.get("KUBECONFIG", "~/.kube/config")
    package = Path(sys.modules["shoestring"].__path__[0])
    sys.argv = [str(package / "__main__.py"), *request["arguments"]]
    sys.path[0] = request["cwd"]
    sys.modules["__main__"].__package__ = "shoestring"


def serve(address: str) -> dict[str, Any]:
    """Serve until the standard input closes; returns only in a forked process, with its request."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MAX_REQUEST_BYTES)
    listener.bind(address)
    listener.listen(16)
    gc.freeze()
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([listener, 0], [], [])
        if listener not in ready:
            os._exit(0)
        if request := accept(listener):
            return request


if __name__ == "__main__":
    sys.path[0] = str(Path.cwd())
    from shoestring.cli import PLACES, load, main

    for place in PLACES.values():
        load(place)
    for name in SLOW_IMPORTS:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    become(serve(sys.argv[1]))
    main()
