"""A command that stops or kills those who watch it is ended inside its budget, and settled."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from exec_runs import MICRO_USD, PYTHON, Exec, is_alive, wait_until_gone

from shoestring.data.run_records import open_run
from shoestring.runtime.open_world import open_world
from shoestring.runtime.records.world_ledger import world_ledger

pytestmark = pytest.mark.slow
SECONDS = 7
# It finds its supervisors as any process can, and then does to them what its words say.
ATTACK = """\
import os, pathlib, signal, sys, time
from pathlib import Path

def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

stage = os.getppid()
pids = {"stage": stage, "exec": parent_of(stage)}
pids["watcher"] = int(os.environ["SHOESTRING_LAUNCHER"].split(".")[-2])
Path("pid").write_text(f"{os.getpid()} {pids['watcher']}")
time.sleep(0.3)
for word in sys.argv[1:]:
    whom, number = word.split(":")
    os.kill(pids[whom], signal.Signals[number])
while True: time.sleep(0.05)
"""


@pytest.fixture
def on(tmp_path: Path, laptop: Path) -> Iterator[Exec]:
    made = Exec(tmp_path, laptop)
    yield made
    made.close()


def budget_of(on: Exec, seconds: int) -> str:
    """Return the dollars of some seconds, by the price of a first command."""
    assert on.short("1", "true") == 0
    return f"{on.receipts()[-1].prices[0].usd_per_hour * seconds / 3600:.6f}"


@pytest.mark.parametrize(
    ("attacks", "code", "ends_early"),
    [
        ("exec:SIGSTOP", 1, False),
        ("stage:SIGSTOP exec:SIGSTOP", 1, False),
        ("watcher:SIGSTOP exec:SIGSTOP", 1, False),
        ("watcher:SIGKILL exec:SIGSTOP", 1, False),
        ("stage:SIGSTOP exec:SIGKILL", -9, True),
        ("exec:SIGKILL", -9, True),
        ("stage:SIGKILL exec:SIGKILL", -9, True),
        ("stage:SIGKILL exec:SIGSTOP", 1, True),
        ("watcher:SIGSTOP exec:SIGKILL", -9, True),
        ("watcher:SIGKILL", 1, True),
    ],
)
def test_a_command_that_attacks_its_supervisors_is_ended_and_settled(
    attacks: str, code: int, ends_early: bool, on: Exec
) -> None:
    """The streams of `exec` end once its command is settled, also where `exec` was killed."""
    budget = budget_of(on, SECONDS)
    on.script("attack.py", ATTACK)
    assert on.short(budget, PYTHON, "attack.py", *attacks.split()) == code
    pid, watcher = map(int, on.wait_for("pid").split())
    assert not is_alive(pid)
    wait_until_gone(watcher)
    receipt = on.receipts()[-1]
    run = open_run(on.store, receipt.run_id)
    state = world_ledger(open_world(str(on.world), on.folder / "store")).state(run.start.account)
    assert state.closed and not state.reservations
    assert receipt.status != "done" and receipt.overrun_usd == 0
    share = receipt.spent_usd / run.start.budget_usd
    assert (0 < share < Decimal("0.8")) if ends_early else (Decimal("0.5") < share <= 1)
    assert receipt.spent_usd < on.wall_usd() + MICRO_USD


def test_exec_has_neither_a_thread_nor_torch_when_it_starts_its_watcher() -> None:
    code = (
        "import sys, threading, shoestring.cli.running.exec_; "
        "print(threading.active_count(), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "False"]


def test_a_watcher_takes_little_and_ends_with_its_command(on: Exec) -> None:
    wait = "import os, time; print(os.environ['SHOESTRING_LAUNCHER'], flush=True); time.sleep(1)"
    on.script("name.py", wait)
    process = on.start("--budget", "0.05", "--", PYTHON, "name.py")
    pid = int(process.stdout.readline().split(".")[-2])
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    process.communicate(timeout=60)
    assert int(stat[3]) == pid != process.pid
    assert not is_alive(pid)
