"""Claim: an append costs the same at entry 10,000 as at entry 1,000, and a crowd at one account slows down without losing anything.

python bench/ledger.py [--seconds 3] [--folder DIR]
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from statistics import median

from machine import describe

from shoestring.local import FolderStore, WallClock
from shoestring.spending.ledger import Ledger
from shoestring.spending.verify import verify

CENT = Decimal("0.01")
LENGTHS = (1_000, 10_000)
SAMPLE = 400


def append_for(root: Path, account: str, writer: int, seconds: float, gate: multiprocessing.synchronize.Barrier) -> None:
    ledger = Ledger(FolderStore(root), WallClock())
    ledger.state(account)
    gate.wait()
    until_s, number = time.monotonic() + seconds, 0
    while time.monotonic() < until_s:
        number += 1
        ledger.reserve(account, f"work-{writer}-{number}", "work", number, CENT)


def appends_per_second(root: Path, accounts: list[str], seconds: float) -> float:
    """One process an item of `accounts`, all at once."""
    spawn = multiprocessing.get_context("spawn")
    gate = spawn.Barrier(len(accounts) + 1)
    ledger = Ledger(FolderStore(root), WallClock())
    for account in set(accounts):
        ledger.open(account, Decimal(10**6))
    writers = [spawn.Process(target=append_for, args=(root, name, at, seconds, gate)) for at, name in enumerate(accounts)]
    for process in writers:
        process.start()
    gate.wait()
    began_s = time.monotonic()
    for process in writers:
        process.join()
    return sum(ledger.state(account).entries - 1 for account in set(accounts)) / (time.monotonic() - began_s)


def timed_s(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def costs_at(root: Path) -> list[tuple[int, float, float]]:
    """At each length: milliseconds of an append by a writer that knows the account, and seconds until a new one knows it.

    The lengths take turns, so that whatever else the machine does slows both.
    """
    ledger = Ledger(FolderStore(root), WallClock())
    for length in LENGTHS:
        ledger.open(f"long-{length}", Decimal(10**6))
        for number in range(2, length + 1):
            ledger.reserve(f"long-{length}", f"work-{number}", "work", 1, CENT)
    appends_s: dict[int, list[float]] = {length: [] for length in LENGTHS}
    for number in range(SAMPLE):
        for length in LENGTHS:
            appends_s[length].append(timed_s(partial(ledger.reserve, f"long-{length}", f"more-{number}", "work", 1, CENT)))
    looks_s = {
        length: min(timed_s(partial(Ledger(FolderStore(root), WallClock()).state, f"long-{length}")) for _ in range(3))
        for length in LENGTHS
    }
    return [(length, median(appends_s[length]) * 1e3, looks_s[length]) for length in LENGTHS]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--folder", type=Path, help="on the disk to be measured; default: the temporary folder's")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        root = Path(folder)
        print(describe())
        print(f"{'writers':>32}  appends/s")
        for label, accounts in (
            ("1", ["one"]),
            ("8 on 8 accounts", [f"own-{writer}" for writer in range(8)]),
            ("8 on one account", ["shared"] * 8),
        ):
            print(f"{label:>32}  {appends_per_second(root, accounts, asked.seconds):9.0f}")
        print(f"{'entry':>32}  append ms   first look s")
        for length, append_ms, look_s in costs_at(root):
            print(f"{length:>32,}  {append_ms:9.2f}   {look_s:12.2f}")
        began_s = time.perf_counter()
        found = verify(FolderStore(root), {})
        print(f"verify: {found.entries:,} entries in {time.perf_counter() - began_s:.1f} s, all hold")


if __name__ == "__main__":
    main()
