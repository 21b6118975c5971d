"""Scripts of Python in processes that are forked from one that has imported their libraries.

`python tests/warm_scripts.py MODULES HANDLE` is the server (`shoestring/backends/fork_server.py`).
"""

from __future__ import annotations

import atexit
import importlib
import os
import runpy
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from warm_command import PipedProcess, WarmServer, add_python_path, open_streams

from shoestring.backends.fork_server import ForkRequest, ForkServer, become, serve

ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def start_script(*words: object, variables: Mapping[str, str], modules: str) -> PipedProcess:
    """Start a script, the first of the words. `modules`: those that it needs, divided by commas."""
    return script_server(modules).start_piped([*map(str, words)], os.environ | variables, Path.cwd())


@cache
def script_server(modules: str) -> WarmServer:
    """Start the server of some modules; it ends with this process."""
    server = ForkServer([sys.executable, __file__, modules], os.environ | ONE_THREAD)
    assert server.wait_until_ready() is not None, "the server of scripts did not start"
    atexit.register(server.close)
    return WarmServer(server)


def run_script(request: ForkRequest) -> None:
    script = request.arguments[0]
    os.setsid()
    open_streams()
    become(request, script)
    sys.argv, sys.path[0] = [*request.arguments], str(Path(script).parent)
    add_python_path(request.variables.get("PYTHONPATH", ""))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    for name in sys.argv[1].split(","):
        importlib.import_module(name)
    serve(int(sys.argv[2]), run_script)
