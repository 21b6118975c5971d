"""`.ci/run` runs the stages that it is given, also after a failure, and names at its end what failed."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# `make lint` and `make tests` fail here; the latter as pytest does.
MAKE = """#!/bin/sh
case $1 in
lint) echo "shoestring/a.py:1: error: bad" ; exit 2 ;;
tests)
    echo "noise"
    echo "=== short test summary info ==="
    echo "FAILED tests/a.py::test - assert 1 == 2"
    exit 2 ;;
esac
echo "made $1"
"""


@pytest.fixture
def fakes(tmp_path: Path) -> Path:
    """A folder with this `make`, and a `docker` without an engine, so that no cluster is deleted."""
    for name, text in (("make", MAKE), ("docker", "#!/bin/sh\nexit 1\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def check(fakes: Path, *stages: str) -> subprocess.CompletedProcess[str]:
    variables = {"PATH": f"{fakes}{os.pathsep}{os.environ['PATH']}", "TMPDIR": str(fakes)}
    line = ["bash", str(ROOT / ".ci/run"), *stages]
    return subprocess.run(line, env=os.environ | variables, capture_output=True, text=True, timeout=60)


def test_a_red_check_ends_with_what_failed_in_each_stage(fakes: Path) -> None:
    done = check(fakes, "environment", "lint", "tests")
    end = done.stdout.partition("=== what failed in lint\n")[2]
    assert done.returncode == 1
    assert end.startswith("shoestring/a.py:1: error: bad\n\n=== what failed in tests\n=== short test summary")
    assert "FAILED tests/a.py::test - assert 1 == 2" in end and "noise" not in end
    times = [line.split() for line in end.splitlines()[-3:]]
    assert [each[:2] for each in times] == [
        ["environment", "passed"],
        ["lint", "FAILED"],
        ["tests", "FAILED"],
    ]


def test_a_green_stage_ends_with_its_time(fakes: Path) -> None:
    done = check(fakes, "environment")
    assert done.returncode == 0 and "what failed" not in done.stdout
    assert done.stdout.splitlines()[-1].split() == ["environment", "passed", "0:00"]


def test_a_stage_that_does_not_exist_is_refused_with_those_that_do(fakes: Path) -> None:
    done = check(fakes, "lint", "quick")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no stage quick; the stages are: environment lint tests images smoke" in done.stderr


def test_a_second_check_on_a_machine_is_refused(fakes: Path) -> None:
    with (fakes / "shoestring-check.lock").open("w") as lock:
        lock.write("4711")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = check(fakes, "environment")
    assert (done.returncode, done.stdout) == (1, "")
    assert "another check runs on this machine, process 4711" in done.stderr
    assert check(fakes, "environment").returncode == 0
