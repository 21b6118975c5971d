"""Claim: a run never spends more than its budget; the ledger balances; more money never reduces quality
beyond noise.

A budget that is too small is refused before anything starts, with the smallest sufficient budget, and that
budget is enough.

python bench/money.py [--budgets 50] [--most 0.004]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from decimal import Decimal
from pathlib import Path

from cli import CommandResult, shoestring
from machine import describe


def ladder(smallest_usd: Decimal, max_usd: Decimal, count: int) -> list[Decimal]:
    """Return four budgets that are far too small, and `count` - 4 from slightly too small to the largest,
    spaced evenly in the logarithm.
    """
    low_usd, steps = smallest_usd * Decimal("0.8"), count - 4
    ratio = float(max_usd / low_usd)
    rising = [low_usd * Decimal(ratio ** (step / (steps - 1))) for step in range(steps)]
    return [
        amount.quantize(Decimal("0.000001"))
        for amount in [smallest_usd / parts for parts in (100, 10, 4, 2)] + rising
    ]


def quality(run: Path) -> tuple[float, float, float]:
    """Return the test log loss and its interval, from the run's own evaluation."""
    found = json.loads((run / "evaluation.json").read_text())
    score = found["model"]["scores"][found["metric"]]
    return score["value"], score["low"], score["high"]


def run_at(budget_usd: Decimal, folder: Path) -> tuple[CommandResult, bool]:
    """Run the pipeline with a budget. Returns the run, and whether its ledger was verified."""
    out = folder / str(budget_usd)
    where = ("--store", str(folder / "store"), "--out", str(out), "--json")
    ran = shoestring("run", "flights", "--budget", str(budget_usd), *where)
    if ran.summary["status"] == "refused":
        return ran, True
    return ran, shoestring("ledger", "verify", "--store", str(out / "ledger")).code == 0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--budgets", type=int, default=50)
    parser.add_argument("--most", type=Decimal, default=Decimal("0.004"))
    options = parser.parse_args()
    print(describe())
    over, unbalanced, curve = 0, 0, list[tuple[Decimal, float, float, float]]()
    with tempfile.TemporaryDirectory() as folder:
        refused, _ = run_at(Decimal("0.000001"), Path(folder))
        assert refused.code == 1 and refused.summary["status"] == "refused", refused.stderr
        smallest_usd = Decimal(refused.summary["smallest_budget_usd"])
        print(f"refused $0.000001 in {refused.seconds:.1f} s; smallest sufficient budget: ${smallest_usd}")
        budgets = sorted({smallest_usd, *ladder(smallest_usd, options.most, options.budgets - 1)})
        for budget_usd in budgets:
            ran, verified = run_at(budget_usd, Path(folder))
            status, spent_usd = ran.summary["status"], Decimal(ran.summary["spent_usd"])
            over += spent_usd > budget_usd
            unbalanced += not verified
            ledger = "ok" if verified else "BROKEN"
            line = f"${budget_usd}  {status:8} spent ${spent_usd}  {ran.seconds:5.1f} s  ledger {ledger}"
            if status == "done":
                curve.append((budget_usd, *quality(Path(folder, str(budget_usd)))))
                line += f"  log loss {curve[-1][1]:.4f} [{curve[-1][2]:.4f}, {curve[-1][3]:.4f}]"
            print(line, flush=True)
    worse = [(one, two) for index, one in enumerate(curve) for two in curve[index + 1 :] if two[2] > one[3]]
    print(f"{len(budgets)} budgets, {len(curve)} done, {over} over budget, {unbalanced} unbalanced")
    print(f"{len(worse)} pairs where more money was worse beyond its interval")


if __name__ == "__main__":
    main()
