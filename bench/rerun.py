"""Claim: a second run of unchanged data, code and recipe trains nothing, evaluates nothing and pays no stage.

Flights runs twice in one store. The CPU clock of the whole process tree is read every 50 ms and divided at
the ends of the stages, so a stage's share holds its router, its pod and the engine's part, and that of ingest
also admission and the compiler. The rest is the exit step. A second table divides the same seconds by
process: what a process used within the last 50 ms before its end is not seen there.

python bench/rerun.py [--quick]

--quick: a table of 3,322 rows instead of flights.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from bisect import bisect_left
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import psutil
from cli import PLANES, process_tree, start, wait_for
from machine import describe

from shoestring.runtime.supervisor.child_process import STAGE_PROCESS

STAGES = ("ingest", "preprocess", "train", "evaluate")
SAMPLE_S = 0.05
LAUNCHER, SERVER, STEP = "launcher", "server of the steps", "steps (routers, supervisors)"
STAGE, OTHER = "stages' own processes", "others"
KINDS = (LAUNCHER, SERVER, STEP, STAGE, OTHER)
REST = "the rest"


@dataclass
class CpuClock:
    """The CPU seconds of a process and of all that it started, by the time of day.

    A process that ended counts in its parent.
    """

    moments: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    processes: dict[tuple[int, float], tuple[str, float]] = field(default_factory=dict)

    def watch(self, pid: int, over: threading.Event) -> None:
        while not over.wait(SAMPLE_S):
            total = 0.0
            for process in process_tree(pid):
                try:
                    times = process.cpu_times()
                except psutil.NoSuchProcess:
                    continue
                total += times.user + times.system + times.children_user + times.children_system
                self._note(process, pid, times.user + times.system)
            # A process between its end and its parent's wait is missing for a moment.
            self.moments.append(time.time())
            self.cpu_s.append(max(total, self.cpu_s[-1] if self.cpu_s else 0.0))

    def _note(self, process: psutil.Process, launcher: int, cpu_s: float) -> None:
        key = (process.pid, process.create_time())
        with suppress(psutil.Error):
            kind = self.processes[key][0] if key in self.processes else kind_of(process, launcher)
            self.processes[key] = (kind, cpu_s)

    def by_process(self) -> dict[str, float]:
        """Return the CPU seconds of each kind of process."""
        found = dict.fromkeys(KINDS, 0.0)
        for kind, cpu_s in self.processes.values():
            found[kind] += cpu_s
        return found

    def until(self, moment: float) -> float:
        return self.cpu_s[min(bisect_left(self.moments, moment), len(self.cpu_s) - 1)]


def kind_of(process: psutil.Process, launcher: int) -> str:
    """Return what a process is, by its words and by the process above it."""
    words, above = process.cmdline(), process.ppid()
    if process.pid == launcher:
        return LAUNCHER
    if STAGE_PROCESS in words:
        return STAGE
    if any("step_server" in word for word in words):
        return SERVER if above == launcher else STEP
    return STEP if any("executor_main" in word for word in words) else OTHER


@dataclass(frozen=True)
class Measured:
    """The CPU seconds of a run by stage and by kind of process, which stages were cached, and its dollars."""

    stages: dict[str, float]
    processes: dict[str, float]
    cached: dict[str, bool]
    usd: Decimal
    wall_s: float


def measured(store: Path, out: Path, recipe: str) -> Measured:
    """Run a recipe."""
    clock, over = CpuClock(), threading.Event()
    run = start("run", recipe, "--store", str(store), "--out", str(out), "--json")
    watcher = threading.Thread(target=clock.watch, args=(run.pid, over))
    watcher.start()
    ran = wait_for(run, time.monotonic())
    over.set()
    watcher.join()
    assert ran.code == 0, ran.stderr
    found, cached, before = dict[str, float](), dict[str, bool](), 0.0
    for stage in STAGES:
        receipt = json.loads((out / "receipts" / f"{stage}-1.json").read_text())
        ended = clock.until(datetime.fromisoformat(receipt["finished_at"]).timestamp())
        found[stage], before, cached[stage] = ended - before, ended, receipt["cache_hit"]
    found[REST] = clock.cpu_s[-1] - before
    return Measured(found, clock.by_process(), cached, Decimal(ran.summary["spent_usd"]), ran.seconds)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="a small table, in about a minute")
    quick = parser.parse_args().quick
    print(describe())
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        (top / "planes.yaml").write_text(PLANES)
        recipe = str(top / "planes.yaml") if quick else "flights"
        runs = [measured(top / "store", top / name, recipe) for name in ("first", "second")]
    first, second = runs
    print(f"{'':28} {'first':>8} {'second':>8}  CPU-seconds")
    for stage in (*STAGES, REST):
        note = "cached" if second.cached.get(stage) else ""
        print(f"{stage:28} {first.stages[stage]:8.2f} {second.stages[stage]:8.2f}  {note}")
    totals = sum(first.stages.values()), sum(second.stages.values())
    print(f"{'sum':28} {totals[0]:8.2f} {totals[1]:8.2f}  {totals[1] / totals[0]:.0%} of the first")
    for kind in KINDS:
        print(f"{kind:28} {first.processes[kind]:8.2f} {second.processes[kind]:8.2f}")
    print(f"{'seconds':28} {first.wall_s:8.2f} {second.wall_s:8.2f}")
    print(f"{'dollars':28} {first.usd} {second.usd}  {second.usd / first.usd:.1%} of the first")


if __name__ == "__main__":
    main()
