"""The steps of KFP's local runner as processes forked from one that has imported what they need.

KFP starts each step by a shell that writes the component's source to a file and runs KFP's executor on it. A
command of another shape, such as one with `pip install` or of another interpreter, is started as KFP does it.

`python -m shoestring.pipelines.step_server HANDLE` is the server.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from shoestring.backends.fork_server import ForkRequest, ForkServer, become, is_available, serve
from shoestring.data.scratch.temporary_folders import temporary_folder

EXECUTOR = "kfp.dsl.executor_main"
RUN_TIME = {"_KFP_RUNTIME": "true"}
"""Makes `import kfp` leave out its compiler, as KFP's own command for a step does."""
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
SHELL = ("sh", "-ec")
SCRIPT = re.compile(
    r"\s*program_path=\$\(mktemp -d\)\s+"
    r'printf "%s" "\$0" > "\$program_path/ephemeral_component\.py"\s+'
    r"_KFP_RUNTIME=true (?P<python>\S+) -m kfp\.dsl\.executor_main\s+"
    r'--component_module_path\s+"\$program_path/ephemeral_component\.py"\s+"\$@"\s*'
)
COMPONENT_FILE = "ephemeral_component.py"
IMPORTED = (
    EXECUTOR,
    "shoestring.runtime",
    "shoestring.runtime.open_world",
    "shoestring.runtime.route_step.engine_request",
    "shoestring.runtime.route_step.route",
    "shoestring.runtime.settlement.settle",
    "shoestring.runtime.supervisor.run_stage",
)
RunStep = Callable[[Sequence[str], Mapping[str, str] | None], int]


@contextmanager
def forked_steps(started: Callable[[float], object]) -> Iterator[None]:
    """Let KFP's local runner fork its steps while the block runs, where this system can.

    `started` is given the seconds that the server took to its first step.
    """
    if not is_available():
        yield
        return
    server = ForkServer(
        [sys.executable, "-m", "shoestring.pipelines.step_server"], os.environ | RUN_TIME | ONE_THREAD
    )
    # Imported while the server starts.
    from kfp.local import subprocess_task_handler as handler

    as_kfp_does = handler.run_local_subprocess
    try:
        handler.run_local_subprocess = step_runner(server, as_kfp_does, started)
        yield
    finally:
        handler.run_local_subprocess = as_kfp_does
        server.close()


def step_runner(server: ForkServer, as_kfp_does: RunStep, started: Callable[[float], object]) -> RunStep:
    """Return what runs the command of a step, prints its output and returns its exit code."""

    @cache
    def is_ready() -> bool:
        seconds = server.wait_until_ready()
        if seconds is not None:
            started(seconds)
        return seconds is not None

    def run(full_command: Sequence[str], env_vars: Mapping[str, str] | None = None) -> int:
        step = step_of(full_command) if is_ready() else None
        if step is None:
            return as_kfp_does(full_command, env_vars)
        variables = os.environ | (env_vars or {}) | RUN_TIME
        code = run_forked(server, ForkRequest(step, str(Path.cwd()), variables))
        return as_kfp_does(full_command, env_vars) if code is None else code

    return run


def step_of(full_command: Sequence[str]) -> tuple[str, ...] | None:
    """Return the source of a component and its arguments in KFP's command for it; None: it is another one."""
    if len(full_command) < 4 or tuple(full_command[:2]) != SHELL:
        return None
    found = SCRIPT.fullmatch(full_command[2])
    if found is None or found["python"] != sys.executable:
        return None
    return tuple(full_command[3:])


def run_forked(server: ForkServer, request: ForkRequest) -> int | None:
    """Run a request to its end, and print its output line by line. Returns its exit code; None: it was not
    started, since the server has ended.
    """
    reads, writes = os.pipe()
    with Path(os.devnull).open("rb") as nothing, os.fdopen(reads, errors="replace") as lines:
        try:
            process = server.start(request, (nothing.fileno(), writes, writes))
        except OSError:
            return None
        finally:
            os.close(writes)
        for line in lines:
            print(line, end="")
        print("\n")
        return process.wait()


def run_step(request: ForkRequest) -> None:
    """Become the step of a request, in a process that was forked for it."""
    executor = importlib.util.find_spec(EXECUTOR)
    assert executor is not None and executor.origin is not None
    source, *arguments = request.arguments
    become(request, executor.origin)
    with suppress(KeyError):
        del sys.modules[EXECUTOR]
    with temporary_folder() as folder:
        (program := folder / COMPONENT_FILE).write_text(source)
        sys.argv[1:] = ["--component_module_path", str(program), *arguments]
        runpy.run_module(EXECUTOR, run_name="__main__", alter_sys=True)


def main(handle: int) -> None:
    """Import what steps need, and serve."""
    for name in IMPORTED:
        importlib.import_module(name)
    serve(handle, run_step)


if __name__ == "__main__":
    main(int(sys.argv[1]))
