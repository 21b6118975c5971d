"""Do second looks pay, and do they never go back and forth, on recorded spot prices?

One V100 in AWS zones, a price every 195 s: all nine, and the four of us-east-1, whose prices change most. A training of 48 hours of work
starts in each zone, at moments drawn with each seed; every ten minutes it is looked at again. Moving takes a checkpoint and the exit (60 s
at the old price) and a start (360 s at the new one). Compared in the same run: staying, moving to whatever is cheaper (no dwell, no margin,
break-even), the policy's defaults without its limit on the number of moves, and the cheapest zone of each moment for nothing (a bound).
A return is a move to a zone that the same run had left less than a day before. Prices alone: spot is taken to be there.

The recorded prices move slowly. "jittered" is the same with each price up to 10% higher or lower at each tick, drawn anew.

    python bench/moves.py [--seeds 5] [--starts 8]
"""

from __future__ import annotations

import argparse
import csv
import gzip
import random
from dataclasses import dataclass
from statistics import median

from machine import describe
from traces import trace

from shoestring.config.policy import MigrationPolicy
from shoestring.core.types import Market
from shoestring.routing.policy.migration import MigrationTarget, RunningStage, check_migration

TICK_S, LOOK_TICKS, DAY_S = 195.0, 3, 86400.0
WORK_S, LEAVE_S, START_S = 48 * 3600.0, 60.0, 360.0
EAGER = MigrationPolicy(saving_over_disruption=1, min_dwell_s=0, extra_saving_per_migration=0, max_migrations=10**6)
CALM = MigrationPolicy(max_migrations=10**6)
Prices = list[list[float]]


@dataclass
class Ran:
    """What one training cost, and where it went. Dollars."""

    usd: float
    moves: int
    returns: int


def prices() -> tuple[list[str], Prices]:
    with gzip.open(trace("v100-spot/prices.csv.gz"), "rt") as file:
        rows = list(csv.reader(file))
    return rows[0][1:], [[float(cell) for cell in row[1:]] for row in rows[1:]]


def train(table: Prices, begin: int, zone: int, rules: MigrationPolicy | None) -> Ran:
    """Tick by tick until the work is done. `rules` None: it stays."""
    usd, left_s, tick, since, left_at = 0.0, WORK_S, begin, begin, dict[int, float]()
    paused_s, moves, returns = START_S, 0, 0
    while left_s > 0:
        now = table[tick]
        if rules and (tick - begin) % LOOK_TICKS == 0 and tick > since:
            best = min(range(len(now)), key=lambda each: now[each])
            if best != zone and looked(now, zone, best, left_s, (tick - since) * TICK_S, moves, rules):
                usd += now[zone] * LEAVE_S / 3600
                returns += best in left_at and (tick * TICK_S - left_at[best]) < DAY_S
                left_at[zone] = tick * TICK_S
                zone, since, paused_s, moves = best, tick, START_S, moves + 1
        worked_s = min(max(0.0, TICK_S - paused_s), left_s)
        usd += now[zone] * (min(paused_s, TICK_S) + worked_s) / 3600
        left_s, paused_s, tick = left_s - worked_s, max(0.0, paused_s - TICK_S), tick + 1
    return Ran(usd, moves, returns)


def looked(
    now: list[float], zone: int, best: int, left_s: float, elapsed_s: float, moves: int, rules: MigrationPolicy
) -> bool:
    at = RunningStage(
        pool=str(zone),
        market=Market.SPOT,
        usd_per_hour=now[zone],
        s_per_sample=1.0,
        phase="stable",
        elapsed_s=elapsed_s,
        migrations=moves,
        left_usd=1e6,
        left_s=None,
        samples_left=left_s,
        exit_s=LEAVE_S,
    )
    there = MigrationTarget(
        pool=str(best), market=Market.SPOT, usd_per_hour=now[best], s_per_sample=1.0, startup_s=START_S
    )
    return check_migration(at, there, rules).migrates


def bound(table: Prices, begin: int) -> Ran:
    """The cheapest zone of each moment, for nothing."""
    ticks = int((WORK_S + START_S) / TICK_S)
    return Ran(sum(min(row) for row in table[begin : begin + ticks]) * TICK_S / 3600, 0, 0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--starts", type=int, default=8, help="moments for each seed")
    given = parser.parse_args()
    zones, recorded = prices()
    east = [
        [row[number] for number, zone in enumerate(zones) if zone.startswith("us-east-1")] for row in recorded
    ]
    rng = random.Random(0)
    jittered = [[price * rng.uniform(0.9, 1.1) for price in row] for row in east]
    print(describe())
    for name, table in (("nine zones", recorded), ("us-east-1", east), ("us-east-1, jittered", jittered)):
        compare(name, table, given.seeds, given.starts)


def compare(title: str, table: Prices, seeds: int, starts: int) -> None:
    last, zones = len(table) - int(WORK_S / TICK_S * 4), len(table[0])
    found: dict[str, list[list[Ran]]] = {name: [] for name in ("stays", "eager", "second looks", "bound")}
    for seed in range(seeds):
        rng = random.Random(seed)
        cases = [(rng.randrange(last), zone) for _ in range(starts) for zone in range(zones)]
        for name, rules in (("stays", None), ("eager", EAGER), ("second looks", CALM)):
            found[name].append([train(table, begin, zone, rules) for begin, zone in cases])
        found["bound"].append([bound(table, begin) for begin, _ in cases])
    print(
        f"\n{title}: {seeds} seeds x {starts} moments x {zones} zones, {len(table) * TICK_S / DAY_S:.0f} days; medians of the seeds"
    )
    print(f"{'':14}{'$ a run':>10}{'of staying':>12}{'moves a run':>13}{'most moves':>12}{'returns':>9}")
    stays = [sum(each.usd for each in runs) for runs in found["stays"]]
    for name, of_seeds in found.items():
        usd = median(sum(each.usd for each in runs) / len(runs) for runs in of_seeds)
        share = median(
            sum(each.usd for each in runs) / base for runs, base in zip(of_seeds, stays, strict=True)
        )
        moves = median(sum(each.moves for each in runs) / len(runs) for runs in of_seeds)
        every = [each for runs in of_seeds for each in runs]
        most, returns = max(each.moves for each in every), sum(each.returns for each in every)
        print(f"{name:14}{usd:>10.2f}{share:>12.3f}{moves:>13.2f}{most:>12}{returns:>9}")


if __name__ == "__main__":
    main()
