"""Claim: on 2,000 random chains and DAGs the choice is the best of all plans, and no question is refused that
has a plan.

python bench/optimal.py [--instances 2000] [--seed 0]

The instances and the brute force are those of tests/routing/test_brute_force.py: 1 to 5 stages in a chain, a
fork, a join, a diamond or a random DAG, on up to 24 pools and markets of a few kinds of machines. Budgets and
deadlines are those that one of the good plans needs, or near them. Brute force is every combination of offers
whose formats follow on one another. Each instance is planned twice: as it is, and with the pruning of large
fleets forced on.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from machine import describe

sys.path.append(str(Path(__file__).parent.parent / "tests/routing"))  # the brute force of the tests

from limited_fleets import Case
from random_fleets import AMPLE_USD, SHAPES
from sample_prices import best_of, order_of

from shoestring.routing.decide import choose
from shoestring.routing.planner.stage_options import PRUNE_ABOVE_OFFERS

RESULTS = {
    "free": "best, no limit binds",
    "bound": "best, a limit binds",
    "refused": "nothing fits: refused",
    "WRONG": "WRONG",
}


def compare(case: Case, prune_above_offers: int) -> str:
    """Return how the choice compares with the best of all plans."""
    question, plans = case.question, case.plans
    decision = choose(question, case.candidates, prune_above_offers)
    fitting = plans.fitting(question)
    best = fitting.best_by_row()
    if decision.choice is None or not best:
        return "refused" if decision.choice is None and not best else "WRONG"
    row = decision.choice.candidate
    found = plans.at(plans.index(row, decision.plan)).fitting(question)
    if decision.optimality_gap_ppm or not len(found.row):
        return "WRONG"
    chosen = int(found.samples[0]), int(found.total[0]), int(found.micro[0]), int(found.ms[0])
    if (*order_of(chosen, fitting.fewest), row) != best_of(best, fitting.fewest):
        return "WRONG"
    ample = question.model_copy(update={"budget_usd": AMPLE_USD, "deadline_left_s": None})
    unlimited = plans.fitting(ample)
    ideal = best_of(unlimited.best_by_row(), unlimited.fewest)
    return "free" if ideal == best_of(best, fitting.fewest) else "bound"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--instances", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    begun, plans, wrong = time.perf_counter(), 0, 0
    counts = Counter[tuple[str, str]]()
    for number in range(arguments.instances):
        case = Case.draw(arguments.seed * 10**6 + number)
        results = {compare(case, each) for each in (PRUNE_ABOVE_OFFERS, 0)}
        result = results.pop() if len(results) == 1 else "WRONG"
        counts[case.shape, result] += 1
        plans += len(case.plans)
        wrong += result == "WRONG"
    print(describe())
    print(f"{'':<20}" + "".join(f"{words:>24}" for words in RESULTS.values()))
    for shape in ("chain", *SHAPES, "random DAG"):
        print(f"{shape:<20}" + "".join(f"{counts[shape, result]:>24}" for result in RESULTS))
    print(
        f"{arguments.instances} instances, {plans:,} plans compared, {wrong} wrong, "
        f"{time.perf_counter() - begun:.0f} s"
    )
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
