"""Claim: `shoestring exec` of a command takes at most 3 s longer than the command itself.

`true` runs bare and inside a budget, in turn, each in a process of its own. The seconds on the wall and the
CPU seconds of both are printed, with the dollars that the ledger booked for each and those by the clock on
the wall.

python bench/exec_overhead.py [--runs 20] [--quick]

--quick: 5 runs; 15 seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from machine import describe

MOST_S = 3.0


def timed(argv: Sequence[str]) -> tuple[float, float, str]:
    """Run a command; return its seconds on the wall, its CPU seconds, and what it printed."""
    before, began_s = os.times(), time.monotonic()
    printed = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    wall_s, after = time.monotonic() - began_s, os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return wall_s, cpu_s, printed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    print(describe())
    with tempfile.TemporaryDirectory() as folder:
        shoestring = [sys.executable, "-m", "shoestring"]
        world, store = Path(folder, "world.yaml"), Path(folder, "store")
        timed([*shoestring, "world", "init", "--out", str(world), "--store", str(store)])
        where = ["--world", str(world), "--store", str(store)]
        inside = [*shoestring, "exec", "--budget", "0.05", "--json", *where, "--", "true"]
        timed(inside)
        rows = [(timed(["true"]), timed(inside)) for _ in range(5 if asked.quick else asked.runs)]
    for name, index in (("wall", 0), ("cpu", 1)):
        bare, budgeted = (statistics.median(row[which][index] for row in rows) for which in (0, 1))
        print(f"{name}: bare {bare:.3f} s, with a budget {budgeted:.3f} s")
    shares = []
    for _, (wall_s, _, printed) in rows:
        receipt = json.loads(printed)
        price = float(receipt["prices"][0]["usd_per_hour"])
        shares.append(float(receipt["spent_usd"]) / (price * wall_s / 3600))
    print(f"dollars booked over dollars by the clock on the wall: {statistics.median(shares):.2f}")
    more_s = statistics.median(row[1][0] - row[0][0] for row in rows)
    print(f"{more_s:.2f} s longer: the claim {'holds' if more_s <= MOST_S else 'does not hold'}")


if __name__ == "__main__":
    main()
