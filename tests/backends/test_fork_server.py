"""A forked process ends as one of `python -c` does: exit code, output, and what it still has to do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoestring.backends.fork_server import ForkRequest, ForkServer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the server needs Linux")
SERVER = """\
import sys
from shoestring.backends.fork_server import serve
serve(int(sys.argv[1]), lambda request: exec(request.arguments[0], {"__name__": "__main__"}))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    script = tmp_path_factory.mktemp("server") / "server.py"
    script.write_text(SERVER)
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    found = ForkServer([sys.executable, str(script)], variables)
    assert found.wait_until_ready() is not None
    yield found
    found.close()


def forked(server: ForkServer, code: str) -> tuple[int, str]:
    """Return the exit code and the output of a forked process."""
    with tempfile.TemporaryFile() as out, Path(os.devnull).open() as nothing:
        request = ForkRequest((code,), str(Path.cwd()), {})
        process = server.start(request, (nothing.fileno(), out.fileno(), out.fileno()))
        ended = process.wait(30)
        out.seek(0)
        return ended, out.read().decode()


@pytest.mark.parametrize(
    "code",
    [
        "print('done')",
        "import sys; print('no line end', end=''); sys.exit()",
        "raise SystemExit(7)",
        "import sys; sys.exit('what it did not find')",
        "import sys; sys.exit(300)",
        "import atexit; atexit.register(print, 'at its end'); raise SystemExit(3)",
        "import threading, time\nthreading.Thread(target=lambda: time.sleep(0.2) or print('later')).start()",
        "from concurrent.futures import ThreadPoolExecutor as T; T().submit(print, 'of a pool')",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "import os; os._exit(9)",
    ],
)
def test_it_ends_as_a_process_of_its_own(server: ForkServer, code: str) -> None:
    own = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert forked(server, code) == (own.returncode, own.stdout + own.stderr)


def test_its_errors_and_ctrl_c_are_those_of_python(server: ForkServer) -> None:
    code, text = forked(server, "{}['absent']")
    assert code == 1 and text.startswith("Traceback") and text.endswith("KeyError: 'absent'\n")
    code, text = forked(server, "import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    assert code == -signal.SIGINT and text.endswith("KeyboardInterrupt\n")


def test_it_is_waited_for_and_killed_like_any_process(server: ForkServer) -> None:
    with Path(os.devnull).open("r+") as nothing:
        handle = nothing.fileno()
        request = ForkRequest(("import time; time.sleep(60)",), str(Path.cwd()), {})
        process = server.start(request, (handle, handle, handle))
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05)
        assert process.poll() is None
        process.kill()
        assert process.wait(30) == process.poll() == -signal.SIGKILL


def test_a_server_that_has_ended_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text("raise SystemExit(4)")
    found = ForkServer([sys.executable, str(tmp_path / "server.py")], os.environ)
    assert found.wait_until_ready() is None
    with Path(os.devnull).open("r+") as nothing, pytest.raises(OSError):
        found.start(ForkRequest((), str(tmp_path), {}), (nothing.fileno(),) * 3)
    found.close()
