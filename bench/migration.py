"""Measure on recorded spot prices whether migrations save money, and whether runs oscillate between zones.

The prices are of one V100 in AWS zones, one price every 195 s: all nine zones, and the four of us-east-1,
whose prices change most. A training of 48 hours of work starts in each zone, at times drawn with each seed,
and is checked for migration every ten minutes. A migration takes a checkpoint and the exit (60 s at the old
price) and a start (360 s at the new price).

The bench compares four rules: stay; migrate to whatever is cheaper (no dwell time, no margin, break-even);
the default migration policy without its limit on migrations; and the cheapest zone at every moment at no
cost (a lower bound). A return is a migration to a zone that the same run left less than a day before. Only
prices are simulated: spot capacity is assumed to be available.

The recorded prices change slowly. "jittered" multiplies each price at each tick by a random factor between
0.9 and 1.1.

    python bench/migration.py [--seeds 5] [--starts 8]
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

TICK_S, CHECK_TICKS, DAY_S = 195.0, 3, 86400.0
WORK_S, EXIT_S, START_S = 48 * 3600.0, 60.0, 360.0
EAGER = MigrationPolicy(
    saving_over_disruption=1, min_dwell_s=0, extra_saving_per_migration=0, max_migrations=10**6
)
DEFAULT = MigrationPolicy(max_migrations=10**6)
Prices = list[list[float]]


@dataclass
class TrainingRun:
    """The dollars that one training cost, its migrations, and its returns to a zone."""

    usd: float
    migrations: int
    returns: int


def prices() -> tuple[list[str], Prices]:
    with gzip.open(trace("v100-spot/prices.csv.gz"), "rt") as file:
        rows = list(csv.reader(file))
    return rows[0][1:], [[float(cell) for cell in row[1:]] for row in rows[1:]]


def train(table: Prices, begin: int, zone: int, policy: MigrationPolicy | None) -> TrainingRun:
    """Simulate a training tick by tick until its work is done. With `policy` None it never migrates."""
    usd, left_s, tick, since, left_at = 0.0, WORK_S, begin, begin, dict[int, float]()
    paused_s, migrations, returns = START_S, 0, 0
    while left_s > 0:
        now = table[tick]
        if policy and (tick - begin) % CHECK_TICKS == 0 and tick > since:
            best = min(range(len(now)), key=lambda each: now[each])
            if best != zone and migrates(
                now, zone, best, left_s, (tick - since) * TICK_S, migrations, policy
            ):
                usd += now[zone] * EXIT_S / 3600
                returns += best in left_at and (tick * TICK_S - left_at[best]) < DAY_S
                left_at[zone] = tick * TICK_S
                zone, since, paused_s, migrations = best, tick, START_S, migrations + 1
        worked_s = min(max(0.0, TICK_S - paused_s), left_s)
        usd += now[zone] * (min(paused_s, TICK_S) + worked_s) / 3600
        left_s, paused_s, tick = left_s - worked_s, max(0.0, paused_s - TICK_S), tick + 1
    return TrainingRun(usd, migrations, returns)


def migrates(
    now: list[float],
    zone: int,
    best: int,
    left_s: float,
    elapsed_s: float,
    migrations: int,
    policy: MigrationPolicy,
) -> bool:
    """Return True if the migration check moves a training from `zone` to `best` at the prices `now`."""
    running = RunningStage(
        pool=str(zone),
        market=Market.SPOT,
        usd_per_hour=now[zone],
        s_per_sample=1.0,
        phase="stable",
        elapsed_s=elapsed_s,
        migrations=migrations,
        left_usd=1e6,
        left_s=None,
        samples_left=left_s,
        exit_s=EXIT_S,
    )
    target = MigrationTarget(
        pool=str(best), market=Market.SPOT, usd_per_hour=now[best], s_per_sample=1.0, startup_s=START_S
    )
    return check_migration(running, target, policy).migrates


def bound(table: Prices, begin: int) -> TrainingRun:
    """Return the lower bound: the cheapest zone at every moment, with free migrations."""
    ticks = int((WORK_S + START_S) / TICK_S)
    return TrainingRun(sum(min(row) for row in table[begin : begin + ticks]) * TICK_S / 3600, 0, 0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--starts", type=int, default=8, help="start times for each seed")
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
    found: dict[str, list[list[TrainingRun]]] = {
        name: [] for name in ("stay", "eager", "migration check", "bound")
    }
    for seed in range(seeds):
        rng = random.Random(seed)
        cases = [(rng.randrange(last), zone) for _ in range(starts) for zone in range(zones)]
        for name, policy in (("stay", None), ("eager", EAGER), ("migration check", DEFAULT)):
            found[name].append([train(table, begin, zone, policy) for begin, zone in cases])
        found["bound"].append([bound(table, begin) for begin, _ in cases])
    print(
        f"\n{title}: {seeds} seeds x {starts} start times x {zones} zones, "
        f"{len(table) * TICK_S / DAY_S:.0f} days; medians over seeds"
    )
    print(f"{'':17}{'$ a run':>10}{'vs stay':>12}{'migrations':>13}{'max':>12}{'returns':>9}")
    stay = [sum(each.usd for each in runs) for runs in found["stay"]]
    for name, of_seeds in found.items():
        usd = median(sum(each.usd for each in runs) / len(runs) for runs in of_seeds)
        share = median(
            sum(each.usd for each in runs) / base for runs, base in zip(of_seeds, stay, strict=True)
        )
        migrations = median(sum(each.migrations for each in runs) / len(runs) for runs in of_seeds)
        every = [each for runs in of_seeds for each in runs]
        most, returns = max(each.migrations for each in every), sum(each.returns for each in every)
        print(f"{name:17}{usd:>10.2f}{share:>12.3f}{migrations:>13.2f}{most:>12}{returns:>9}")


if __name__ == "__main__":
    main()
