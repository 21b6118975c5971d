"""Run commands inside budgets, with the real command line, and time them from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from commands import command, shoestring
from warm_command import PipedProcess, warm_server

from shoestring.backends.folder_store import FolderStore
from shoestring.core import store_layout
from shoestring.core.receipt import Receipt
from shoestring.data.run_records import read_record

MICRO_USD = Decimal("0.000001")
"""The books round up to it."""
START_S = 20.0
GRACE_S = 0.5


def torch_starts_s() -> float:
    """Return the seconds in which a process imports PyTorch now: a busy machine takes many times as long."""
    began_s = time.monotonic()
    subprocess.run([PYTHON, "-c", "import torch"], check=True)
    return time.monotonic() - began_s


@cache
def import_command_line() -> None:
    """Wait once for the imports of the server of commands, which are in no command's time."""
    warm_server().run(["--version"], {**os.environ}, 120)


@dataclass
class Exec:
    """A folder with a store and the scripts of its commands. `wall_s`: of the last command, from outside.
    `is_fresh`: each command has an interpreter of its own.
    """

    folder: Path
    world: Path
    is_fresh: bool = False
    wall_s: float = 0.0
    err: str = ""
    out: str = ""
    _processes: list[subprocess.Popen[str] | PipedProcess] = field(default_factory=list)

    @property
    def store(self) -> FolderStore:
        return FolderStore(self.folder / "store")

    def script(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return name

    def arguments(self, *words: str) -> list[str]:
        cut = words.index("--") if "--" in words else len(words)
        where = ["--world", str(self.world), "--store", str(self.folder / "store")]
        return ["exec", *words[:cut], *where, *words[cut:]]

    def start(self, *words: str, **variables: str) -> PipedProcess:
        """Start a command line, which `--` divides from the command."""
        process = warm_server().start_piped(self.arguments(*words), os.environ | variables, self.folder)
        self._processes.append(process)
        return process

    def start_fresh(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        """Start it in an interpreter of its own, with other streams."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL} | options
        process = subprocess.Popen(command(*self.arguments(*words)), cwd=self.folder, text=True, **pipes)
        self._processes.append(process)
        return process

    def run(self, *words: str) -> int:
        """Run a command line to its end; return its exit code."""
        import_command_line()
        began_s = time.monotonic()
        process = self.start_fresh(*words) if self.is_fresh else self.start(*words)
        self.out, self.err = process.communicate(timeout=120)
        self.wall_s = time.monotonic() - began_s
        return process.wait()

    def short(self, usd: str, *argv: str) -> int:
        """Run a command with a short grace."""
        return self.run("--budget", usd, "--grace", str(GRACE_S), "--", *argv)

    def receipts(self) -> list[Receipt]:
        """The receipts of all attempts, oldest first."""
        keys = [key for key in self.store.list(store_layout.RUNS) if "/receipts/" in key]
        found = [read_record(self.store, key, Receipt) for key in keys]
        return sorted(found, key=lambda each: each.started_at)

    def listed(self) -> Any:
        """Return the output of `shoestring runs --json`."""
        return shoestring("runs", "--world", self.world, "--store", self.folder / "store", "--json").json

    @property
    def run_id(self) -> str:
        return self.receipts()[-1].run_id

    def usd_of(self, seconds: float) -> str:
        """Return the cost of some seconds at the price of the last attempt."""
        return f"{float(self.receipts()[-1].prices[0].usd_per_hour) * seconds / 3600:.6f}"

    def usd_to_resume(self) -> str:
        """The budget of a run whose next attempt may start twice as slowly as the last one did."""
        receipt = self.receipts()[-1]
        return str(receipt.spent_usd + Decimal(self.usd_of(2 * receipt.seconds + 8)))

    def wall_usd(self) -> Decimal:
        """Return the cost of the last command by the clock on the wall."""
        return self.receipts()[-1].prices[0].usd_per_hour * Decimal(str(self.wall_s)) / 3600

    def saved(self, name: str) -> Any:
        """JSON that a script wrote, once it has."""
        return json.loads(self.wait_for(name))

    def wait_for(self, name: str) -> str:
        """Return the text of a file once it has some. Raises TimeoutError."""
        due_s = time.monotonic() + START_S
        while time.monotonic() < due_s:
            path = self.folder / name
            if path.exists() and (text := path.read_text()):
                return text
            time.sleep(0.05)
        raise TimeoutError(name)

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()


def is_alive(pid: int) -> bool:
    """Return whether a process runs: not one that has ended and was not waited for."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_until_gone(pid: int, seconds: float = 15.0) -> None:
    due_s = time.monotonic() + seconds
    while is_alive(pid) and time.monotonic() < due_s:
        time.sleep(0.05)
    assert not is_alive(pid)


PYTHON = sys.executable
WAIT = """\
import os, pathlib, time
pathlib.Path("pid").write_text(str(os.getpid()))
while True: time.sleep(0.05)
"""
IGNORE = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAIT
COUNT = """\
import os, pathlib, time
path = pathlib.Path(os.environ["SHOESTRING_CHECKPOINTS"]) / "deep" / "n.txt"
path.parent.mkdir(exist_ok=True)
number = int(path.read_text()) if path.exists() else 0
pathlib.Path("began").write_text(str(number))
while True:
    number += 1
    time.sleep(0.02 if number % 50 else 1.5)
    new = path.with_suffix(".new")
    new.write_text(str(number))
    new.rename(path)
"""
READER = """\
number=0
while true; do
  number=$((number + 1))
  echo "{\\"samples\\": $number, \\"total\\": 1000, \\"loss\\": 0.25}" > "$SHOESTRING_PROGRESS.new"
  mv "$SHOESTRING_PROGRESS.new" "$SHOESTRING_PROGRESS"
  cp "$SHOESTRING_BUDGET" budget.new && mv budget.new budget.json
  if grep -q '"should_stop": true' budget.json; then exit 0; fi
  sleep 0.1
done
"""
