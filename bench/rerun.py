"""Claim: a second run of unchanged data, code and recipe trains nothing, evaluates nothing and pays no stage.

Flights runs twice in one store. The CPU clock of the whole process tree is read every 50 ms and divided at
the ends of the stages, so a stage's share holds its router, its pod and the engine's part, and that of ingest
also admission and the compiler. The rest is the exit step. What is left of a second run is the start of these
processes.

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
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import psutil
from cli import PLANES, process_tree, start, wait_for
from machine import describe

STAGES = ("ingest", "preprocess", "train", "evaluate")
SAMPLE_S = 0.05
REST = "the rest"


@dataclass
class CpuClock:
    """The CPU seconds of a process and of all that it started, by the time of day.

    A process that ended counts in its parent.
    """

    moments: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)

    def watch(self, pid: int, over: threading.Event) -> None:
        while not over.wait(SAMPLE_S):
            total = 0.0
            for process in process_tree(pid):
                try:
                    times = process.cpu_times()
                except psutil.NoSuchProcess:
                    continue
                total += times.user + times.system + times.children_user + times.children_system
            # A process between its end and its parent's wait is missing for a moment.
            self.moments.append(time.time())
            self.cpu_s.append(max(total, self.cpu_s[-1] if self.cpu_s else 0.0))

    def until(self, moment: float) -> float:
        return self.cpu_s[min(bisect_left(self.moments, moment), len(self.cpu_s) - 1)]


def measured(store: Path, out: Path, recipe: str) -> tuple[dict[str, float], dict[str, bool], str]:
    """Run a recipe; return the CPU seconds by stage, whether each was cached, and the dollars of the run."""
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
    return found, cached, ran.summary["spent_usd"]


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
    (first, _, first_usd), (second, cached, second_usd) = runs
    print(f"{'':12} {'first':>8} {'second':>8}  CPU-seconds")
    for stage in (*STAGES, REST):
        note = "cached" if cached.get(stage) else ""
        print(f"{stage:12} {first[stage]:8.2f} {second[stage]:8.2f}  {note}")
    totals = sum(first.values()), sum(second.values())
    print(f"{'sum':12} {totals[0]:8.2f} {totals[1]:8.2f}  {totals[1] / totals[0]:.0%} of the first")
    print(f"{'dollars':12} {first_usd} {second_usd}")


if __name__ == "__main__":
    main()
