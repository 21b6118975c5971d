"""The steps of a local run are forked from a server, and find what a step of KFP's own finds."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from exec_runs import wait_until_gone
from kfp import dsl
from kfp.local import subprocess_task_handler

from shoestring.pipelines.local_runner import run_locally
from shoestring.pipelines.step_server import SHELL, step_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the server needs Linux")
LAUNCHER = """\
import sys
from pathlib import Path
from test_step_server import waiting
from shoestring.pipelines.local_runner import run_locally
run_locally({"path": sys.argv[1]}, Path(sys.argv[1]).parent / "log.txt", waiting)
"""


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def look(path: str) -> str:
    import json
    import os
    import sys
    from pathlib import Path

    import psutil

    me = psutil.Process()
    found = {
        "pid": me.pid,
        "above": [each.pid for each in me.parents()],
        "names": [each.cmdline()[-2] for each in me.parents()[:2]],
        "threads": [
            {int(task.name): (task / "comm").read_text().strip() for task in tasks.iterdir()}
            for tasks in (Path(f"/proc/{each.pid}/task") for each in (me, *me.parents()[:2]))
        ],
        "torch": "torch" in sys.modules,
        "folders": [sys.path[1], str(Path.cwd())],
        "variables": [os.environ.get(name) for name in ("_KFP_RUNTIME", "MINE", "OPENBLAS_NUM_THREADS")],
        "age_s": psutil.time.time() - me.create_time(),
        "cpu_s": sum(me.cpu_times()[:2]),
    }
    with Path(path).open("a") as file:
        file.write(json.dumps(found) + "\n")
    print("é from a step", file=sys.stderr)
    return str(me.pid)


@dsl.pipeline(name="looking")
def looking(path: str) -> None:
    first = look(path=path)
    look(path=path).after(first).set_env_variable("MINE", "of the task")


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def kill_server() -> None:
    import os
    import signal

    import psutil

    os.kill(psutil.Process().parents()[1].pid, signal.SIGKILL)


@dsl.pipeline(name="killing")
def killing(path: str) -> None:
    look(path=path).after(kill_server())


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def wait(path: str) -> None:
    import os
    import time
    from pathlib import Path

    Path(path).write_text(f"{os.getpid()} {os.getppid()}")
    time.sleep(60)


@dsl.pipeline(name="waiting")
def waiting(path: str) -> None:
    wait(path=path)


def looked(path: Path, log: Path) -> list[dict[str, Any]]:
    assert run_locally({"path": str(path)}, log, looking), log.read_text()
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_step_is_a_process_forked_from_one_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = looked(tmp_path / "found", tmp_path / "log.txt")
    assert first["pid"] != second["pid"]
    # Above it: the process that waits for it, the server, and this one.
    assert first["above"][1:3] == second["above"][1:3] == [first["above"][1], os.getpid()]
    assert first["names"] == ["shoestring.pipelines.step_server"] * 2
    own, waiting, servers = first["threads"]
    # Arrow's allocator has a thread in the server, which runs no Python.
    assert (len(own), len(waiting), first["torch"]) == (1, 1, False)
    assert set(servers.values()) <= {waiting[str(first["above"][0])], "jemalloc_bg_thd"}, servers
    assert first["folders"] == [str(tmp_path)] * 2
    assert (first["variables"], second["variables"]) == (
        ["true", None, None],
        ["true", "of the task", None],
    )
    assert first["age_s"] < 5
    text = (tmp_path / "log.txt").read_text()
    assert text.count("é from a step") == 2 and "DeprecationWarning" not in text
    wait_until_gone(first["above"][1])
    assert not [each for each in Path("/proc").iterdir() if each.name == str(first["above"][1])]


def test_the_server_ends_with_a_launcher_that_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "pids"
    variables = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER, str(path)], env=variables)
    due_s = time.monotonic() + 60
    while not (path.exists() and path.read_text()) and time.monotonic() < due_s:
        time.sleep(0.05)
    step, waits = map(int, path.read_text().split())
    server = int(Path(f"/proc/{waits}/stat").read_text().rpartition(")")[2].split()[1])
    launcher.kill()
    launcher.wait()
    wait_until_gone(server)
    os.kill(step, signal.SIGKILL)
    wait_until_gone(waits)


def test_a_step_after_the_end_of_the_server_is_started_as_kfp_does(tmp_path: Path) -> None:
    path, log = tmp_path / "found", tmp_path / "log.txt"
    assert run_locally({"path": str(path)}, log, killing), log.read_text()
    (found,) = (json.loads(line) for line in path.read_text().splitlines())
    assert found["above"][1] == os.getpid()


SCRIPT = (
    'program_path=$(mktemp -d)\n\nprintf "%s" "$0" > "$program_path/ephemeral_component.py"\n'
    "_KFP_RUNTIME=true PYTHON -m kfp.dsl.executor_main                         --component_module_path"
    '                         "$program_path/ephemeral_component.py"                         "$@"\n'
)


@pytest.mark.parametrize(
    ("script", "is_step"),
    [
        (SCRIPT.replace("PYTHON", sys.executable), True),
        (SCRIPT.replace("PYTHON", "/another/python3"), False),
        (f"python3 -m pip install x\n{SCRIPT.replace('PYTHON', sys.executable)}", False),
        ("echo $0", False),
    ],
)
def test_a_command_of_another_shape_is_run_as_kfp_does(script: str, is_step: bool) -> None:
    command = [*SHELL, script, "source", "--executor_input", "{}", "--function_to_execute", "look"]
    found = step_of(command)
    assert (found is not None) == is_step
    if found is not None:
        assert list(found) == command[3:]


def test_a_compiled_component_has_the_shape_that_the_server_knows(tmp_path: Path) -> None:
    container = looking.pipeline_spec.deployment_spec["executors"]["exec-look"]["container"]
    words = [*container["command"], *container["args"]]
    named = subprocess_task_handler.replace_python_executable(words, sys.executable)
    assert step_of(named) is not None and step_of(words) is None
