"""Compute in hindsight what the offers of a decision would have cost. Pure.

Each candidate is priced again for the work that was actually done (hindsight_pricing.py), and the pipeline
is planned again with those prices. The regret of a choice is the cost of the best plan that begins with it,
minus the cost of the best plan of all. The main cause is the assumption that, had it alone been known,
would have saved the most. The assumption "work" is the amount of work to do, without the limits of budget
and deadline.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from itertools import islice
from typing import Literal

from pydantic import Field

from shoestring.core.money import Usd, from_microusd
from shoestring.core.record import Record
from shoestring.core.types import STANDARD_CLASS, Format, Market, StorageClassName
from shoestring.routing.analysis.counterfactual import CounterfactualPlans
from shoestring.routing.analysis.hindsight_pricing import (
    KNOWABLE_ASSUMPTIONS,
    Assumption,
    HindsightPricing,
    KnownFacts,
)
from shoestring.routing.decision import Decision
from shoestring.routing.pages.decision_view import selected_row

MAX_OFFERS_SHOWN = 60
"""Offers that are listed: the cheapest for the stage itself. The best one is found among all offers."""


class CounterfactualOffer(Record):
    """An offer with its counterfactual cost.

    `total_*` includes the later stages of the best plan that begins with it.
    """

    pool: str
    market: Market
    format: Format | None
    expected_usd: Usd = Field(description="estimate at the time of the decision, for the work that was done")
    stage_usd: Usd
    stage_s: float
    total_usd: Usd
    total_s: float
    selected: bool
    best: bool
    storage_class: StorageClassName = STANDARD_CLASS


class Hindsight(Record):
    """The cost of a choice, compared with the best available choice."""

    run_id: str
    stage: str
    attempt: int
    paid_usd: Usd = Field(description="dollars paid for the stage, from this attempt on")
    actual_s: float
    regret_usd: Usd
    regret_s: float = Field(
        description="seconds by which the best plan would finish earlier; negative: later"
    )
    saved_by_knowing: dict[Assumption, Usd] = Field(
        description="dollars saved if only this assumption had been known; 'work': only the amount of work"
    )
    main_cause: Assumption | Literal[""] = Field(
        description="the assumption that would have saved the most; empty without regret"
    )
    offers: tuple[CounterfactualOffer, ...] = Field(description="lowest total cost first")
    offers_omitted: int = Field(
        0, description="offers that are not listed: too late with any plan, or more expensive for the stage"
    )


def hindsight(decision: Decision, known: KnownFacts) -> Hindsight | None:
    """Price all offers of a decision with the facts known now.

    Return None if nothing was chosen, the result was cached, or the stage never completed.
    """
    row, stage = selected_row(decision), decision.question.stage
    if row is None or decision.choice is None or decision.choice.cached or stage not in known.actuals:
        return None
    actual, pricing = known.actuals[stage], HindsightPricing(decision, known)
    truth = pricing.plans(frozenset(KNOWABLE_ASSUMPTIONS))
    best_row = truth.best()
    selected, best = truth.total(row), truth.total(best_row)
    saved = _saved_by_knowing(pricing, truth, selected.micro)
    regret = selected.micro - best.micro
    usable = pricing.usable_rows()
    ordered = sorted(usable, key=lambda each: (each not in (row, best_row), truth.micro[each], each))
    shown = [*islice(filter(truth.is_in_time, ordered), MAX_OFFERS_SHOWN)]
    offers = [_offer(pricing, truth, each, row, best_row) for each in shown]
    return Hindsight(
        run_id=decision.question.run_id,
        stage=stage,
        attempt=decision.question.attempt,
        paid_usd=from_microusd(actual.paid_microusd),
        actual_s=actual.ms / 1000,
        regret_usd=from_microusd(regret),
        regret_s=(selected.ms - best.ms) / 1000,
        saved_by_knowing={name: from_microusd(amount) for name, amount in saved.items()},
        main_cause=max(saved, key=lambda name: saved[name]) if regret > 0 else "",
        offers=tuple(sorted(offers, key=lambda offer: (offer.total_usd, not offer.best, offer.total_s))),
        offers_omitted=len(usable) - len(shown),
    )


def _saved_by_knowing(
    pricing: HindsightPricing, truth: CounterfactualPlans, selected_micro: int
) -> dict[Assumption, int]:
    """Return the micro-dollars saved by a choice that knows one assumption alone."""
    known: dict[Assumption, frozenset[str]] = {"work": frozenset()}
    known |= {name: frozenset({name}) for name in KNOWABLE_ASSUMPTIONS}
    return {
        name: selected_micro - truth.total(pricing.plans(facts).best()).micro for name, facts in known.items()
    }


def _offer(
    pricing: HindsightPricing, truth: CounterfactualPlans, row: int, selected: int, best: int
) -> CounterfactualOffer:
    """Return one offer with its estimated and its counterfactual cost."""
    total, columns = truth.total(row), pricing.table
    written, storage_class = pricing.candidates.stored_format(columns.writes[row])
    pool, market = pricing.target(row)
    return CounterfactualOffer(
        pool=pool,
        market=market,
        format=written,
        expected_usd=from_microusd(pricing.cost(row, frozenset()).micro),
        stage_usd=from_microusd(truth.micro[row]),
        stage_s=int(truth.ms[row]) / 1000,
        total_usd=from_microusd(total.micro),
        total_s=total.ms / 1000,
        selected=row == selected,
        best=row == best,
        storage_class=storage_class,
    )


def total_regrets(found: Iterable[Hindsight]) -> tuple[dict[str, Decimal], dict[str, Decimal]]:
    """PlanCost regret in dollars by stage, and by the assumption that was to blame."""
    by_stage: dict[str, Decimal] = {}
    by_cause: dict[str, Decimal] = {}
    for each in found:
        by_stage[each.stage] = by_stage.get(each.stage, Decimal(0)) + each.regret_usd
        if each.main_cause:
            by_cause[each.main_cause] = by_cause.get(each.main_cause, Decimal(0)) + each.regret_usd
    return by_stage, by_cause
