"""A process that imports the command line once and forks for each command. It saves 1 to 2 s of imports each.

The forked process is what `python -m shoestring ARGUMENTS` would be: it runs main() and ends as Python ends.
`python tests/warm_command.py HANDLE` is the server (`shoestring/backends/fork_server.py`).
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import subprocess
import sys
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

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end; return the two outputs. Raises TimeoutExpired."""
        self.wait(timeout)
        return text_of(self._out), text_of(self._err)


@dataclass(frozen=True)
class WarmServer:
    """The process, as its clients know it."""

    server: ForkServer

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
        out, err = os.memfd_create("out"), os.memfd_create("err")
        request = ForkRequest(tuple(arguments), str(Path.cwd()), variables)
        with Path(os.devnull).open() as nothing:
            return WarmProcess(self.server.start(request, (nothing.fileno(), out, err)), out, err)


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
        become(request, str(Path(sys.modules["shoestring"].__path__[0]) / "__main__.py"))
        if kube_config := sys.modules.get("kubernetes.config.kube_config"):
            # It read $KUBECONFIG when it was imported.
            vars(kube_config)["KUBE_CONFIG_DEFAULT_LOCATION"] = os.environ.get("KUBECONFIG", "~/.kube/config")
        sys.modules["__main__"].__package__ = "shoestring"
        run_command()

    serve(handle, run)


if __name__ == "__main__":
    main(int(sys.argv[1]))
