"""Claim: the flights pipeline takes at most 3 minutes and 2 GB on 2 cores; a second run pays $0 for ingest
and preprocess.

python bench/run.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from cli import CommandResult, shoestring
from machine import describe


def row(name: str, ran: CommandResult) -> str:
    """Return a line with the time, memory and cost of a run and of its stages."""
    summary = ran.summary
    stages = "  ".join(
        f"{stage['name']} {stage['seconds']:.2f} s ${stage['spent_usd']}"
        + (" cached" if stage["cache_hit"] else "")
        for stage in summary["stages"]
    )
    money, memory = f"${summary['spent_usd']} of ${summary['budget_usd']}", f"{ran.peak_bytes / 1e9:4.2f} GB"
    return f"{name:7} {summary['status']:6} {ran.seconds:6.1f} s  {memory}  {money}  {stages}"


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
