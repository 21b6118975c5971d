"""How well it may be planned: a chain, and stages that branch in few ways, exactly; many ways, as well as so many of them tell.

Where not all ways are kept, it is planned once for what there is to say of every candidate; then in rounds, each with more ways, of which
only those are followed that may come to something better than what was found, until there is nothing better, or surely little. What
a round may look at is counted in ways and never in seconds, so that the same question has the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoestring.routing.candidates import Candidates
from shoestring.routing.dag import build_dag
from shoestring.routing.question import Question
from shoestring.routing.planner.chain_planner import ChainLookahead
from shoestring.routing.planner.current_stage import Here, Plans
from shoestring.routing.planner.dag_lookahead import DagLookahead, Later
from shoestring.routing.planner.dag_planner import Ceiling
from shoestring.routing.planner.partial_plans import UNBOUNDED, Limits, Step

ROUNDS = (256, 1024)
"""Ways that are kept for one state of one part of the graph."""

NEAR_PPM = 1000
"""Of the cost or the samples, in millionths: a plan that is surely so near the best needs no further round."""


@dataclass(frozen=True, slots=True)
class Found:
    """Every candidate's best plan; the candidate of the best one, and its later stages' offers.

    `optimality_gap_ppm`: the share of the best possible that it may lack, in millionths. 0: there is nothing better. None: nothing was found, and
    it is not known that there is nothing.
    """

    plans: Plans
    best: int | None
    path: list[Step]
    optimality_gap_ppm: int | None


def planned(
    question: Question, candidates: Candidates, limits: Limits, rounds: tuple[int, ...] = ROUNDS
) -> Found:
    """The best plan, or nearly; `rounds` are the ways that are kept, one round after the other."""
    here = Here(question, candidates, limits)
    if build_dag(question.needs, question.upstream).is_chain:
        return _as_it_is(Plans(here, ChainLookahead(question, candidates, limits)))
    later = Later(question, candidates, limits)
    beyond = DagLookahead(later, rounds[0])
    found = _as_it_is(Plans(here, beyond))
    return found if beyond.is_exact else _improved(later, found, rounds)


def _as_it_is(plans: Plans) -> Found:
    best = plans.best.first()
    path = [] if best is None else plans.ahead.path(int(plans.here.leaves[best]), int(plans.best.way[best]))
    return Found(plans, best, path, 0)


def _improved(later: Later, found: Found, rounds: tuple[int, ...]) -> Found:
    plans, best, path = found.plans, found.best, found.path
    here = plans.here
    for most in rounds:
        ceiling = _ceiling(later, plans, best)
        optimality_gap_ppm = _lacks_ppm(plans, best, Plans(here, DagLookahead(later, most, ceiling, optimistic=True)))
        if optimality_gap_ppm is not None and optimality_gap_ppm <= NEAR_PPM:
            break
        beyond = DagLookahead(later, most, ceiling)
        other = _as_it_is(Plans(here, beyond))
        better = plans.best.better_of(other.plans.best)
        best = plans.best.first()
        if best is not None and better[best]:
            path = beyond.path(int(here.leaves[best]), int(plans.best.way[best]))
        if beyond.is_exact:
            optimality_gap_ppm = 0
            break
        optimality_gap_ppm = _lacks_ppm(
            plans, best, Plans(here, DagLookahead(later, most, _ceiling(later, plans, best), optimistic=True))
        )
    return Found(plans, best, path, optimality_gap_ppm)


def _lacks_ppm(plans: Plans, best: int | None, bound: Plans) -> int | None:
    """By a plan of ways that are better than any there are."""
    top = bound.best.first()
    if top is None:
        return 0
    if best is None:
        return None
    if (fewer := int(bound.best.samples[top] - plans.best.samples[best])) > 0:
        return _ppm(fewer, int(bound.best.samples[top]))
    return _ppm(max(0, int(plans.best.total[best] - bound.best.total[top])), int(plans.best.total[best]))


def _ceiling(later: Later, plans: Plans, best: int | None) -> Ceiling:
    """Above which there is nothing better than what was found: its cost, where it is its cost that it was taken for."""
    here, limits, least = plans.here, plans.limits, dict(later.least)
    rows, cost = np.flatnonzero(here.usable), UNBOUNDED
    if len(rows):
        least[0] = int(here.cost[rows].min()), int(here.least_p95[rows].min())
        if best is not None and not here.elastic:
            cost = int(plans.best.total[best]) - 1
    return Ceiling(cost, limits.left_micro, limits.left_ms, least)


def _ppm(part: int, whole: int) -> int:
    return -(-part * 10**6 // max(whole, 1))
