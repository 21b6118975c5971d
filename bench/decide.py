"""Claim: a decision among 10,000 targets x 6 formats x 5 stages takes less than 50 ms, and writing it less
than 1 s. Where no plan fits, it takes at most 1.15 times as long as with a budget that fits.

python bench/decide.py [--repeats 20]

The 10,000 targets are 250 kinds of machine in 20 regions on 2 markets. Each region has its own preemption
rate, and egress between regions has a price. The six formats are three formats at two speeds each. Each stage
reads any format and the first three write any: a stage that reads and writes has 360,000 offers. The bench
reports CPU time next to wall time, because the two differ on a busy machine.
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

import numpy as np
from machine import describe

from shoestring.backends.local import FilePrices, WorldFile
from shoestring.config.tariffs import Tariffs
from shoestring.core.record import record_bytes
from shoestring.core.types import Format, Market, MarketTerms, Need, Pool, Quote
from shoestring.pricing.format_speeds import FormatSpeed
from shoestring.pricing.templates import cloud_world, laptop_world
from shoestring.routing.analysis.replay import replay
from shoestring.routing.decide import decide
from shoestring.routing.question import Question

ROWS = 336_776
NEEDS = (
    Need(stage="ingest", cpu_us_per_row=2.0, writes_bytes_per_row=120),
    Need(
        stage="preprocess", cpu_us_per_row=4.0, parallel_fraction=0.3, reads="scan", writes_bytes_per_row=60
    ),
    Need(
        stage="train",
        elastic=True,
        cpu_us_per_row=20.0,
        parallel_fraction=0.7,
        reads="shuffled",
        passes=12,
        min_passes=1,
        checkpoint_s=0.2,
    ),
    Need(stage="evaluate", cpu_us_per_row=4.0, parallel_fraction=0.5, reads="scan"),
)
LARGE_NEEDS = (
    *NEEDS[:2],
    Need(
        stage="features", cpu_us_per_row=20.0, parallel_fraction=0.9, reads="scan", writes_bytes_per_row=200
    ),
    Need(
        stage="train",
        cpu_us_per_row=50.0,
        parallel_fraction=0.9,
        reads="shuffled",
        passes=3,
        gpu="may",
        gpu_flop_per_row=1e9,
        checkpoint_s=20,
    ),
    Need(stage="evaluate", cpu_us_per_row=4.0, parallel_fraction=0.5, reads="scan"),
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


def many_pools() -> tuple[tuple[Pool, ...], tuple[Quote, ...]]:
    """Return 250 kinds of machine (8 families x 25 sizes, and 50 with GPUs) in 20 regions, with their
    prices.
    """
    rng = np.random.default_rng(0)
    kinds: list[dict[str, Any]] = [
        {
            "cores": 4 * (size + 1),
            "memory_gb": 4.0 * (size + 1) * (2 + family),
            "core_speed": 0.8 + 0.15 * family,
        }
        for family in range(8)
        for size in range(25)
    ]
    for number in range(50):
        gpus = {
            "gpu": f"gpu-{number % 10}",
            "gpu_count": 1 + number // 10,
            "gpu_memory_gb": 16.0 + 8 * (number % 10),
        }
        kinds.append({"cores": 16, "memory_gb": 128.0, "gpu_tflops": 65.0 * (1 + number % 10)} | gpus)
    pools, quotes = [], []
    for region in range(20):
        for number, kind in enumerate(kinds):
            name, rate = f"r{region:02d}-m{number:03d}", float(rng.uniform(0.01, 0.2))
            markets = {Market.ON_DEMAND: MarketTerms(), Market.SPOT: MarketTerms(preemptions_per_hour=rate)}
            pools.append(Pool(name=name, region=f"r{region:02d}", startup_s=60.0, markets=markets, **kind))
            hourly = (
                0.03 * kind["cores"] * kind.get("core_speed", 1.0) + 0.01 * kind.get("gpu_tflops", 0.0)
            ) * rng.uniform(0.8, 1.3)
            for market, share in ((Market.ON_DEMAND, 1.0), (Market.SPOT, rng.uniform(0.2, 0.7))):
                usd = Decimal(f"{hourly * share:.6f}")
                quotes.append(
                    Quote(pool=name, market=market, usd_per_hour=usd, as_of=date(2026, 11, 1), source="drawn")
                )
    return tuple(pools), tuple(quotes)


def large_question(deadline_s: float | None) -> Question:
    pools, quotes = many_pools()
    slower = {"write_ns_per_row": 2000, "scan_ns_per_row": 700, "size_ratio": 0.35}
    speeds = tuple(speed(name) for name in NS_PER_ROW)
    return Question(
        run_id="bench",
        stage="ingest",
        seed=0,
        asked_at=datetime(2026, 11, 1, tzinfo=UTC),
        needs=LARGE_NEEDS,
        rows=100_000_000,
        row_bytes=0,
        budget_usd=Decimal(1000),
        deadline_left_s=deadline_s,
        pools=pools,
        quotes=quotes,
        tariffs=Tariffs.model_validate({"egress_usd_per_gb": {"*->*": "0.02"}, "store_region": "r00"}),
        speeds=(*speeds, *(each.model_copy(update=slower) for each in speeds)),
    )


def large(repeats: int) -> None:
    """Time deciding and writing with 10,000 targets."""
    print()
    print(
        f"{'10,000 targets':<20} {'deadline':>9} {'decide ms':>9} {'CPU ms':>10} {'min ms':>8} "
        f"{'record ms':>9} {'MiB':>5}  chosen"
    )
    for deadline_s in (None, 7200.0, 3600.0):
        asked = large_question(deadline_s)
        decision = decide(asked)
        wall, cpu = zip(*(both_ms(partial(decide, asked)) for _ in range(repeats)), strict=True)
        recorded = median_ms(partial(record_bytes, decision), 5)
        limit = "-" if deadline_s is None else f"{deadline_s:.0f} s"
        offers = f"{decision.candidates.first_offer(len(LARGE_NEEDS)):,} combined"
        medians = f"{statistics.median(wall):>9.1f} {statistics.median(cpu):>10.1f}"
        times = f"{medians} {min(wall):>8.1f} {recorded:>9.1f}"
        chosen = "nothing" if decision.choice is None else f"{decision.choice.pool} {decision.choice.market}"
        print(f"{offers:<20} {limit:>9} {times} {len(record_bytes(decision)) / 2**20:>5.1f}  {chosen}")


def refused(repeats: int) -> None:
    """Time a question that nothing fits beside the same question with a budget that fits, in turn."""
    print()
    for deadline_s in (None, 7200.0):
        fits = large_question(deadline_s)
        small = fits.model_copy(update={"budget_usd": Decimal("0.001")})
        assert decide(fits).choice is not None and decide(small).choice is None
        pairs = [[both_ms(partial(decide, each))[1] for each in (small, fits)] for _ in range(repeats)]
        ratio = statistics.median(one / other for one, other in pairs)
        limit = "-" if deadline_s is None else f"{deadline_s:.0f} s"
        none_ms, fits_ms = (statistics.median(each) for each in zip(*pairs, strict=True))
        times = f"{none_ms:.1f} CPU ms, {fits_ms:.1f} where a plan fits, {ratio:.2f}"
        print(f"nothing fits, deadline {limit}: {times}")


def both_ms(work: Callable[[], object]) -> tuple[float, float]:
    """Return wall and CPU time in milliseconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return (time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=20)
    repeats = parser.parse_args().repeats
    worlds = {
        "laptop, 2 cores": laptop_world(2, 8.0, "store", date(2026, 11, 1)),
        "cloud": cloud_world("store"),
    }
    print(describe())
    print(
        f"{'world':<16} {'deadline':>8} {'pools':>5} {'offers':>6} "
        f"{'decide ms':>9} {'record ms':>9} {'replay ms':>9} {'KiB':>5}"
    )
    for name, world in worlds.items():
        for deadline_s in (None, 3600.0):
            asked = question(world, deadline_s)
            decision = decide(asked)
            data = record_bytes(decision)
            times = (
                median_ms(partial(decide, asked), repeats),
                median_ms(partial(record_bytes, decision), repeats),
                median_ms(partial(replay, data), repeats),
            )
            shown = "  ".join(f"{each:8.1f}" for each in times)
            offers = decision.candidates.first_offer(len(NEEDS))
            limit = "-" if deadline_s is None else f"{deadline_s:.0f} s"
            print(
                f"{name:<16} {limit:>8} {len(asked.pools):>5} {offers:>6}  {shown} {len(data) / 1024:>5.0f}"
            )
    large(repeats)
    refused(repeats)


if __name__ == "__main__":
    main()
