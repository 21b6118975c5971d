"""Claim: deciding takes less than 20 ms, on a laptop's world and on a cluster's.

python bench/decide.py [--repeats 50]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Any

from machine import describe

from shoestring.local import FilePrices, WorldFile
from shoestring.model import Format, FormatSpeed, Need, record
from shoestring.pricing.worlds import cloud_world, laptop_world
from shoestring.routing.decide import decide
from shoestring.routing.decision import Question
from shoestring.routing.replay import replay

ROWS = 336_776
NEEDS = (
    Need(stage="ingest", op_per_row=2e3, writes_bytes_per_row=120),
    Need(stage="preprocess", op_per_row=4e3, parallel_fraction=0.3, reads="scan", writes_bytes_per_row=60),
    Need(stage="train", elastic=True, op_per_row=2e4, parallel_fraction=0.7, reads="shuffled", passes=12, min_passes=1, checkpoint_s=0.2),
    Need(stage="evaluate", op_per_row=4e3, parallel_fraction=0.5, reads="scan"),
)
NS_PER_ROW = {Format.PARQUET: (900, 300), Format.ARROW: (120, 60), Format.PACKED: (100, 30)}


def speed(name: Format) -> FormatSpeed:
    write_ns, scan_ns = NS_PER_ROW[name]
    ns = {"write_ns_per_row": write_ns, "scan_ns_per_row": scan_ns, "take_ns_per_row": 40}
    rates = dict.fromkeys(("write_bytes_per_s", "scan_bytes_per_s", "take_bytes_per_s"), 10**9)
    return FormatSpeed.model_validate({"format": name, "size_ratio": 1.0} | ns | rates)


def question(world: dict[str, Any], deadline_s: float | None) -> Question:
    file = WorldFile.model_validate(world)
    return Question(
        run_id="bench",
        stage="ingest",
        seed=0,
        asked_at=datetime(2026, 11, 1, tzinfo=UTC),
        needs=NEEDS,
        rows=ROWS,
        row_bytes=0,
        budget_usd=Decimal(1),
        deadline_left_s=deadline_s,
        pools=file.pools,
        quotes=FilePrices(file).book().quotes,
        tariffs=file.tariffs,
        speeds=tuple(speed(name) for name in NS_PER_ROW),
    )


def median_ms(work: Callable[[], object], repeats: int) -> float:
    taken = []
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        taken.append((time.perf_counter() - begun) * 1e3)
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=50)
    repeats = parser.parse_args().repeats
    worlds = {"laptop, 2 cores": laptop_world(2, 8.0, "store", date(2026, 11, 1)), "cloud": cloud_world("store")}
    print(describe())
    print(f"{'world':<16} {'deadline':>8} {'pools':>5} {'offers':>6} {'decide ms':>9} {'record ms':>9} {'replay ms':>9} {'KiB':>5}")
    for name, world in worlds.items():
        for deadline_s in (None, 3600.0):
            asked = question(world, deadline_s)
            decision = decide(asked)
            data = record(decision)
            times = (
                median_ms(partial(decide, asked), repeats),
                median_ms(partial(record, decision), repeats),
                median_ms(partial(replay, data), repeats),
            )
            shown = "  ".join(f"{each:8.1f}" for each in times)
            offers = decision.candidates.first(len(NEEDS))
            limit = "-" if deadline_s is None else f"{deadline_s:.0f} s"
            print(f"{name:<16} {limit:>8} {len(asked.pools):>5} {offers:>6}  {shown} {len(data) / 1024:>5.0f}")


if __name__ == "__main__":
    main()
