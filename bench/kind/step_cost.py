"""Claims: on Argo, route and exit steps take at most 25% of the dollars of runs of flights, and their
processes 1.5 CPU-seconds each on average. The first step of a run takes more: it looks at the data.

python bench/kind/step_cost.py [--runs 2]

On the cluster of `make cluster`, whose nodes are containers of this machine: their processes are seen from
here. Each run has a name of its own, so that nothing is cached. The last column is what the same pods cost at
the highest price of a whole node without GPUs.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from statistics import mean
from typing import Any

import psutil
import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "kind"))

from cluster_engine import CLUSTER, cluster_engine
from engine_scenarios.argo_engine import ArgoEngine
from engine_scenarios.engine import StartedRun
from engine_scenarios.waiting import wait_for
from machine import describe
from pod_times import container_end, lived_s
from world_changes import read_world_file

from shoestring.core import store_layout
from shoestring.data.recipe_files import find_recipe
from shoestring.data.run_records import read_each
from shoestring.reporting.summary import RunSummary
from shoestring.routing.placement import ROUTE, SETTLE
from shoestring.runtime.records.overhead import OverheadTime
from shoestring.spending.meter import cost_usd

MAX_SHARE, MEAN_CPU_S = Decimal("0.25"), 1.5
LOOK_S = 0.05
NEW_S = 1.0
"""A process of this age at most may be one that has not yet become the command that it is going to be."""


@contextmanager
def watched_steps() -> Iterator[dict[str, float]]:
    """Yield the CPU seconds of the process of each route and exit step, up to the last look at it."""
    cpu_s: dict[str, float] = {}
    stopped = threading.Event()

    def watch() -> None:
        known: dict[int, tuple[psutil.Process, str]] = {}
        while not stopped.wait(LOOK_S):
            running = set(psutil.pids())
            known = {pid: entry for pid, entry in known.items() if pid in running}
            for pid in running:
                with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                    process, step = known.get(pid) or (psutil.Process(pid), "?")
                    if step == "?":
                        step = step_of(process)
                    known[pid] = process, step
                    if step not in ("", "?"):
                        times = process.cpu_times()
                        cpu_s[step] = times.user + times.system

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield cpu_s
    finally:
        stopped.set()
        thread.join()


def step_of(process: psutil.Process) -> str:
    """Return the name of the overhead record of a step's process; empty: it is another process; "?": it is
    too new to know.
    """
    words = process.cmdline()
    called = [at for at, word in enumerate(words[:3]) if Path(word).name == "shoestring"]
    if called and Path(words[0]).name.startswith("python"):
        options = words[called[0] + 1 :]
        if options[:1] == [SETTLE]:
            return SETTLE
        if options[:1] == ["route"]:
            return ROUTE + json.loads(options[options.index("--needs") + 1])["needs"][0]["stage"]
    is_new = time.time() - process.create_time() < NEW_S
    return "?" if is_new else ""


def steps_of(engine: ArgoEngine, run_id: str) -> list[OverheadTime]:
    """Return the overhead records of a run's first start, in the order of their beginning."""
    keys = [*engine.store.list(store_layout.overheads(run_id, 1))]
    return sorted(read_each(engine.store, keys, OverheadTime), key=lambda step: step.started_at)


def whole_usd_per_hour() -> Decimal:
    """Return the highest price of a whole node that has no GPUs."""
    rows = yaml.safe_load(read_world_file(CLUSTER, "prices"))["prices"]
    return max(Decimal(row["usd_per_hour"]) for row in rows if "gpu" not in row["pool"])


def lifetime_s(engine: ArgoEngine, run: StartedRun, step: str) -> float:
    """Return the seconds that the pod of a step took of its node, once it has ended."""

    def find() -> float | None:
        (pod,) = engine.pods(run, step)
        return lived_s(pod) if container_end(pod) else None

    return wait_for(find, f"the end of the pod of {step}")


def print_run(
    summary: RunSummary, steps: list[OverheadTime], cpu_s: dict[str, float], pods_s: dict[str, float]
) -> None:
    whole_usd, totals = whole_usd_per_hour(), [0.0, 0.0, Decimal(0), Decimal(0)]
    print(f"{summary.run_id}\n{'step':18} {'pod s':>6} {'CPU s':>6}  {'pool':14} {'$':>9} {'whole $':>9}")
    for step in steps:
        pod_s = pods_s[step.name]
        cells = [pod_s, cpu_s[step.name], cost_usd(step.usd_per_hour, pod_s), cost_usd(whole_usd, pod_s)]
        totals = [total + cell for total, cell in zip(totals, cells, strict=True)]
        print_row(step.name, cells, step.pool or "not known")
    print_row("all", totals, "")
    share = summary.overhead_usd / summary.spent_usd
    print(f"the books: ${summary.overhead_usd} of ${summary.spent_usd}, {share:.1%}", flush=True)


def print_row(name: str, cells: list[Any], pool: str) -> None:
    pod_s, cpu_s, dollars, whole = cells
    print(f"{name:18} {pod_s:6.1f} {cpu_s:6.2f}  {pool:14} {dollars:9.6f} {whole:9.6f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=Path(__file__).name)
    parser.add_argument("--runs", type=int, default=2)
    args = parser.parse_args()
    print(describe())
    runs, took_s = list[RunSummary](), list[float]()
    flights = find_recipe("flights").model_dump(mode="json", exclude_defaults=True)
    with cluster_engine() as engine:
        for _ in range(args.runs):
            (recipe := engine.scratch / "flights.yaml").write_text(
                yaml.safe_dump(flights | {"name": f"flights-{secrets.token_hex(4)}"})
            )
            with watched_steps() as cpu_s:
                run = engine.run(str(recipe))
                summary = run.wait().done()
            steps = steps_of(engine, summary.run_id)
            print_run(
                summary, steps, cpu_s, {step.name: lifetime_s(engine, run, step.name) for step in steps}
            )
            runs.append(summary)
            took_s += cpu_s.values()
    share = sum(each.overhead_usd for each in runs) / sum(each.spent_usd for each in runs)
    print(f"routing and settling: {share:.1%} of the dollars (claimed: {MAX_SHARE:.0%} at most)")
    print(
        f"a step's process: {mean(took_s):.2f} CPU-seconds, at most {max(took_s):.2f} (claimed: {MEAN_CPU_S})"
    )
    raise SystemExit(share > MAX_SHARE or mean(took_s) > MEAN_CPU_S)


if __name__ == "__main__":
    main()
