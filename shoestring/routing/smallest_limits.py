"""The smallest budget and the smallest deadline that would be enough for a question that nothing fits."""

from __future__ import annotations

from dataclasses import replace
from decimal import ROUND_CEILING, Decimal
from typing import NamedTuple

from shoestring.core.money import MAX_USD, from_microusd
from shoestring.routing.candidates import Candidates
from shoestring.routing.dag import build_dag
from shoestring.routing.decision import BothLimits
from shoestring.routing.loop_items import has_others
from shoestring.routing.offers.offer_costs import FREE, OfferCost, offer_cost
from shoestring.routing.planner.candidate_plans import CandidatePlans
from shoestring.routing.planner.chain_planner import find_plans
from shoestring.routing.planner.current_stage import CurrentStage
from shoestring.routing.planner.dag.search import PLANS_PER_STATE, DagSearch
from shoestring.routing.planner.partial_plans import CACHED, PlanStep, RunLimits
from shoestring.routing.planner.stage_options import PRUNE_ABOVE_OFFERS
from shoestring.routing.question import Question

DIGITS = 3
"""Significant digits of a deadline that is named: a person types it, and it is less than 1% too long."""

MAX_MS = 2**45
"""The longest deadline that is tried: a thousand years."""


class SmallestLimits(NamedTuple):
    """The smallest limits that would be enough; None: no such limit is.

    `budget_usd`: with the deadline as it is. `deadline_s`: with the budget as it is. `both`: the smallest
    budget, and the smallest deadline with that budget, where neither is enough alone.
    """

    budget_usd: Decimal | None = None
    deadline_s: float | None = None
    both: BothLimits | None = None


def smallest_limits(question: Question, candidates: Candidates, plans: CandidatePlans) -> SmallestLimits:
    """Return the smallest limits that would be enough for a question that nothing fits."""
    budget_usd = _smallest_budget_usd(question, plans)
    if question.deadline_left_s is None:
        return SmallestLimits(budget_usd)
    deadline_s = _smallest_deadline_s(question, candidates, plans)
    if budget_usd is not None or deadline_s is not None:
        return SmallestLimits(budget_usd, deadline_s)
    free_usd = _budget_without_deadline_usd(question, candidates, plans)
    if free_usd is None:
        return SmallestLimits()
    together_s = _smallest_deadline_s(question.model_copy(update={"budget_usd": free_usd}), candidates, plans)
    if together_s is None:
        return SmallestLimits()
    return SmallestLimits(both=BothLimits(budget_usd=free_usd, deadline_s=together_s))


def _smallest_budget_usd(question: Question, plans: CandidatePlans) -> Decimal | None:
    """Return the smallest run budget that would be enough for this question; None: no budget is enough."""
    if _is_chain(question) and not plans.limits.timed:
        return _run_budget_usd(question, plans.least_micro())
    return _run_budget_usd(question, plans.cheapest_micro(plans.limits.left_ms))


def _budget_without_deadline_usd(
    question: Question, candidates: Candidates, plans: CandidatePlans
) -> Decimal | None:
    """Return the smallest run budget without a deadline; None: no budget is enough."""
    if _is_chain(question):
        return _run_budget_usd(question, plans.least_micro())
    untimed = question.model_copy(update={"deadline_left_s": None})
    return _smallest_budget_usd(untimed, find_plans(untimed, candidates, RunLimits.of(untimed)))


def _run_budget_usd(question: Question, left_micro: int | None) -> Decimal | None:
    """Return the run's budget of which this much is left; None: it is more than a budget can be."""
    if left_micro is None:
        return None
    budget_usd = question.spent_usd + question.held_usd + from_microusd(left_micro)
    return budget_usd if budget_usd < MAX_USD else None


def _smallest_deadline_s(question: Question, candidates: Candidates, plans: CandidatePlans) -> float | None:
    """Return the smallest deadline of the run that would be enough; None: no deadline is enough.

    It includes what has passed or is kept, and is rounded up to DIGITS digits.
    """
    if _is_chain(question):
        ms = plans.shortest_ms(RunLimits.of(question).left_micro)
    else:
        ms = _search_ms(question, candidates)
    if ms is None:
        return None
    return typable_s(Decimal(ms + 1) / 1000 + Decimal(str(question.deadline_used_s)))


def _is_chain(question: Question) -> bool:
    """Return whether the trade-offs of any plan search hold for every budget and deadline."""
    return build_dag(question.needs, question.upstream).is_chain


def _search_ms(question: Question, candidates: Candidates) -> int | None:
    """Return the shortest time in which a plan fits, by bisection; None: there is none."""

    limits = RunLimits.of(question)
    current = CurrentStage(question, candidates, limits)
    search = DagSearch(question, candidates, current, PLANS_PER_STATE, PRUNE_ABOVE_OFFERS)

    def fits(ms: int) -> bool:
        return search.plans(replace(limits, left_ms=ms)).chosen is not None

    low, high = -1, max(int((question.deadline_left_s or 0.0) * 1000), 1000)
    while not fits(high):
        low, high = high, 2 * high
        if high > MAX_MS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def fitting_items(question: Question, candidates: Candidates) -> int | None:
    """Return how many items of its loop fit a question that does not fit, its own included, by bisection;
    None: its stage is in no loop, or it is the last item.
    """
    if not has_others(question.needs):
        return None
    first, others, *later = question.needs
    at_once = others.at_once

    def fits(count: int) -> bool:
        rest = others.model_copy(update={"items": count})
        fewer = question.model_copy(update={"needs": (first, rest, *later)})
        loop = {"items": count, "rounds": -(-count // (at_once or count or 1))}
        own, offers, *after = candidates.offers
        priced = candidates.model_copy(update={"offers": (own, offers.model_copy(update=loop), *after)})
        return find_plans(fewer, priced, RunLimits.of(fewer)).chosen is not None

    # The number of items of which none, or some, fit.
    low, high = 0, others.items + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle - 1) else (low, middle)
    return low


def typable_s(seconds: Decimal) -> float:
    """Return seconds rounded up to DIGITS significant digits."""
    step = Decimal(1).scaleb(seconds.adjusted() - DIGITS + 1)
    return float((seconds / step).to_integral_value(ROUND_CEILING) * step)


def smallest_plan_costs(question: Question, candidates: Candidates) -> list[tuple[int, OfferCost]]:
    """Return each stage's target (or CACHED) and its cost in the plan that needs the smallest budget.

    Empty: no budget is enough.
    """
    plans = find_plans(question, candidates, RunLimits.of(question))
    smallest_usd = _smallest_budget_usd(question, plans)
    if smallest_usd is None:
        return []
    question = question.model_copy(update={"budget_usd": smallest_usd})
    plans = find_plans(question, candidates, RunLimits.of(question))
    steps = [] if plans.chosen is None else [plans.current.step(plans.chosen), *plans.path]
    return [(step.target, step_cost(candidates, stage, step)) for stage, step in enumerate(steps)]


def step_cost(candidates: Candidates, stage: int, step: PlanStep) -> OfferCost:
    """Return the cost of a step of a plan."""
    return (
        FREE if step.target == CACHED else offer_cost(candidates, stage, step.target, step.reads, step.writes)
    )
