"""The money that is held back, so that an admitted run survives an overrun of one of its stages, and no stage
is stopped for want of what its supervisor keeps back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from shoestring.config.policy import Policy
from shoestring.core.money import capped_usd, from_microusd, microusd
from shoestring.core.types import Market, Need
from shoestring.routing.candidates import Candidates
from shoestring.routing.dag import build_dag
from shoestring.routing.decide import choose
from shoestring.routing.decision import Decision
from shoestring.routing.planner.partial_plans import CACHED
from shoestring.routing.question import Question
from shoestring.routing.smallest_limits import smallest_plan_costs
from shoestring.spending.exit_money import kept_back_usd

# How much a stage that exceeds its P95 usually needs, as a share of the P95.
OVERRUN_SHARE = Decimal("0.2")


def decide_with_headroom(question: Question, offers: Candidates, policy: Policy) -> Decision:
    """Return the decision for the first stage of a new run, with extension headroom held back."""
    return choose(_holding(question, extension_headroom_usd(question, offers, policy)), offers)


def extension_headroom_usd(question: Question, offers: Candidates, policy: Policy) -> Decimal:
    """Return what any one stage of fixed work usually needs beyond its P95, so that an admitted run survives
    one overrun, and what its supervisor keeps back meanwhile.

    When a stage overruns, the stages before it have released the difference between their P95 and their
    expected cost, and the later stages still hold theirs. So the headroom is the maximum, over stages, of an
    overrun less what was released before it. One stage in 20 exceeds its P95; two of one run rarely do.

    A supervisor keeps back an exit and an answer of the ledger, on a floating market at the on-demand price.
    A short stage on spot would be stopped by that alone. In a chain, one stage keeps it back at a time.

    Of simulated runs whose budget is twice their expected cost, half an extension of the most expensive stage
    refused 42%, this refuses 32%, and 99% of the runs that started were completed either way
    (bench/simulated_money.py). The plan is that of the smallest budget without a deadline, so that the
    headroom is the same for every budget and deadline: a larger budget may try a pool with few receipts,
    whose P95 is less certain.
    """
    free = question.model_copy(
        update={"stage_budgets": {}, "budget_usd": Decimal(0), "deadline_left_s": None}
    )
    stages, released_micro = _smallest_plan(free, offers, policy), Decimal(0)
    all_kept_micro = sum(each.kept_micro for each in stages)
    is_chain = build_dag(question.needs, question.upstream).is_chain
    headroom_micro = Decimal(0)
    for index, each in enumerate(stages):
        overrun_micro, kept_micro = Decimal(0), each.kept_micro
        if each.elastic:
            kept_micro += _kept_after_micro(question, stages[index + 1 :])
        else:
            overrun_micro = max(overrun_micro, OVERRUN_SHARE * each.p95_micro / each.items - released_micro)
            released_micro += each.p95_micro - each.est_micro
        headroom_micro = max(headroom_micro, overrun_micro + (kept_micro if is_chain else all_kept_micro))
    return capped_usd(headroom_micro.scaleb(-6))


def leaving_exits(question: Question, offers: Candidates, policy: Policy) -> Question:
    """Return a question about an elastic stage that leaves what later supervisors keep back, as far as there
    is money for it. Any other question is returned as it is.

    An elastic stage is given all money beyond the P95 of the later stages, and may spend it.
    """
    if not question.needs[0].elastic:
        return question
    stages = _smallest_plan(question, offers, policy)
    free_micro = microusd(question.left_usd) - sum(each.p95_micro for each in stages)
    kept_micro = _kept_after_micro(question, stages[1:])
    return _holding(question, from_microusd(max(0, min(kept_micro, free_micro))))


def _kept_after_micro(question: Question, later: Sequence[StageMoney]) -> int:
    """Return what the supervisors of later stages keep back together: in a chain, one does at a time."""
    kept_micro = [each.kept_micro for each in later]
    is_chain = build_dag(question.needs, question.upstream).is_chain
    return max(kept_micro, default=0) if is_chain else sum(kept_micro)


def _holding(question: Question, amount_usd: Decimal) -> Question:
    return question.model_copy(update={"held_usd": capped_usd(question.held_usd + amount_usd)})


@dataclass(frozen=True, slots=True)
class StageMoney:
    """The money that a stage of a plan needs, in micro-dollars. `kept_micro`: kept back by the supervisors of
    its `items`.
    """

    elastic: bool
    est_micro: int
    p95_micro: int
    kept_micro: int
    items: int = 1


def _smallest_plan(question: Question, offers: Candidates, policy: Policy) -> list[StageMoney]:
    """Return the stages of the plan that needs the smallest budget; empty: no budget is enough."""
    return [
        StageMoney(
            need.elastic,
            cost.est_microusd,
            cost.p95_min_microusd,
            0
            if target == CACHED
            else need.items * microusd(_kept_usd(question, offers, need, target, policy)),
            max(1, need.items),
        )
        for need, (target, cost) in zip(question.needs, smallest_plan_costs(question, offers), strict=False)
    ]


def _kept_usd(question: Question, offers: Candidates, need: Need, target: int, policy: Policy) -> Decimal:
    """Return what the supervisor of a stage keeps back on a target. Of an elastic stage, which is never
    extended, it is the exit; the answer's price is then left for the work.
    """
    usd_per_hour = from_microusd(int(offers.usd_per_hour_micro[target]))
    floats = offers.markets[offers.market[target]] in policy.floating_markets
    pool = offers.pools[offers.pool[target]]
    on_demand = question.quote(pool, Market.ON_DEMAND) if floats else None
    fallback = max(usd_per_hour, on_demand.usd_per_hour if on_demand else Decimal(0))
    end_s = need.checkpoint_s + policy.pod_exit_s
    request_s = question.store_wait.request_s
    return kept_back_usd(usd_per_hour, fallback, end_s, request_s, elastic=need.elastic)
