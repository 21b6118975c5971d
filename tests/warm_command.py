"""A process that imports the command line once and forks for each command. It saves 1 to 2 s of imports each.

The forked process is what `python -m shoestring ARGUMENTS` would be: it runs main() and ends as Python ends.
`python tests/warm_command.py HANDLE` is the server (`shoestring/backends/fork_server.py`).
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from shoestring.backends.fork_server import ForkedProcess, ForkRequest, ForkServer, become, serve

# Most commands import these, each on its first use.
SLOW_IMPORTS = ("kfp", "kubernetes.client", "shoestring.pipelines.train")


class CommandTimeout(Exception):
    """The command did not end within its time."""


class WarmProcess:
    """A running command, with the methods of `subprocess.Popen` that tests call."""

    def __init__(self, process: ForkedProcess, out: int, err: int) -> None:
        self._process, self._out, self._err = process, out, err
        self.pid, self.poll, self.wait = process.pid, process.poll, process.wait
        self.send_signal, self.kill = process.send_signal, process.kill

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end; return the two outputs. Raises TimeoutExpired."""
        self.wait(timeout)
        return text_of(self._out), text_of(self._err)


@dataclass(frozen=True)
class PipedOutput:
    """The output of a running command, of which a test reads the first lines."""

    pipe: int

    def readline(self) -> str:
        with os.fdopen(os.dup(self.pipe), "rb", buffering=0) as opened:
            return opened.readline().decode()


class PipedProcess(WarmProcess):
    """A command whose outputs end as those of `subprocess.Popen` do: with the last process that has them."""

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        out, err = read_to_ends((self._out, self._err), timeout)
        self.wait(timeout)
        return out, err

    @property
    def stdout(self) -> PipedOutput:
        return PipedOutput(self._out)


@dataclass(frozen=True)
class WarmServer:
    """The process, as its clients know it."""

    server: ForkServer

    def run(
        self, arguments: list[str], variables: dict[str, str], timeout_s: float, folder: Path | None = None
    ) -> tuple[int, str, str]:
        """Return the exit code and the two outputs of one command. Raises CommandTimeout."""
        process = self.start(arguments, variables, folder)
        try:
            out, err = process.communicate(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise CommandTimeout(f"{arguments} took more than {timeout_s:.0f} s") from None
        return process.wait(), out, err

    def start(
        self,
        arguments: list[str],
        variables: dict[str, str],
        folder: Path | None = None,
        log: Path | None = None,
    ) -> WarmProcess:
        """Start one command, in a process group of its own. `folder`: None: this one. `log`: of errors."""
        out = os.memfd_create("out")
        err = os.open(log, os.O_RDWR | os.O_CREAT | os.O_TRUNC) if log else os.memfd_create("err")
        request = ForkRequest(tuple(arguments), str(folder or Path.cwd()), variables)
        return WarmProcess(self._fork(request, out, err), out, err)

    def start_piped(self, arguments: list[str], variables: dict[str, str], folder: Path) -> PipedProcess:
        """Start one command in a folder, with pipes."""
        (out, to_out), (err, to_err) = os.pipe(), os.pipe()
        request = ForkRequest(tuple(arguments), str(folder), variables)
        try:
            return PipedProcess(self._fork(request, to_out, to_err), out, err)
        finally:
            os.close(to_out)
            os.close(to_err)

    def _fork(self, request: ForkRequest, out: int, err: int) -> ForkedProcess:
        with Path(os.devnull).open() as nothing:
            return self.server.start(request, (nothing.fileno(), out, err))


def read_to_ends(pipes: tuple[int, ...], timeout_s: float | None) -> list[str]:
    """Read pipes to their ends, and close them. Raises TimeoutExpired."""
    texts = {pipe: bytearray() for pipe in pipes}
    due_s = time.monotonic() + (timeout_s or 1e6)
    with selectors.DefaultSelector() as open_pipes:
        for pipe in pipes:
            open_pipes.register(pipe, selectors.EVENT_READ)
        while open_pipes.get_map():
            if not (ready := open_pipes.select(due_s - time.monotonic())):
                raise subprocess.TimeoutExpired("a command", timeout_s or 0)
            for key, _ in ready:
                texts[key.fd] += (data := os.read(key.fd, 1 << 16))
                if not data:
                    open_pipes.unregister(key.fd)
                    os.close(key.fd)
    return [text.decode() for text in texts.values()]


def text_of(output: int) -> str:
    """Return what was written to a memory file, and close it."""
    with os.fdopen(output, "rb") as opened:
        opened.seek(0)
        return opened.read().decode()


@cache
def warm_server() -> WarmServer:
    """Start the server of this process; it ends with it."""
    server = ForkServer([sys.executable, __file__], os.environ)
    assert server.wait_until_ready() is not None, "the command server did not start"
    atexit.register(server.close)
    return WarmServer(server)


def open_streams() -> None:
    """Open the standard streams again: those of the server were made for its own pipes."""
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)


def add_python_path(folders: str) -> None:
    """Let modules be found in the folders of $PYTHONPATH, as an interpreter does at its start."""
    sys.path[1:1] = [folder for folder in folders.split(os.pathsep) if folder and folder not in sys.path]


def main(handle: int) -> None:
    sys.path[0] = str(Path.cwd())
    from shoestring.cli import PLACES, load
    from shoestring.cli import main as run_command

    for place in PLACES.values():
        load(place)
    for name in SLOW_IMPORTS:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)

    def run(request: ForkRequest) -> None:
        os.setsid()
        open_streams()
        add_python_path(request.variables.get("PYTHONPATH", ""))
        become(request, str(Path(sys.modules["shoestring"].__path__[0]) / "__main__.py"))
        if kube_config := sys.modules.get("kubernetes.config.kube_config"):
            # It read $KUBECONFIG when it was imported.
            vars(kube_config)["KUBE_CONFIG_DEFAULT_LOCATION"] = os.environ.get("KUBECONFIG", "~/.kube/config")
        sys.modules["__main__"].__package__ = "shoestring"
        run_command()

    serve(handle, run)


if __name__ == "__main__":
    main(int(sys.argv[1]))
