"""Claim: of 10,000 simulated pipelines with heavy-tailed durations none spends above its cap, whatever moves, dies or races.

Each mix is so many pipelines through the real router, ledger, admission, frames and exit steps, in one month's account whose cap is
reached, and then every hash, sequence and balance of its books is recomputed. An oracle that knows every true duration says which
would have fitted their budgets; a run's budget is log-normal around `times` what the router expects of the whole chain. What of the caps
was set aside and never spent is stranded; and what share would have been let in, by budget, is a table of its own.

python bench/simulated_money.py [--pipelines 10000] [--mix NAME] [--seeds 1] [--times 4] [--ladder 300]
"""

from __future__ import annotations

import argparse
import time
from statistics import median
from typing import Any

from machine import describe

from shoestring.simulation.results import SimulationReport
from shoestring.simulation.scenario import Scenario, load_scenario
from shoestring.simulation.simulate import simulate

POOLS = ["n2-standard-4", "n2-standard-16", "g2-standard-4"]
CALM: dict[str, Any] = {"faults": {}, "market": {"preemption_factor": 0.0}}
MOVES = {"log_sd_per_day": 1.0, "step_s": 300.0, "preemption_factor": 1.0}
TAKEN = {"log_sd_per_day": 0.1, "preemption_factor": 300.0, "notice_share": 0.5}
DEATHS = {
    "crash_per_write": 0.02,
    "error_per_write": 0.01,
    "pods_lost_per_hour": 0.5,
    "abandoned_share": 0.01,
}
RACES = {"race_per_write": 0.5, "clock_skew_sd_s": 120.0}
MIXES: dict[str, dict[str, Any]] = {
    "heavy tails alone": CALM,
    "prices move": CALM | {"market": MOVES},
    "machines are taken": CALM | {"market": TAKEN},
    "processes die": CALM | {"faults": DEATHS},
    "writers race, clocks off": CALM | {"faults": RACES},
    "all at once": {"faults": DEATHS | RACES, "market": TAKEN | {"log_sd_per_day": 1.0, "step_s": 300.0}},
}
# Days in which a mix's pipelines begin: a month's runs in its month; races need many at once.
DAYS = {"writers race, clocks off": 2.0, "all at once": 7.0}
MONTH_DAYS = 27.0
# Spread as widely as the runs of one user are; 2% of stages take many times as long, without variance (Pareto, index 1.5).
TAILS = {"bias_log_sd": 0.3, "log_sd": 0.2, "tail_share": 0.02, "tail_index": 1.5}
# A run for which nothing is left because others hold it waits for them, overnight at most.
WAITING = {"start": {"max_delay_s": 43200.0, "poll_s": 1800.0}}
# Dollars of the month for each pipeline that is to come: the last of them find it gone.
MONTH_USD_EACH = 0.7


def scenario(times: float, changes: dict[str, Any], month_usd: float | None) -> Scenario:
    base = load_scenario(None).model_dump(mode="json")
    kinds = [kind | {"budget_factor": times} for kind in base["pipeline_kinds"]]
    budgets = {} if month_usd is None else {"month_usd": f"{month_usd:.2f}"}
    return Scenario.model_validate(
        base
        | {
            "pools": POOLS,
            "pipeline_kinds": kinds,
            "durations": TAILS,
            "budgets": budgets,
            "policy": base["policy"] | WAITING,
        }
        | changes
    )


def share(part: int, whole: int) -> str:
    return f"{part / whole:6.1%}" if whole else "     -"


def line(name: str, report: SimulationReport, seconds: float) -> str:
    ended = report.outcomes
    return (
        f"{name:<24} {report.pipelines:>9} {report.would_fit:>9} {share(report.would_fit_admitted, report.would_fit):>8} "
        f"{ended.get('done', 0):>6} {ended.get('stopped', 0):>7} "
        f"{ended.get('cap-reached', 0):>10} {report.waited:>6} {report.preempted:>5} {report.crashes:>5} {report.races:>6} {report.accounts_over_cap:>8} "
        f"{report.runs_billed_over_budget:>11} {report.max_share_of_cap or 0:>7.1%} {report.unspent_share or 0:>8.1%} {report.mean_release_h or 0:>6.1f} "
        f"{report.p95_coverage or 0:>6.1%} {report.pipelines / seconds * 60:>8.0f}  {report.ledger_check}"
    )


def spread(reports: list[SimulationReport], name: str) -> str:
    """The median over seeds, and how far they are apart."""
    found = sorted(getattr(report, name) or 0.0 for report in reports)
    return f"{median(found):.1%} ({found[0]:.1%} to {found[-1]:.1%})"


def mixes(pipelines: int, names: list[str], seeds: int, times: float) -> None:
    print(
        f"{'mix':<24} {'pipelines':>9} {'would fit':>9} {'admitted':>8} {'done':>6} {'stopped':>7} {'month full':>10} "
        f"{'waited':>6} {'taken':>5} "
        f"{'died':>5} {'races':>6} "
        f"{'over cap':>8} {'billed over':>11} {'most of':>7} {'stranded':>8} {'back h':>6} {'in P95':>6} {'a minute':>8}  books"
    )
    each = -(-pipelines // (len(names) * seeds))
    total, over, broken, seconds = 0, 0, 0, 0.0
    for name in names:
        reports: list[SimulationReport] = []
        for seed in range(seeds):
            begun_s = time.process_time()
            changes = MIXES[name] | {"pipelines_per_hour": each / DAYS.get(name, MONTH_DAYS) / 24}
            report = simulate(scenario(times, changes, MONTH_USD_EACH * each), each, seed)
            took_s = time.process_time() - begun_s
            print(line(name, report, took_s), flush=True)
            total, over, seconds = total + each, over + report.accounts_over_cap, seconds + took_s
            broken += not report.ledger_check.startswith("every hash")
            reports.append(report)
        if seeds > 1:
            print(
                f"{name:<24} admitted {spread(reports, 'admitted_share')}, stranded {spread(reports, 'unspent_share')}",
                flush=True,
            )
    print(
        f"{total} pipelines, {over} accounts above their caps, {broken} books broken; {total / seconds * 60:.0f} a minute of one core"
    )


def ladder(pipelines: int, seeds: int) -> None:
    """The month without a cap: what a run's own budget lets in."""
    print(
        f"\n{'budget over expected':<20} {'would fit':>9} {'admitted of them':>16} {'done of admitted':>16} {'stopped':>7} {'stranded':>8}"
    )
    for times in (1.5, 2.0, 3.0, 4.0, 6.0, 10.0):
        found = [simulate(scenario(times, CALM, None), pipelines, seed, check=False) for seed in range(seeds)]
        fit, let_in = sum(each.would_fit for each in found), sum(each.would_fit_admitted for each in found)
        admitted = sum(each.admitted for each in found)
        ended = {kind: sum(each.outcomes.get(kind, 0) for each in found) for kind in ("done", "stopped")}
        stranded = sum(each.cap_usd - each.spent_usd for each in found) / max(
            1, sum(each.cap_usd for each in found)
        )
        print(
            f"{times:<20} {fit:>9} {share(let_in, fit):>16} {share(ended['done'], admitted):>16} {ended['stopped']:>7} {stranded:>8.1%}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pipelines", type=int, default=10_000)
    parser.add_argument("--mix", choices=sorted(MIXES), action="append")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--times", type=float, default=4.0)
    parser.add_argument(
        "--ladder", type=int, default=300, help="pipelines for each step of the ladder of budgets; 0: none"
    )
    options = parser.parse_args()
    print(describe())
    if options.pipelines:
        mixes(options.pipelines, options.mix or list(MIXES), options.seeds, options.times)
    if options.ladder:
        ladder(options.ladder, options.seeds)


if __name__ == "__main__":
    main()
