"""Processes that read a budget leave the exit code with which they end, also under other programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from shoestring.backends.processes import adopt_orphans
from shoestring.commands.readers import BudgetReaders, codes_of_term

CONTENT = {
    "run_id": "one",
    "attempt": 1,
    "usd_left": "1",
    "usd_per_hour": "1",
    "seconds_left": 100.0,
    "share_gone": 0.1,
    "should_stop": False,
    "stop_reason": "",
    "grace_s": 1.0,
    "written_at": "2026-11-27T16:11:55Z",
}
READ = "import os, sys\nfrom shoestring.budget import Budget\nbudget = Budget.here(); Budget.here()\n"


@pytest.fixture
def budget_file(tmp_path: Path) -> Path:
    path = tmp_path / "budget.json"
    path.write_text(json.dumps(CONTENT))
    return path


@pytest.fixture
def adopting() -> Iterator[None]:
    adopt_orphans()
    yield
    adopt_orphans(adopt=False)


def environment(budget_file: Path) -> dict[str, str]:
    return os.environ | {"SHOESTRING_BUDGET": str(budget_file)}


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("", 0),
        ("sys.exit(3)", 3),
        ("raise SystemExit(4)", 4),
        ("raise OSError(28, 'No space left on device')", 1),
        ("if os.fork() == 0: sys.exit(9)\nos.wait()", 0),
        ("import subprocess; subprocess.run(['false'])", 0),
        ("os._exit(0)", None),
        ("os.kill(os.getpid(), 9)", None),
    ],
)
def test_a_reader_leaves_its_code_where_another_process_waits_for_it(
    end: str, code: int | None, budget_file: Path
) -> None:
    readers = BudgetReaders(budget_file)
    subprocess.run([sys.executable, "-c", READ + end], env=environment(budget_file), check=False)
    (mark,) = budget_file.with_name("budget.json.readers").iterdir()
    assert readers.running() == set()
    assert readers.code(int(mark.name)) == code


@pytest.mark.usefixtures("adopting")
@pytest.mark.parametrize(("end", "code"), [("sys.exit(3)", 3), ("os._exit(5)", 5), ("os.abort()", 128 + 6)])
def test_the_code_of_a_reader_whose_parent_has_ended_is_known_in_any_case(
    end: str, code: int, budget_file: Path
) -> None:
    readers = BudgetReaders(budget_file)
    script = READ + "import time\nopen('ready', 'w').close(); time.sleep(1)\n" + end
    shell = subprocess.Popen(
        ["sh", "-c", f'{sys.executable} -c "$SCRIPT" & while [ ! -e ready ]; do sleep 0.05; done'],
        env=environment(budget_file) | {"SCRIPT": script},
        cwd=budget_file.parent,
    )
    shell.wait(60)
    (pid,) = readers.running()
    until_s = time.monotonic() + 60
    while readers.running() and time.monotonic() < until_s:
        time.sleep(0.05)
    assert readers.code(pid) == code
    assert not psutil.pid_exists(pid)


def test_a_reader_that_has_seen_the_end_of_its_budget_is_ending(budget_file: Path) -> None:
    readers = BudgetReaders(budget_file)
    script = (
        READ
        + "print(budget.should_stop, flush=True); input()\nprint(budget.should_stop, flush=True); input()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        env=environment(budget_file),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == "False\n"
    assert (readers.running(), readers.ending()) == ({process.pid}, set())
    budget_file.with_suffix(".new").write_text(json.dumps(CONTENT | {"should_stop": True}))
    budget_file.with_suffix(".new").replace(budget_file)
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "True\n"
    assert readers.ending() == {process.pid}
    process.communicate("\n")
    assert readers.ending() == set() and readers.code(process.pid) == 0


def test_sigterm_does_not_end_a_reader_that_is_exiting_after_the_end_of_its_budget(budget_file: Path) -> None:
    readers = BudgetReaders(budget_file)
    budget_file.write_text(json.dumps(CONTENT | {"should_stop": True}))
    # on_exit(3) calls sleep(2) with the exit code, after Python has taken its handlers away.
    script = (
        "import ctypes\nassert budget.should_stop\nlibc = ctypes.CDLL(None)\nlibc.on_exit(libc.sleep, None)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", READ + script + "print('ends', flush=True)\nsys.exit(2)"],
        env=environment(budget_file),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "ends\n"
    time.sleep(0.7)
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 2
    assert readers.code(process.pid) == 2


def test_no_mark_is_left_where_no_meter_keeps_readers(budget_file: Path) -> None:
    subprocess.run([sys.executable, "-c", READ], env=environment(budget_file), check=True)
    assert [each.name for each in budget_file.parent.iterdir()] == ["budget.json"]


def test_a_later_process_with_the_id_of_a_reader_is_none(budget_file: Path) -> None:
    readers = BudgetReaders(budget_file)
    mark = budget_file.with_name("budget.json.readers") / str(os.getpid())
    mark.touch()
    assert readers.running() == {os.getpid()}
    os.utime(mark, (1e9, 1e9))
    assert readers.running() == set()


@pytest.mark.parametrize(
    ("command", "codes"),
    [
        ("bash run.sh", {143}),
        ("make train", {143, 2}),
        ("/usr/bin/gmake -C sub", {143, 2}),
        ("/usr/bin/python /usr/bin/torchrun --nproc-per-node 2 train.py", {143, 1, 134}),
        ("python -m torch.distributed.run train.py", {143, 1, 134}),
        ("python /usr/bin/accelerate launch train.py", {143, 1, 134}),
        ("python train.py make torchrun", {143}),
    ],
)
def test_the_codes_by_which_programs_end_by_sigterm(command: str, codes: set[int]) -> None:
    assert codes_of_term([["bash"], command.split()]) == codes
