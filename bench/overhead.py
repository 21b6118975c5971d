"""Claims: ledger, meter and guard take under 1% of training time; a route step takes under 1 s.

It runs flights once and measures three things: the CPU time of the training stage's supervisor (heartbeats,
ledger, watching) as a share of the stage's time; the guard's time per training step; and the time of each
router, from its process's first import to its end.

python bench/overhead.py
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from statistics import median

import psutil
from cli import process_tree, start, wait_for
from machine import describe

from shoestring.spending.guard import Guard
from shoestring.spending.meter import Meter

GUARD_CALLS = 100_000


def guard_step_s() -> float:
    """Return the seconds of one `record_step` and one `may_step`."""
    guard = Guard(Meter(Decimal("0.08"), 0.0, Decimal("1000"), None), step_s=0.01, exit_s=1.0)
    began_s = time.perf_counter()
    for number in range(GUARD_CALLS):
        guard.record_step(0.01)
        guard.may_step(number * 0.01)
    return (time.perf_counter() - began_s) / GUARD_CALLS


def watch_supervisors(pid: int, cpu_s: dict[str, list[float]], over: threading.Event) -> None:
    """Sample the CPU seconds of each child's supervisor, by stage. Its imports are over before the first
    sample.
    """
    while not over.wait(0.2):
        for process in process_tree(pid):
            try:
                line = process.cmdline()
                if "shoestring.runtime.supervisor.child" not in line:
                    continue
                stage = json.loads((Path(line[-1]) / "job.json").read_text())["stage"]
                supervisor = process.parent()
                if supervisor is not None:
                    times = supervisor.cpu_times()
                    cpu_s.setdefault(stage, []).append(times.user + times.system)
            except (psutil.NoSuchProcess, OSError, ValueError):
                continue


def main() -> None:
    print(describe())
    cpu_s: dict[str, list[float]] = {}
    over = threading.Event()
    with tempfile.TemporaryDirectory() as folder:
        store, out = Path(folder, "store"), Path(folder, "out")
        began_s = time.monotonic()
        run = start("run", "flights", "--store", str(store), "--out", str(out), "--json")
        watcher = threading.Thread(target=watch_supervisors, args=(run.pid, cpu_s, over))
        watcher.start()
        ran = wait_for(run, began_s)
        over.set()
        watcher.join()
        assert ran.code == 0, ran.stderr
        train = json.loads((out / "receipts" / "train-1.json").read_text())
        model = json.loads((out / "model" / "model.json").read_text())
        routers = [json.loads(path.read_text()) for path in store.glob("runs/*/overhead/1/route-*.json")]
    supervisor_s = cpu_s["train"][-1] - cpu_s["train"][0]
    steps = model["samples"] / model["settings"]["batch_rows"]
    guard_s = guard_step_s() * steps
    share = (supervisor_s + guard_s) / train["seconds"]
    print(
        f"train {train['seconds']:.1f} s: supervisor {supervisor_s:.2f} s of CPU, "
        f"guard {guard_s * 1e3:.1f} ms over {steps:.0f} steps: {share:.2%}"
    )
    seconds = sorted(seconds_between(router["started_at"], router["finished_at"]) for router in routers)
    each = ", ".join(f"{second:.2f}" for second in seconds)
    print(f"route step: {each} s; median {median(seconds):.2f} s, with the process's imports")


def seconds_between(first: str, last: str) -> float:
    return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()


if __name__ == "__main__":
    main()
