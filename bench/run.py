"""Claim: flights, from raw files to an evaluated model, within 3 minutes and 2 GB on 2 cores; again: ingest and preprocess at $0.

python bench/run.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from cli import CommandResult, shoestring
from machine import describe


def row(name: str, ran: CommandResult) -> str:
    summary = ran.summary
    stages = "  ".join(
        f"{stage['name']} {stage['seconds']:.2f} s ${stage['spent_usd']}{' cached' if stage['cache_hit'] else ''}"
        for stage in summary["stages"]
    )
    money = f"${summary['spent_usd']} of ${summary['budget_usd']}"
    return f"{name:7} {summary['status']:6} {ran.seconds:6.1f} s  {ran.peak_bytes / 1e9:4.2f} GB  {money}  {stages}"


def main() -> None:
    print(describe())
    with tempfile.TemporaryDirectory() as folder:
        for name in ("first", "second"):
            ran = shoestring(
                "run", "flights", "--store", f"{folder}/store", "--out", f"{folder}/{name}", "--json"
            )
            print(row(name, ran), flush=True)
            print(f"        quality {ran.summary['quality']}")
        assert Path(folder, "second", "report.html").stat().st_size > 0


if __name__ == "__main__":
    main()
