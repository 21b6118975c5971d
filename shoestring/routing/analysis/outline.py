"""Outline a whole chain: the offer of each stage, the number of rejected offers, and what faster plans cost.

The Pareto front is exact. It holds every plan for the remaining stages such that no other plan has a lower
expected cost (including the price of delay) and is as fast at P95. An elastic stage counts with all its
passes. Budget and deadline do not limit the plans; each plan states whether it fits them.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

import numpy as np

from shoestring.core.money import Usd, from_microusd
from shoestring.core.record import Record
from shoestring.core.types import STANDARD_CLASS, Format, Market, Pool, StorageClassName
from shoestring.routing.candidates import Candidates, Ints, RefusalCode, format_text
from shoestring.routing.dag import build_dag
from shoestring.routing.decision import Choice, Decision, PlannedStage
from shoestring.routing.planner.chain_planner import chain_plans
from shoestring.routing.planner.partial_plans import (
    UNBOUNDED,
    PartialPlans,
    PlanStep,
    RunLimits,
    named_step,
    undominated,
)
from shoestring.routing.planner.stage_options import StageOptions, TargetKinds
from shoestring.routing.question import Question
from shoestring.routing.smallest_limits import step_cost


class StageOutline(Record):
    """The offer planned for one stage.

    For an elastic stage, the P95 figures are its limits if it is the current stage, and its minimum if it
    comes later.
    """

    stage: str
    pool: str
    market: Market
    region: str
    machine: str
    format: Format | None
    cached: bool
    est_usd: Usd
    p95_usd: Usd
    est_s: float
    p95_s: float
    rejected: dict[RefusalCode, int]
    storage_class: StorageClassName = STANDARD_CLASS


class OutlinePlan(Record):
    """One plan for all stages. `fits` is True if its P95 is within the remaining budget and time."""

    est_usd: Usd
    p95_usd: Usd
    p95_s: float
    fits: bool
    offers: tuple[str, ...]


def stage_outlines(decision: Decision) -> tuple[StageOutline, ...]:
    """Return an outline of each remaining stage; empty if nothing fits."""
    choice, question, candidates = decision.choice, decision.question, decision.candidates
    if choice is None:
        return ()
    pools, codes = {pool.name: pool for pool in question.pools}, decision.refusal_codes
    counts = np.bincount(decision.refusal_index[decision.refusal_index >= 0], minlength=len(codes)).tolist()
    rejected = [dict(zip(codes, counts, strict=True))]
    rejected += [_unusable(candidates, stage) for stage in range(1, len(question.needs))]
    chosen: list[tuple[Choice | PlannedStage, bool, Decimal, float]] = [
        (choice, choice.cached, choice.p95_usd, choice.p95_s)
    ]
    chosen += [(each, not each.reserved_s, each.reserved_usd, each.reserved_s) for each in decision.plan]
    return tuple(
        StageOutline(
            stage=need.stage,
            pool=taken.pool,
            market=taken.market,
            region=pools[taken.pool].region,
            machine=_machine(pools[taken.pool]),
            format=taken.format,
            cached=cached,
            est_usd=taken.est_usd,
            p95_usd=p95_usd,
            est_s=taken.est_s,
            p95_s=p95_s,
            rejected={reason: count for reason, count in against.items() if count},
            storage_class=taken.storage_class,
        )
        for need, against, (taken, cached, p95_usd, p95_s) in zip(
            question.needs, rejected, chosen, strict=True
        )
    )


def _machine(pool: Pool) -> str:
    return (
        f"{pool.gpu_count} x {pool.gpu or 'GPU'}"
        if pool.gpu_count
        else f"{pool.cores} core{'s' if pool.cores > 1 else ''}"
    )


def _unusable(candidates: Candidates, stage: int) -> dict[RefusalCode, int]:
    """Return by refusal code the number of offers of a later stage that are unusable at any budget."""
    offers = candidates.offers[stage]
    counts = (
        np.bincount(offers.exclusion[offers.exclusion >= 0], minlength=len(offers.exclusions))
        * len(offers.reads)
        * len(offers.writes)
    )
    return dict(zip(offers.exclusions, counts.tolist(), strict=True))


def pareto_front(question: Question, candidates: Candidates) -> tuple[OutlinePlan, ...]:
    """Return the Pareto-optimal plans, cheapest first and fastest last.

    Empty if a stage has no offer, or if stages branch: then the duration of a plan is not the sum of its
    stages.
    """
    if not build_dag(question.needs, question.upstream).is_chain:
        return ()
    full = _with_all_passes(candidates)
    limits, unlimited = RunLimits.of(question), RunLimits(UNBOUNDED, UNBOUNDED - 1, {})
    kinds, stages = TargetKinds(full), range(len(question.needs))
    options = {stage: StageOptions(question, full, unlimited, stage, kinds) for stage in stages}
    following = chain_plans(options, StageOptions.plans, _cheap_or_quick)
    starts = following[0].get(full.offers[0].reads[0])
    return (
        ()
        if starts is None
        else tuple(_plan(question, full, limits, following, index) for index in range(len(starts)))
    )


def _cheap_or_quick(cost: Ints, p95: Ints, ms: Ints) -> Ints:
    """Return the indices that no other dominates in cost and time; of equals, the one with the lowest P95
    cost.
    """
    order = np.lexsort((p95, ms, cost))
    return order[undominated(cost[order], np.zeros_like(p95), ms[order])]


def _with_all_passes(candidates: Candidates) -> Candidates:
    offers = tuple(
        each.model_copy(update={"min_work_us_by_machine": each.work_us_by_machine})
        for each in candidates.offers
    )
    return candidates.model_copy(update={"offers": offers})


def _plan(
    question: Question,
    candidates: Candidates,
    limits: RunLimits,
    following: Mapping[int, Mapping[int, PartialPlans]],
    index: int,
) -> OutlinePlan:
    format_left, est, offers = candidates.offers[0].reads[0], Decimal(0), list[str]()
    needs_micro, needs_ms = (int(getattr(following[0][format_left], name)[index]) for name in ("p95", "ms"))
    for stage in range(len(question.needs)):
        plans = following[stage][format_left]
        step = PlanStep(int(plans.target[index]), format_left, int(plans.writes[index]))
        est += from_microusd(step_cost(candidates, stage, step).est_microusd)
        pool, market, written, storage_class = named_step(candidates, stage, step)
        offers.append(f"{pool} {market}" + (f" {format_text(written, storage_class)}" if written else ""))
        format_left, index = int(plans.format_left[index]), int(plans.next_index[index])
    fits = needs_micro <= limits.left_micro and needs_ms <= limits.left_ms
    return OutlinePlan(
        est_usd=est,
        p95_usd=from_microusd(needs_micro),
        p95_s=needs_ms / 1000,
        fits=fits,
        offers=tuple(offers),
    )
