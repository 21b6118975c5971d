"""The road not taken: what a decision's offers would have cost, by what its stages turned out to take. Pure.

Each candidate is priced again for the work that was really done, and the chain is planned again over those prices:

    seconds = start-up + working + lost to preemption           each as it was expected, or as it is known now
    working = expected working x (true / expected working of the stage, where it ran)     or, on a pool that receipts tell of,
              prior x the median of true / prior there
    dollars = price x seconds + what moving and holding bytes costs

The regret of a choice is what it cost with the best way on from it, less the best way of all. What is to blame is the assumption that
would have saved the most, had it alone been known. ("work": how much there was to do, without the limits of money and time.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import Literal

import numpy as np
from pydantic import Field

from shoestring.core.money import Usd, from_microusd
from shoestring.core.record import Record
from shoestring.core.types import STANDARD_CLASS, Format, Market, StorageClassName
from shoestring.routing.analysis.counterfactual import CounterfactualPlans, PlanCost
from shoestring.routing.candidates import MS_PER_HOUR, NONE
from shoestring.routing.dag import build_dag
from shoestring.routing.decision import Decision
from shoestring.routing.offers.offer_costs import full_offer_table
from shoestring.routing.pages.decision_view import interpolate, selected_row
from shoestring.routing.planner.dag_lookahead import ways_to_read
from shoestring.routing.planner.partial_plans import UNBOUNDED

Assumption = Literal["work", "price", "speed", "start-up", "preemption"]
KNOWABLE_ASSUMPTIONS: tuple[Assumption, ...] = ("price", "speed", "start-up", "preemption")
MAX_OFFERS_SHOWN = 60
"""CounterfactualPlans that are followed to their end, the cheapest for the stage itself; the best is found among all of them."""

Target = tuple[str, Market]


@dataclass(frozen=True, slots=True)
class StageActuals:
    """What a stage took from a decision on. `working_ms`: the attempt that was done, its start-up apart; `lost_ms`: those before it.

    `paid_microusd` is for all of them, `fees_microusd` what of it was not for time. `samples`: of an elastic stage; `writes`, on the
    storage class `storage_class`: of one that does.
    """

    target: Target
    paid_microusd: int
    working_ms: int
    startup_ms: int
    lost_ms: int
    samples: int
    writes: Format | None = None
    fees_microusd: int = 0
    storage_class: str = STANDARD_CLASS

    @property
    def ms(self) -> int:
        return self.working_ms + self.startup_ms + self.lost_ms


@dataclass(frozen=True, slots=True)
class KnownFacts:
    """What is known now. `took`: by stage. `rates`: true over prior seconds, by stage and pool. `prices`: micro-dollars an hour; a
    place that is not in it keeps the price that it had."""

    actuals: Mapping[str, StageActuals]
    speed_ratios: Mapping[tuple[str, str], float]
    prices: Mapping[Target, int]


class CounterfactualOffer(Record):
    """An offer, and what it would have come to. `total_*`: with the later stages, on the best way on from it."""

    pool: str
    market: Market
    format: Format | None
    expected_usd: Usd = Field(description="for the work that was done, as it was expected then")
    stage_usd: Usd
    stage_s: float
    total_usd: Usd
    total_s: float
    selected: bool
    best: bool
    storage_class: StorageClassName = STANDARD_CLASS


class Hindsight(Record):
    """What a choice cost beside the best that could have been had."""

    run_id: str
    stage: str
    attempt: int
    paid_usd: Usd = Field(description="for the stage, from this attempt on")
    actual_s: float
    regret_usd: Usd
    regret_s: float = Field(description="seconds that the best road would have been sooner; below 0: later")
    saved_by_knowing: dict[Assumption, Usd] = Field(
        description="what would have been saved, had that alone been known; 'work': nothing but how much work there was"
    )
    main_cause: Assumption | Literal[""] = Field(
        description="the one that would have saved the most; empty: nothing is to be regretted"
    )
    offers: tuple[CounterfactualOffer, ...] = Field(description="cheapest in total first")
    offers_omitted: int = Field(
        0, description="that are not shown: too late whatever comes after, or dearer for the stage itself"
    )


def hindsight(decision: Decision, known: KnownFacts) -> Hindsight | None:
    """Price all of a decision's offers by what is known now. None where there is nothing to look back on: nothing was chosen, the
    result was there already, or the stage was never done."""
    row, stage = selected_row(decision), decision.question.stage
    if row is None or decision.choice is None or decision.choice.cached or stage not in known.actuals:
        return None
    took, look = known.actuals[stage], HindsightPricing(decision, known)
    truth = look.by(frozenset(KNOWABLE_ASSUMPTIONS))
    taken = truth.total(row)
    best_row = truth.best()
    best = truth.total(best_row)
    saved = {"work": taken.micro - truth.total(look.by(frozenset()).best()).micro}
    saved |= {
        name: taken.micro - truth.total(look.by(frozenset({name})).best()).micro
        for name in KNOWABLE_ASSUMPTIONS
    }
    regret = taken.micro - best.micro
    blamed = max(saved, key=lambda name: saved[name]) if regret > 0 else ""
    mine = [each for each in look.mine if look.then.exclusion[each] == NONE]
    ordered = sorted(mine, key=lambda each: (each not in (row, best_row), truth.micro[each], each))
    shown = [*islice(filter(truth.is_in_time, ordered), MAX_OFFERS_SHOWN)]
    roads = [look.road(truth, each, row, best_row) for each in shown]
    return Hindsight(
        run_id=decision.question.run_id,
        stage=stage,
        attempt=decision.question.attempt,
        paid_usd=from_microusd(took.paid_microusd),
        actual_s=took.ms / 1000,
        regret_usd=from_microusd(regret),
        regret_s=(taken.ms - best.ms) / 1000,
        saved_by_knowing={name: from_microusd(amount) for name, amount in saved.items()},
        main_cause=blamed,
        offers=tuple(sorted(roads, key=lambda road: (road.total_usd, not road.best, road.total_s))),
        offers_omitted=len(mine) - len(shown),
    )


class HindsightPricing:
    """One decision, looked back on."""

    def __init__(self, decision: Decision, known: KnownFacts) -> None:
        self.decision, self.known, self.names, self.then = (
            decision,
            known,
            decision.candidates,
            full_offer_table(decision.candidates),
        )
        self.needs = decision.question.needs
        self.mine: list[int] = np.flatnonzero(self.then.stage == 0).tolist()
        self.left_ms = self._left_ms()
        self.expected = {row: self._expected_ms(row) for row in range(len(self.then.stage))}
        self.chosen = self._chosen()

    def by(self, knowing: frozenset[str]) -> CounterfactualPlans:
        """Every offer for the work that was done, where of what is known now only `knowing` is."""
        priced = [self._priced(row, knowing) for row in range(len(self.then.stage))]
        micro, ms = np.array([each.micro for each in priced]), np.array([each.ms for each in priced])
        return CounterfactualPlans(
            self.decision.question, self.names, self.then, micro, ms, self.left_ms, self.chosen[0]
        )

    def road(self, truth: CounterfactualPlans, row: int, taken: int, best: int) -> CounterfactualOffer:
        total, names, columns = truth.total(row), self.names, self.then
        written, storage_class = names.lying(columns.writes[row])
        return CounterfactualOffer(
            pool=names.pools[columns.pool[row]],
            market=names.markets[columns.market[row]],
            format=written,
            expected_usd=from_microusd(self._priced(row, frozenset()).micro),
            stage_usd=from_microusd(truth.micro[row]),
            stage_s=int(truth.ms[row]) / 1000,
            total_usd=from_microusd(total.micro),
            total_s=total.ms / 1000,
            selected=row == taken,
            best=row == best,
            storage_class=storage_class,
        )

    def _left_ms(self) -> int:
        """The deadline stays, unless the road that was taken broke it."""
        left_s = self.decision.question.deadline_left_s
        took = sum(each.ms for each in self.known.actuals.values())
        return UNBOUNDED if left_s is None else max(int(left_s * 1000), took)

    def _place(self, row: int) -> Target:
        return self.names.pools[self.then.pool[row]], self.names.markets[self.then.market[row]]

    def _took(self, row: int) -> StageActuals | None:
        return (
            None if self.then.cached[row] else self.known.actuals.get(self.names.stages[self.then.stage[row]])
        )

    def _samples(self, row: int) -> int:
        """Of an elastic stage that ran, what it did; else 0."""
        took = self._took(row)
        return took.samples if took and self.decision.question.needs[self.then.stage[row]].elastic else 0

    def _expected_ms(self, row: int) -> int:
        samples, columns = self._samples(row), self.then
        if not samples:
            return int(columns.est_ms[row])
        between = int(columns.min_samples[row]), int(columns.samples[row])
        return interpolate(samples, between, (int(columns.min_est_ms[row]), int(columns.est_ms[row])))

    def _working_ms(self, row: int) -> int:
        return max(0, self.expected[row] - int(self.then.startup_ms[row] + self.then.loss_ms[row]))

    def _chosen(self) -> dict[int, int]:
        """Stage number -> the row that was taken there: of this stage by the decision, of a later one by where it ran, on what it found."""
        columns, found, question = self.then, dict[int, int](), self.decision.question
        shape = build_dag(question.needs, question.upstream)
        readings = ways_to_read(question, self.names, shape)
        for number in range(len(self.needs)):
            rows: list[int] = np.flatnonzero(columns.stage == number).tolist()
            mine = {each: int(columns.writes[found[each]]) for each in shape.sources[number] if each in found}
            there = {
                code for code, way in readings[number].items() if self._lies(shape.sources[number], way, mine)
            }
            row = (
                selected_row(self.decision)
                if number == 0
                else next((row for row in rows if self._ran(row, there)), None)
            )
            if row is not None:
                found[number] = row
        return found

    def _lies(self, sources: tuple[int, ...], way: tuple[int, ...], mine: dict[int, int]) -> bool:
        """Do data sets lie as a stage would read them in this way, those that stages which are known to have run have left?"""
        return all(
            mine.get(source, NONE if source >= 0 else lies) == lies
            for source, lies in zip(sources, way, strict=True)
        )

    def _ran(self, row: int, there: set[int]) -> bool:
        columns, took = self.then, self._took(row)
        if (
            took is None
            or columns.exclusion[row] != NONE
            or took.target != self._place(row)
            or columns.reads[row] not in there
        ):
            return False
        return bool(columns.writes[row] == NONE) or self.names.lying(columns.writes[row]) == (
            took.writes,
            took.storage_class,
        )

    def _priced(self, row: int, knowing: frozenset[str]) -> PlanCost:
        columns, took = self.then, self._took(row)
        if took is None or columns.exclusion[row] != NONE:
            return PlanCost(int(columns.est_microusd[row]), int(columns.est_ms[row]))
        working = self._known_working_ms(row, took) if "speed" in knowing else self._working_ms(row)
        startup = self._known_startup_ms(row, took) if "start-up" in knowing else int(columns.startup_ms[row])
        same = took.target == self._place(row)
        loss = took.lost_ms if same and "preemption" in knowing else int(columns.loss_ms[row])
        price = int(columns.usd_per_hour_micro[row])
        price = self.known.prices.get(self._place(row), price) if "price" in knowing else price
        ms, fees = (
            startup + working + loss,
            int(columns.transfer_microusd[row] + columns.storage_microusd[row]),
        )
        if (
            row == self.chosen.get(int(columns.stage[row]))
            and knowing >= set(KNOWABLE_ASSUMPTIONS)
            and price == columns.usd_per_hour_micro[row]
        ):
            return PlanCost(took.paid_microusd - took.fees_microusd + fees, ms)
        return PlanCost(-(-price * ms // MS_PER_HOUR) + fees, ms)

    def _known_working_ms(self, row: int, took: StageActuals) -> int:
        stage = self.names.stages[self.then.stage[row]]
        chosen = self.chosen.get(int(self.then.stage[row]))
        if row == chosen:
            return took.working_ms
        rate = self.known.speed_ratios.get((stage, self._place(row)[0]))
        if rate is not None and took.target[0] != self._place(row)[0]:
            return round(self._prior_ms(row) * rate)
        before = self._working_ms(chosen) if chosen is not None else 0
        return -(-self._working_ms(row) * took.working_ms // before) if before else self._working_ms(row)

    def _prior_ms(self, row: int) -> int:
        samples, columns = self._samples(row), self.then
        fixed, most, prior = int(columns.fixed_ms[row]), int(columns.samples[row]), int(columns.prior_ms[row])
        return fixed + (prior - fixed) * samples // most if samples and most else prior

    def _known_startup_ms(self, row: int, took: StageActuals) -> int:
        """Where nobody was charged for starting up, nobody would have been elsewhere."""
        if took.target[0] == self._place(row)[0] or not took.startup_ms:
            return took.startup_ms
        return int(self.then.startup_ms[row])


def total_regrets(found: Iterable[Hindsight]) -> tuple[dict[str, Decimal], dict[str, Decimal]]:
    """PlanCost regret in dollars by stage, and by the assumption that was to blame."""
    by_stage: dict[str, Decimal] = {}
    by_blame: dict[str, Decimal] = {}
    for each in found:
        by_stage[each.stage] = by_stage.get(each.stage, Decimal(0)) + each.regret_usd
        if each.main_cause:
            by_blame[each.main_cause] = by_blame.get(each.main_cause, Decimal(0)) + each.regret_usd
    return by_stage, by_blame
