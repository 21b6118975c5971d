"""How plans of an elastic stage are compared, by enumeration: the oracle of the planner's tests.

Of the plans that begin with one offer, only those count whose later stages no other later stages beat or
equal in cost, P95 dollars and P95 time. The rest is the rule of docs/routing.md, in exact fractions.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil

import numpy as np

from shoestring.routing.candidates import Flags, Ints
from shoestring.routing.question import Question

BestByRow = dict[int, list[int]]
"""By offer of the first stage: samples, total, P95 dollars and P95 time of its best plan."""


def fewest_that_count(question: Question, most: int) -> int:
    """Return the fewest samples of a plan that is compared by the price of a sample."""
    return ceil(Fraction(str(question.active_policy.min_sample_share)) * most)


def order_of(plan: Sequence[int], fewest: int) -> tuple[int | Fraction, ...]:
    """Return what a plan (samples, total, P95 dollars, P95 time) is compared by, the best first."""
    samples, total, *rest = plan
    if samples < fewest:
        return (1, -samples, total, *rest)
    return (0, Fraction(total, max(samples, 1)), -samples, *rest)


def best_by_row(row: Ints, columns: Ints, fewest: int) -> BestByRow:
    """Return the best plan of each offer; `columns` holds samples, total, P95 dollars and P95 time."""
    found: BestByRow = {}
    for one, plan in zip(row.tolist(), columns.T.tolist(), strict=True):
        if one not in found or order_of(plan, fewest) < order_of(found[one], fewest):
            found[one] = plan
    return found


def best_of(plans: BestByRow, fewest: int) -> tuple[int | Fraction, ...]:
    """Return what the best plan of all offers is compared by, with its offer last."""
    return min((*order_of(plan, fewest), row) for row, plan in plans.items())


def undominated_continuations(row: Ints, cost: Ints, p95: Ints, ms: Ints, tie: Ints) -> Flags:
    """Return which plans have later stages that no other plan from the same offer beats or equals.

    Of equal ones, the first by `tie` stays.
    """
    kept, seen = np.zeros(len(row), dtype=np.bool_), dict[int, list[tuple[int, int]]]()
    for at in np.lexsort([tie, ms, p95, cost, row]).tolist():
        others, own = seen.setdefault(int(row[at]), []), (int(p95[at]), int(ms[at]))
        if not any(other[0] <= own[0] and other[1] <= own[1] for other in others):
            others.append(own)
            kept[at] = True
    return kept


def taking_the_most(question: Question) -> Question:
    """Return the question under a policy that takes the most samples, whatever they cost."""
    most = question.preferences.model_copy(update={"min_sample_share": 1.0})
    return question.model_copy(update={"preferences": most})
