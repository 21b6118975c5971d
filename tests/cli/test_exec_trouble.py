"""`shoestring exec` in trouble: signals, a terminal, processes that are left, a full disk, two at once."""

from __future__ import annotations

import os
import pty
import signal
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from commands import command as exec_command
from exec_runs import COUNT, PYTHON, WAIT, Exec, is_alive, wait_until_gone

from shoestring.core import store_layout

pytestmark = pytest.mark.slow


@pytest.fixture
def on(tmp_path: Path, laptop: Path) -> Iterator[Exec]:
    made = Exec(tmp_path, laptop)
    yield made
    made.close()


def read_terminal(master: int, until: str, seconds: float = 40.0) -> str:
    """Return what a terminal shows, once it shows `until`."""
    text, due_s = "", time.monotonic() + seconds
    while until not in text and time.monotonic() < due_s:
        try:
            text += os.read(master, 4096).decode(errors="replace")
        except OSError:
            break
    return text


def test_what_a_command_leaves_behind_ends_with_it(on: Exec) -> None:
    on.script("wait.py", WAIT)
    left = f"setsid {PYTHON} wait.py < /dev/null > /dev/null 2>&1 & while ! test -s pid; do sleep 0.1; done"
    assert on.run("--budget", "0.05", "--", "bash", "-c", f"{left}; exit 4") == 4
    wait_until_gone(int(on.wait_for("pid")))


ORPHANS = """\
import os, time
from pathlib import Path
stage, parent = os.getppid(), os.getpid()
for _ in range(300):
    if os.fork() == 0:
        os.fork()
        os._exit(0)
    os.wait()
time.sleep(1)
print(sum(len(each.read_text().split()) for each in Path(f"/proc/{stage}/task").glob("*/children")))
"""
CHAINS = """\
import os, time
from pathlib import Path
for each in range(4):
    if os.fork() == 0:
        end_s = time.monotonic() + 60
        while time.monotonic() < end_s:
            time.sleep(0.003)
            if os.fork():
                os._exit(0)
            os.setsid()
            Path(f"seen-{each}").write_text(str(time.monotonic()))
        os._exit(0)
time.sleep(60)
"""


def test_processes_that_end_after_their_parents_are_not_kept_in_the_table(on: Exec) -> None:
    """Thousands of them would make each look at the processes slow, and the end of the command late."""
    assert on.run("--budget", "0.05", "--", PYTHON, on.script("orphans.py", ORPHANS)) == 0
    assert int(on.out) < 10


def test_processes_that_live_3_ms_each_are_ended_inside_the_budget(on: Exec) -> None:
    assert on.short("1", "true") == 0
    usd = f"{on.receipts()[-1].prices[0].usd_per_hour * 7 / 3600:.6f}"
    assert on.run("--budget", usd, "--grace", "0.5", "--", PYTHON, on.script("chains.py", CHAINS)) == 1
    seen = [float((on.folder / f"seen-{each}").read_text() or 0) for each in range(4)]
    ended_s = time.monotonic()
    time.sleep(0.5)
    assert seen == [float((on.folder / f"seen-{each}").read_text() or 0) for each in range(4)]
    assert max(seen) < ended_s
    assert on.receipts()[-1].overrun_usd == 0


def test_a_stopped_command_is_ended_inside_its_budget(on: Exec) -> None:
    assert on.short("1", "true") == 0
    usd = f"{on.receipts()[-1].prices[0].usd_per_hour * 7 / 3600:.6f}"
    process = on.start("--budget", usd, "--grace", "0.5", "--", PYTHON, on.script("wait.py", WAIT))
    began_s, pid = time.monotonic(), int(on.wait_for("pid"))
    os.kill(pid, signal.SIGSTOP)
    assert process.wait(timeout=40) == 1
    assert time.monotonic() - began_s < 20
    wait_until_gone(pid)
    assert on.receipts()[-1].spent_usd <= Decimal(usd)


def test_sigterm_to_exec_ends_the_command_with_a_checkpoint(on: Exec) -> None:
    script = on.script("count.py", COUNT)
    process = on.start("--budget", "0.05", "--grace", "5", "--", PYTHON, script)
    on.wait_for("began")
    time.sleep(1)
    process.terminate()
    _, err = process.communicate(timeout=40)
    assert process.returncode == 1 and "received SIGTERM" in err and "it resumes from its" in err
    assert f"\nresume it: shoestring exec --resume {on.run_id}" in err and "more money" not in err
    assert on.receipts()[-1].cause == "stop-requested"


def test_a_killed_exec_takes_its_command_along_and_its_run_is_settled_and_resumed(on: Exec) -> None:
    script = on.script("count.py", COUNT + "# \n")
    process = on.start("--budget", "0.01", "--grace", "0.5", "--", PYTHON, script)
    on.wait_for("began")
    pointer = "checkpoints/command.json"
    due_s = time.monotonic() + 40
    while not any(key.endswith(pointer) for key in on.store.list(store_layout.RUNS)):
        assert time.monotonic() < due_s
        time.sleep(0.2)
    run_id = next(iter(on.store.list(store_layout.RUNS))).split("/")[1]
    process.kill()
    process.communicate(timeout=60)
    assert [each.status for each in on.receipts()] == ["lost"]
    (on.folder / "began").unlink()
    again = on.start("--resume", run_id, "--", PYTHON, script)
    assert int(on.wait_for("began")) > 0
    again.terminate()
    again.communicate(timeout=40)


def test_of_two_resumes_at_once_one_runs(on: Exec) -> None:
    code = "test -e second || exit 3; until test -e end; do sleep 0.1; done"
    assert on.run("--budget", "0.05", "--", "bash", "-c", code) == 3
    (on.folder / "second").touch()
    both = [on.start("--resume", on.run_id) for _ in range(2)]
    due_s = time.monotonic() + 40
    while all(each.poll() is None for each in both) and time.monotonic() < due_s:
        time.sleep(0.1)
    (on.folder / "end").touch()
    ends = [(each.communicate(timeout=60)[1], each.returncode) for each in both]
    assert sorted(code for _, code in ends)[0] == 0 and sorted(code for _, code in ends)[1] in (1, 2)
    (refusal,) = (err for err, code in ends if code)
    assert "is still running" in refusal or "has just started" in refusal
    assert [each.status for each in on.receipts()] == ["failed", "done"]


def test_a_terminal_belongs_to_the_command_whose_ctrl_c_is_its_own_end(on: Exec) -> None:
    master, slave = pty.openpty()
    code = "import sys\nprint('name?', flush=True)\nprint('hello', input(), sys.stdin.isatty(), flush=True)\n"
    on.script("ask.py", code + "import time\nwhile True: time.sleep(0.1)\n")
    streams = {"stdin": slave, "stdout": slave, "stderr": slave}
    process = on.start_fresh("--budget", "0.05", "--", PYTHON, "ask.py", start_new_session=True, **streams)
    # A session leader without a terminal gets this one when it opens it; exec does not, so give it here.
    os.close(slave)
    assert "name?" in read_terminal(master, "name?")
    os.write(master, b"Ann\n")
    assert "hello Ann True" in read_terminal(master, "hello Ann True")
    process.terminate()
    process.wait(timeout=60)
    os.close(master)


def test_ctrl_z_does_not_suspend_a_command_and_ctrl_c_ends_it(on: Exec) -> None:
    on.script("wait.py", WAIT)
    words = exec_command(*on.arguments("--budget", "0.05", "--grace", "1", "--", PYTHON, "wait.py"))
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(on.folder)
        os.execv(words[0], words)
    command = int(on.wait_for("pid"))
    os.write(master, b"\x1a")
    assert "cannot be suspended" in read_terminal(master, "cannot be suspended")
    assert is_alive(command)
    os.write(master, b"\x03")
    read_terminal(master, "exit code")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    os.close(master)
    assert on.receipts()[-1].exit_code == 130
