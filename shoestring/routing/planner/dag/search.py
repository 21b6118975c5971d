"""The plan search over a DAG: exact where there are few partial plans, with a known gap otherwise.

The first pass finds a plan for every candidate. If it could not keep all partial plans, further rounds keep
more of them, and only those that may lead to a better plan. They end when no better plan is possible, or only
one that is slightly better. A round is limited by the number of partial plans, not by seconds, so that the
same question always has the same answer.
"""

from __future__ import annotations

from copy import copy
from math import ceil

import numpy as np

from shoestring.routing.candidates import Candidates, Flags
from shoestring.routing.planner.best_plans import PPM, share_of_samples
from shoestring.routing.planner.candidate_plans import CandidatePlans
from shoestring.routing.planner.current_stage import CurrentStage
from shoestring.routing.planner.dag.dag_planner import CostCeiling
from shoestring.routing.planner.dag.lookahead import DagLookahead, LaterStages
from shoestring.routing.planner.partial_plans import UNBOUNDED, RunLimits
from shoestring.routing.question import Question

PLANS_PER_STATE = (256, 1024)
"""Partial plans to keep for one state of one group of stages, by round."""

NEAR_PPM = 1000
"""A plan within this many parts per million of the best possible cost or samples needs no further round."""


class DagSearch:
    """The plan search of a question with or without a deadline, for any number of seconds of it.

    What does not depend on that number is done once: the prices of all offers, and the first round's plans.
    """

    def __init__(
        self,
        question: Question,
        candidates: Candidates,
        current: CurrentStage,
        rounds: tuple[int, ...],
        prune_above_offers: int,
    ) -> None:
        self.current, self.rounds = current, rounds
        self.later = LaterStages(question, candidates, current.limits, prune_above_offers)
        self.planner = self.later.planner(rounds[0])

    def plans(self, limits: RunLimits) -> CandidatePlans:
        """Return every candidate's best plan, with the gap to the best possible one.

        `limits`: those of the question, or the same with another `left_ms`.
        """
        current, later = copy(self.current), copy(self.later)
        current.limits = later.limits = limits
        lookahead = DagLookahead(later, self.planner)
        plans = CandidatePlans(current, lookahead)
        if not lookahead.is_exact:
            _improve(later, plans, self.rounds)
        return plans


def _improve(later: LaterStages, plans: CandidatePlans, rounds: tuple[int, ...]) -> None:
    """Replace plans by better ones, round by round, and set the path and the gap."""
    current, path = plans.current, plans.path
    for max_labels in rounds:
        plans.optimality_gap_ppm = _gap_ppm(later, plans, max_labels)
        if plans.optimality_gap_ppm is not None and plans.optimality_gap_ppm <= NEAR_PPM:
            break
        lookahead = DagLookahead(later, later.planner(max_labels, _ceiling(later, plans)))
        better = _take_better(plans, CandidatePlans(current, lookahead, plans.most_samples))
        plans.chosen = row = plans.best.first()
        if row is not None and better[row]:
            path = lookahead.path(int(current.format_left[row]), int(plans.best.way[row]))
        if lookahead.is_exact:
            plans.optimality_gap_ppm = 0
            break
        plans.optimality_gap_ppm = _gap_ppm(later, plans, max_labels)
    plans.path = path


def _take_better(plans: CandidatePlans, found: CandidatePlans) -> Flags:
    """Replace plans by better ones of another round, and return which were replaced."""
    rows = np.arange(len(plans.current))
    plans.most_samples, plans.best.min_samples = found.most_samples, found.best.min_samples
    return plans.best.take_better(rows, found.best)


def _gap_ppm(later: LaterStages, plans: CandidatePlans, max_labels: int) -> int | None:
    """Return the distance of the best plan from a lower bound on all plans; None: no plan was found.

    For an elastic stage, it is what the plan lacks of the samples that count, or what its samples cost more.
    """
    current, best = plans.current, plans.best
    planner = later.planner(max_labels, _ceiling(later, plans), optimistic=True)
    bound = CandidatePlans(current, DagLookahead(later, planner))
    top, row = bound.chosen, plans.chosen
    if top is None:
        return 0
    if row is None:
        return None
    if not current.elastic:
        return _ppm(max(0, int(best.total[row] - bound.best.total[top])), int(best.total[row]))
    enough = share_of_samples(bound.most_samples, current.min_share_ppm)
    # The best possible plan may buy as few samples as count by the plans found so far.
    bound.compare_prices(plans.most_samples)
    price = float(best.price(row))
    more_ppm = ceil((1 - bound.lowest_price() / price) * PPM) if price else 0
    return max(0, more_ppm, _ppm(enough - int(best.samples[row]), enough))


def _ceiling(later: LaterStages, plans: CandidatePlans) -> CostCeiling:
    """Return the limits above which no plan is better than the best one found.

    The cost counts only for a fixed stage: there the best plan is the cheapest one.
    """
    current, limits, minima = plans.current, plans.limits, dict(later.minima)
    rows, cost = np.flatnonzero(current.usable), UNBOUNDED
    if len(rows):
        minima[0] = int(current.cost[rows].min()), int(current.min_p95[rows].min())
        if plans.chosen is not None and not current.elastic:
            cost = int(plans.best.total[plans.chosen]) - 1
    return CostCeiling(cost, limits.left_micro, limits.left_ms, minima)


def _ppm(part: int, whole: int) -> int:
    return -(-part * PPM // max(whole, 1))
