"""Why each candidate was refused: a code for all of them, and a sentence for those that a page shows first.

Money is in whole micro-dollars, time in milliseconds.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from shoestring.core.text import join_names, microusd_text, ms_text
from shoestring.core.types import Market, Pool
from shoestring.routing.candidates import (
    NONE,
    REFUSAL_CODES,
    Candidates,
    Flags,
    Ints,
    RefusalCode,
    index_codes,
)
from shoestring.routing.decision import Refusal, sample_unit
from shoestring.routing.pages.unusable_offers import unusable
from shoestring.routing.planner.best_plans import BestPlans, price_order
from shoestring.routing.planner.candidate_plans import CandidatePlans
from shoestring.routing.question import Question

NUMBER = {code: np.int8(number) for number, code in enumerate(REFUSAL_CODES)}
"""The index of each code in REFUSAL_CODES. One byte, because there is one for every candidate."""

MAX_SENTENCES = 60
"""Refusals that get a sentence: more than a reader looks at, and few enough to write at once."""


def first_on_page(possible: Flags, est: Ints, maximum: int) -> list[int]:
    """Return the candidates that a page lists first: usable ones by price, then the others."""
    costs = est[possible]
    if costs.size > maximum:
        costs.partition(maximum - 1)
        usable = np.flatnonzero(possible & (est <= costs[maximum - 1]))
    else:
        usable = np.flatnonzero(possible)
    rows: list[int] = [
        *usable[np.argsort(est[usable], kind="stable")].tolist(),
        *np.flatnonzero(~possible)[:maximum].tolist(),
    ]
    return rows[:maximum]


class RefusalWriter:
    """Finds the refusal code of every candidate, and writes the sentences."""

    def __init__(self, question: Question, candidates: Candidates, plans: CandidatePlans) -> None:
        self.question, self.candidates, self.plans, self.chosen = question, candidates, plans, plans.chosen
        self.current, self.limits = plans.current, plans.limits
        self.with_later, self.delay = with_later_stages(question), delay_text(question)
        self.codes, self.index = self._codes()

    @cached_property
    def _pools(self) -> dict[str, Pool]:
        return {pool.name: pool for pool in self.question.pools}

    def _codes(self) -> tuple[tuple[RefusalCode, ...], Ints]:
        """Return the codes that occur, and the index of each candidate's code; -1 for the chosen one."""
        current, plans, limits, best = self.current, self.plans, self.limits, self.plans.best
        exclusions = np.array([*(NUMBER[each] for each in current.offers.exclusions), NONE], dtype=np.int8)
        conditions = [
            (~current.possible, current.by_target(exclusions[current.offers.exclusion], NONE)),
            (~current.within_cap, NUMBER[RefusalCode.OVER_STAGE_BUDGET]),
            (best.way != NONE, self._worse_than_chosen()),
            (~plans.has_continuation, NUMBER[RefusalCode.LATER_STAGE_INFEASIBLE]),
            (plans.needs_micro > limits.left_micro, NUMBER[RefusalCode.OVER_BUDGET]),
            (plans.needs_ms > limits.left_ms, NUMBER[RefusalCode.OVER_DEADLINE]),
        ]
        code = np.full(len(current), NUMBER[RefusalCode.OVER_BUDGET_OR_DEADLINE])
        # The first condition that holds decides.
        for holds, number in reversed(conditions):
            np.copyto(code, number, where=holds)
        if self.chosen is not None:
            code[self.chosen] = NONE
        return index_codes(code)

    def _worse_than_chosen(self) -> npt.NDArray[np.int8]:
        best, chosen = self.plans.best, self.chosen
        if chosen is None:
            return np.full(len(best.way), NONE, dtype=np.int8)
        tied = NUMBER[RefusalCode.TIED]
        same = best.samples == best.samples[chosen]
        more_expensive = same & (best.total > best.total[chosen])
        if (others := np.flatnonzero(best.counts & ~same)).size:
            theirs = np.full((2, others.size), [[best.total[chosen]], [best.samples[chosen]]])
            more_expensive[others] = price_order(best.total[others], best.samples[others], *theirs) > 0
        fewer = np.where(best.samples < best.samples[chosen], NUMBER[RefusalCode.FEWER_SAMPLES], tied)
        return np.where(more_expensive, NUMBER[RefusalCode.MORE_EXPENSIVE], fewer)

    def refusals(self) -> tuple[Refusal, ...]:
        """Return the refusals of the candidates that a page lists first, ordered by number."""
        first = first_on_page(self.current.possible, self.current.est, MAX_SENTENCES + 1)
        rows = sorted({*first, *([] if self.nearest is None else [self.nearest])})
        return tuple(
            Refusal(candidate=row, code=code, sentence=self._sentence(row, code))
            for row in rows
            if row != self.chosen
            for code in [self.codes[self.index[row]]]
        )

    @cached_property
    def nearest(self) -> int | None:
        """The candidate whose plans exceed the money or the time by the smallest share; None: there is a
        choice, or no candidate is possible.
        """
        current, plans = self.current, self.plans
        rows = np.flatnonzero(current.usable & plans.has_continuation)
        if self.chosen is not None or not rows.size:
            return None
        money = plans.needs_micro[rows] / max(self.limits.left_micro, 1)
        time = plans.needs_ms[rows] / max(self.limits.left_ms, 1)
        return int(rows[np.argmin(np.maximum(money, time))])

    def _samples(self, row: int) -> str:
        return f"{int(self.plans.best.samples[row]):,} {sample_unit(self.question.needs[0])}"

    def _sentence(self, row: int, code: RefusalCode) -> str:
        current, best = self.current, self.plans.best
        # In a large market nearly all are more expensive: the usual case comes first.
        match code:
            case RefusalCode.MORE_EXPENSIVE if best.samples[row] != best.samples[self.chosen]:
                each = f"each {more_for_each(best, row, self.chosen or 0)}"
                return f"{self._price(row)} for {self._samples(row)}, {each}{self.with_later}{self.delay}"
            case RefusalCode.MORE_EXPENSIVE:
                more = microusd_text(int(best.total[row] - best.total[self.chosen]))
                return f"{self._price(row)}, {more} more expensive{self.with_later}{self.delay}"
            case RefusalCode.TIED:
                return f"{self._price(row)}: tied with the choice, which comes first by P95 or by name"
            case RefusalCode.FEWER_SAMPLES:
                fewer = int(best.samples[self.chosen] - best.samples[row])
                return f"{self._samples(row)} expected, {fewer:,} fewer"
            case RefusalCode.OVER_STAGE_BUDGET:
                price = price_text(int(current.min_est[row]), int(current.min_p95[row]))
                return over_stage_budget(price, self.limits.cap_micro(0))
            case RefusalCode.LATER_STAGE_INFEASIBLE:
                return self._later_stage_infeasible()
            case RefusalCode.OVER_BUDGET:
                return self._over_budget(row)
            case RefusalCode.OVER_DEADLINE:
                return self._over_deadline(row)
            case RefusalCode.OVER_BUDGET_OR_DEADLINE:
                both = f"{self._over_budget(row)}; {self._over_deadline(row)}"
                return f"fits the budget or the deadline, but not both: {both}"
            case _:
                return self._unusable(code, 0, row // current.width)

    def _price(self, row: int) -> str:
        return price_text(int(self.plans.best.est[row]), int(self.current.p95[row]))

    def _over_budget(self, row: int) -> str:
        own_micro, left_micro = int(self.current.min_p95[row]), self.limits.left_micro
        later_micro = int(self.plans.needs_micro[row]) - own_micro
        left = f"{microusd_text(left_micro)} left"
        if left_micro < 0:
            left = f"nothing left: the budget is exceeded by {microusd_text(-left_micro)}"
        later = join_names([need.stage for need in self.question.needs[1:]])
        more = f" and {microusd_text(later_micro)} needed for {later}" if later_micro else ""
        return f"{price_text(int(self.current.min_est[row]), own_micro)}, {left}{more}"

    def _over_deadline(self, row: int) -> str:
        needs_ms, left_ms = int(self.plans.needs_ms[row]), max(self.limits.left_ms, 0)
        return f"{ms_text(needs_ms)} at P95{self.with_later}, {ms_text(left_ms)} left"

    def _unusable(self, code: RefusalCode, stage: int, target: int) -> str:
        pool = self._pools[self.candidates.pools[self.candidates.pool[target]]]
        market: Market = self.candidates.markets[self.candidates.market[target]]
        return unusable(code, self.question, self.question.needs[stage], pool, market)

    def _later_stage_infeasible(self) -> str:
        """Return which later stage no offer can run, and why its first offer cannot; empty: none."""
        for stage, price in sorted(self.plans.lookahead.blocked.items()):
            offers, reason = self.candidates.offers[stage], "there is no pool"
            if price is not None:
                reason = over_stage_budget(price_text(*price), self.limits.cap_micro(stage))
            elif offers.exclusion.size:
                reason = self._unusable(offers.exclusions[offers.exclusion[0]], stage, 0)
            return f"{self.question.needs[stage].stage} cannot follow: {reason}"
        parallel_ms, left_ms = self.plans.lookahead.parallel_ms, self.limits.left_ms
        if parallel_ms > left_ms:
            needed = f"the stages that do not wait for it take {ms_text(parallel_ms)} at P95"
            return f"{needed}, {ms_text(max(left_ms, 0))} left"
        return ""


def more_for_each(best: BestPlans, row: int, than: int) -> str:
    """Return how much more a sample costs in one plan than in another, as text: "3.1% more expensive"."""
    ours, theirs = best.price(row), best.price(than)
    if not theirs:
        return "more expensive"
    share = float(ours / theirs - 1)
    return f"{share:.1%} more expensive" if share >= 0.0005 else "less than 0.1% more expensive"


def price_text(est_micro: int, p95_micro: int) -> str:
    """Return a price as text: "$0.001000 expected (P95 $0.002000)"."""
    return f"{microusd_text(est_micro)} expected (P95 {microusd_text(p95_micro)})"


def over_stage_budget(price: str, cap_micro: int) -> str:
    """Return the sentence for an offer above the stage's own budget."""
    return f"{price}, the stage's own budget is {microusd_text(cap_micro)}"


def with_later_stages(question: Question) -> str:
    """Return the stages after this one as text: " with train and evaluate"; empty where there is none."""
    later = join_names([need.stage for need in question.needs[1:]])
    return f" with {later}" if later else ""


def delay_text(question: Question) -> str:
    """Return the price of delay as text; empty where the policy gives it none."""
    prices = dict.fromkeys(question.delay_microusd_per_hour(need) for need in question.needs)
    priced = [microusd_text(micro) for micro in prices if micro]
    return f", with delay at {' or '.join(priced)} an hour" if priced else ""
