"""Claim: none of 10,000 simulated pipelines with heavy-tailed durations spends above its cap, despite price
changes, preemptions, process deaths and races.

Each mix runs pipelines through the real router, ledger, admission, supervisors and exit steps, in one
month's account whose cap is reached. Then the bench recomputes every hash, sequence and balance of the
ledger. An oracle that knows all actual durations counts the pipelines that would fit their budgets. A run's
budget is log-normal around `--budget-factor` times the router's estimate. `unspent` is the share of the run
budgets that was never spent. A second table shows the share of admitted pipelines by budget factor.

python bench/simulated_money.py [--pipelines 10000] [--mix NAME] [--seeds 1] [--budget-factor 4] [--table 300]
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
NO_FAULTS: dict[str, Any] = {"faults": {}, "market": {"preemption_factor": 0.0}}
PRICE_CHANGES = {"log_sd_per_day": 1.0, "step_s": 300.0, "preemption_factor": 1.0}
PREEMPTIONS = {"log_sd_per_day": 0.1, "preemption_factor": 300.0, "notice_share": 0.5}
DEATHS = {
    "crash_per_write": 0.02,
    "error_per_write": 0.01,
    "pods_lost_per_hour": 0.5,
    "abandoned_share": 0.01,
}
RACES = {"race_per_write": 0.5, "clock_skew_sd_s": 120.0}
MIXES: dict[str, dict[str, Any]] = {
    "heavy tails alone": NO_FAULTS,
    "price changes": NO_FAULTS | {"market": PRICE_CHANGES},
    "preemptions": NO_FAULTS | {"market": PREEMPTIONS},
    "process deaths": NO_FAULTS | {"faults": DEATHS},
    "races, clock skew": NO_FAULTS | {"faults": RACES},
    "all together": {
        "faults": DEATHS | RACES,
        "market": PREEMPTIONS | {"log_sd_per_day": 1.0, "step_s": 300.0},
    },
}
# Days over which the pipelines of a mix start: all within one month; races need many runs at the same time.
DAYS = {"races, clock skew": 2.0, "all together": 7.0}
MONTH_DAYS = 27.0
# As variable as the runs of one user; 2% of stages have a Pareto factor of index 1.5 (infinite variance).
TAILS = {"bias_log_sd": 0.3, "log_sd": 0.2, "tail_share": 0.02, "tail_index": 1.5}
# A run waits at most overnight for money that other runs hold.
WAITING = {"start": {"max_delay_s": 43200.0, "poll_s": 1800.0}}
# Dollars of the month's cap for each pipeline: the last pipelines find the cap reached.
MONTH_USD_EACH = 0.7


def scenario(budget_factor: float, changes: dict[str, Any], month_usd: float | None) -> Scenario:
    base = load_scenario(None).model_dump(mode="json")
    kinds = [kind | {"budget_factor": budget_factor} for kind in base["pipeline_kinds"]]
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
    outcomes = report.outcomes
    admitted = share(report.would_fit_admitted, report.would_fit)
    return (
        f"{name:<18} {report.pipelines:>9} {report.would_fit:>9} {admitted:>8} "
        f"{outcomes.get('done', 0):>6} {outcomes.get('stopped', 0):>7} {outcomes.get('cap-reached', 0):>11} "
        f"{report.waited:>6} {report.preempted:>9} {report.crashes:>6} {report.races:>6} "
        f"{report.accounts_over_cap:>8} {report.runs_billed_over_budget:>11} "
        f"{report.max_share_of_cap or 0:>9.1%} {report.unspent_share or 0:>7.1%} "
        f"{report.mean_release_h or 0:>9.1f} {report.p95_coverage or 0:>6.1%} "
        f"{report.pipelines / seconds * 60:>8.0f}  {report.ledger_check}"
    )


def spread(reports: list[SimulationReport], name: str) -> str:
    """Return the median and the range over seeds."""
    found = sorted(getattr(report, name) or 0.0 for report in reports)
    return f"{median(found):.1%} ({found[0]:.1%} to {found[-1]:.1%})"


def mixes(pipelines: int, names: list[str], seeds: int, budget_factor: float) -> None:
    """Simulate each mix and print its figures."""
    print(
        f"{'mix':<18} {'pipelines':>9} {'would fit':>9} {'admitted':>8} "
        f"{'done':>6} {'stopped':>7} {'cap reached':>11} "
        f"{'waited':>6} {'preempted':>9} {'deaths':>6} {'races':>6} "
        f"{'over cap':>8} {'billed over':>11} "
        f"{'max spent':>9} {'unspent':>7} "
        f"{'release h':>9} {'in P95':>6} "
        f"{'a minute':>8}  ledger"
    )
    each = -(-pipelines // (len(names) * seeds))
    total, over, broken, seconds = 0, 0, 0, 0.0
    for name in names:
        reports: list[SimulationReport] = []
        for seed in range(seeds):
            started_s = time.process_time()
            changes = MIXES[name] | {"pipelines_per_hour": each / DAYS.get(name, MONTH_DAYS) / 24}
            report = simulate(scenario(budget_factor, changes, MONTH_USD_EACH * each), each, seed)
            elapsed_s = time.process_time() - started_s
            print(line(name, report, elapsed_s), flush=True)
            total, over, seconds = total + each, over + report.accounts_over_cap, seconds + elapsed_s
            broken += not report.ledger_check.startswith("every hash")
            reports.append(report)
        if seeds > 1:
            admitted, unspent = spread(reports, "admitted_share"), spread(reports, "unspent_share")
            print(f"{name:<18} admitted {admitted}, unspent {unspent}", flush=True)
    print(
        f"{total} pipelines, {over} accounts above their caps, {broken} invalid ledgers; "
        f"{total / seconds * 60:.0f} a minute on one core"
    )


def budget_table(pipelines: int, seeds: int) -> None:
    """Print the share of admitted pipelines by budget factor, without a monthly cap."""
    print(
        f"\n{'budget / estimate':<20} {'would fit':>9} {'admitted of them':>16} {'done of admitted':>16} "
        f"{'stopped':>7} {'unspent':>7}"
    )
    for factor in (1.5, 2.0, 3.0, 4.0, 6.0, 10.0):
        found = [
            simulate(scenario(factor, NO_FAULTS, None), pipelines, seed, check=False) for seed in range(seeds)
        ]
        fit, admitted_fit = (
            sum(each.would_fit for each in found),
            sum(each.would_fit_admitted for each in found),
        )
        admitted = sum(each.admitted for each in found)
        ended = {kind: sum(each.outcomes.get(kind, 0) for each in found) for kind in ("done", "stopped")}
        cap_usd = sum(each.cap_usd for each in found)
        unspent = sum(each.cap_usd - each.spent_usd for each in found) / max(1, cap_usd)
        print(
            f"{factor:<20} {fit:>9} {share(admitted_fit, fit):>16} {share(ended['done'], admitted):>16} "
            f"{ended['stopped']:>7} {unspent:>7.1%}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pipelines", type=int, default=10_000)
    parser.add_argument("--mix", choices=sorted(MIXES), action="append")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--budget-factor", type=float, default=4.0)
    parser.add_argument(
        "--table", type=int, default=300, help="pipelines for each row of the budget table; 0: none"
    )
    options = parser.parse_args()
    print(describe())
    if options.pipelines:
        mixes(options.pipelines, options.mix or list(MIXES), options.seeds, options.budget_factor)
    if options.table:
        budget_table(options.table, options.seeds)


if __name__ == "__main__":
    main()
