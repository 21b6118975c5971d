"""A whole chain at a glance: what each stage would take and what is refused it, and what a plan that is done sooner would cost.

The pareto_front is exact: of all ways to do the remaining stages, on any offers, those of which no other is expected to cost less (with the price
of waiting, where a policy has one) and is done as soon at P95. An elastic stage is counted with all its passes; budget and deadline are no
limit, but each plan says whether it keeps to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

import numpy as np

from shoestring.core.money import Usd, from_microusd
from shoestring.core.record import Record
from shoestring.core.types import STANDARD_CLASS, Format, Market, Pool, StorageClassName
from shoestring.routing.candidates import Candidates, Ints, RefusalCode
from shoestring.routing.dag import build_dag
from shoestring.routing.decide import at_price, place_of
from shoestring.routing.decision import Choice, Decision, PlannedStage
from shoestring.routing.question import Question
from shoestring.routing.pages.text import lying
from shoestring.routing.planner.chain_planner import chained
from shoestring.routing.planner.pareto import undominated
from shoestring.routing.planner.partial_plans import UNBOUNDED, Limits, Step, Ways
from shoestring.routing.planner.stage_options import StageOptions, TargetKinds


class StageOutline(Record):
    """What one stage would take. P95: of an elastic stage the money and time that it may use at most, or at least where it comes later."""

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
    """One way to do all stages. `fits`: its P95 keeps to what is left of the budget and of the time."""

    est_usd: Usd
    p95_usd: Usd
    p95_s: float
    fits: bool
    offers: tuple[str, ...]


def stage_outlines(decision: Decision) -> tuple[StageOutline, ...]:
    """A line for each stage that remains; empty where nothing fits."""
    choice, question, candidates = decision.choice, decision.question, decision.candidates
    if choice is None:
        return ()
    pools, left = {pool.name: pool for pool in question.pools}, decision.refusal_index[decision.refusal_index >= 0]
    refused = [
        dict(zip(decision.refusal_codes, np.bincount(left, minlength=len(decision.refusal_codes)).tolist(), strict=True))
    ]
    refused += [_unusable(candidates, stage) for stage in range(1, len(question.needs))]
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
            question.needs, refused, chosen, strict=True
        )
    )


def _machine(pool: Pool) -> str:
    return (
        f"{pool.gpu_count} x {pool.gpu or 'GPU'}"
        if pool.gpu_count
        else f"{pool.cores} core{'s' if pool.cores > 1 else ''}"
    )


def _unusable(candidates: Candidates, stage: int) -> dict[RefusalCode, int]:
    """By reason, how many offers of a later stage nothing but another pool, price or policy would help."""
    offers = candidates.offers[stage]
    counts = (
        np.bincount(offers.exclusion[offers.exclusion >= 0], minlength=len(offers.exclusions))
        * len(offers.reads)
        * len(offers.writes)
    )
    return dict(zip(offers.exclusions, counts.tolist(), strict=True))


def pareto_front(question: Question, candidates: Candidates) -> tuple[OutlinePlan, ...]:
    """The cheapest plan first, the quickest last; empty where a stage has no offer at all, or stages branch: that is no sum of times."""
    if not build_dag(question.needs, question.upstream).is_chain:
        return ()
    whole = _with_all_passes(candidates)
    limits, free = Limits.of(question), Limits(UNBOUNDED, UNBOUNDED - 1, {})
    alike = TargetKinds(whole)
    own = {stage: StageOptions(question, whole, free, stage, alike) for stage in range(len(question.needs))}
    following = chained(own, StageOptions.of, _cheap_or_quick)
    starts = following[0].get(whole.offers[0].reads[0])
    return (
        ()
        if starts is None
        else tuple(_plan(question, whole, limits, following, place) for place in range(len(starts)))
    )


def _cheap_or_quick(cost: Ints, p95: Ints, ms: Ints) -> Ints:
    """Indices of those that no other beats in cost and time; of equals that whose P95 dollars are the least."""
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
    limits: Limits,
    following: Mapping[int, Mapping[int, Ways]],
    place: int,
) -> OutlinePlan:
    leaves, est, names = candidates.offers[0].reads[0], Decimal(0), []
    needs_micro, needs_ms = (int(getattr(following[0][leaves], name)[place]) for name in ("p95", "ms"))
    for stage in range(len(question.needs)):
        ways = following[stage][leaves]
        step = Step(int(ways.slot[place]), leaves, int(ways.writes[place]))
        est += from_microusd(at_price(candidates, stage, step)[0])
        pool, market, written, storage_class = place_of(candidates, stage, step)
        names.append(f"{pool} {market}" + (f" {lying(written, storage_class)}" if written else ""))
        leaves, place = int(ways.leaves[place]), int(ways.then[place])
    fits = needs_micro <= limits.left_micro and needs_ms <= limits.left_ms
    return OutlinePlan(
        est_usd=est, p95_usd=from_microusd(needs_micro), p95_s=needs_ms / 1000, fits=fits, offers=tuple(names)
    )
