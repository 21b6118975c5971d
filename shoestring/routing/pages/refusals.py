"""Why each candidate of this stage was not taken: a code for all, and a sentence for those that a page shows first."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from shoestring.core.types import Market, Pool
from shoestring.routing.candidates import NONE, Candidates, Ints, RefusalCode
from shoestring.routing.decision import Refusal
from shoestring.routing.question import Question
from shoestring.routing.offers.factors import REASONS, coded
from shoestring.routing.pages import text
from shoestring.routing.planner.current_stage import Plans
from shoestring.routing.planner.dag_lookahead import DagLookahead

NUMBER = {reason: np.int8(number) for number, reason in enumerate(REASONS)}
"""In REASONS, in as few bytes as will do: there is one for each candidate."""

SPOKEN = 60
"""Candidates whose refusals are put into words: more than anybody reads, and few enough to be written at once."""


def by_price(possible: np.ndarray[tuple[int], np.dtype[np.bool_]], est: Ints, most: int) -> list[int]:
    """The first few candidates as a page lists them: those that could be used, the cheapest first, then the others by number."""
    costs = est[possible]
    if costs.size > most:
        costs.partition(most - 1)
        able = np.flatnonzero(possible & (est <= costs[most - 1]))
    else:
        able = np.flatnonzero(possible)
    rows: list[int] = [
        *able[np.argsort(est[able], kind="stable")].tolist(),
        *np.flatnonzero(~possible)[:most].tolist(),
    ]
    return rows[:most]


class RefusalWriter:
    """Everything that a refusal may have to say, looked up once. `best` is the candidate that was taken."""

    def __init__(self, question: Question, candidates: Candidates, plans: Plans, best: int | None) -> None:
        self.question, self.candidates, self.plans, self.best = question, candidates, plans, best
        self.here, self.limits = plans.here, plans.limits
        self.later, self.waits = text.later_stages(question), text.waiting(question)
        self.codes, self.code = self._codes()

    @cached_property
    def _pools(self) -> dict[str, Pool]:
        return {pool.name: pool for pool in self.question.pools}

    def _codes(self) -> tuple[tuple[RefusalCode, ...], Ints]:
        """The reasons that occur, and by candidate which of them it is; -1 for the one that was taken."""
        here, plans, limits, best = self.here, self.plans, self.limits, self.plans.best
        exclusions = np.array([*(NUMBER[each] for each in here.offers.exclusions), NONE], dtype=np.int8)
        verdicts = [
            (~here.possible, here.by_slot(exclusions[here.offers.exclusion], NONE)),
            (~here.within_cap, NUMBER[RefusalCode.OVER_STAGE_BUDGET]),
            (best.way != NONE, self._beaten()),
            (~plans.followed, NUMBER[RefusalCode.LATER_STAGE_INFEASIBLE]),
            (plans.needs_micro > limits.left_micro, NUMBER[RefusalCode.OVER_BUDGET]),
            (plans.needs_ms > limits.left_ms, NUMBER[RefusalCode.OVER_DEADLINE]),
        ]
        code = np.full(len(here), NUMBER[RefusalCode.OVER_BUDGET_OR_DEADLINE])
        # Of those that hold the first is said.
        for holds, reason in reversed(verdicts):
            np.copyto(code, reason, where=holds)
        if self.best is not None:
            code[self.best] = NONE
        return coded(code)

    def _beaten(self) -> npt.NDArray[np.int8]:
        best, taken = self.plans.best, self.best
        if taken is None:
            return np.full(len(best.way), NONE, dtype=np.int8)
        costlier = np.where(best.total > best.total[taken], NUMBER[RefusalCode.MORE_EXPENSIVE], NUMBER[RefusalCode.TIED])
        return np.where(best.samples < best.samples[taken], NUMBER[RefusalCode.FEWER_SAMPLES], costlier)

    def spoken(self) -> tuple[Refusal, ...]:
        """The refusals of the candidates that a page lists first, by number."""
        rows = sorted(by_price(self.here.possible, self.here.est, SPOKEN + 1))
        return tuple(
            Refusal(candidate=row, code=code, sentence=self._sentence(row, code))
            for row in rows
            if row != self.best
            for code in [self.codes[self.code[row]]]
        )

    def _sentence(self, row: int, code: RefusalCode) -> str:
        here, limits, best = self.here, self.limits, self.plans.best
        # Of a large market nearly all are costlier: what is usual comes first.
        match code:
            case RefusalCode.MORE_EXPENSIVE:
                dearer_micro = int(best.total[row] - best.total[self.best])
                return text.dearer(
                    int(best.est[row]), int(here.p95[row]), dearer_micro, self.later, self.waits
                )
            case RefusalCode.TIED:
                return text.as_good(int(best.est[row]), int(here.p95[row]))
            case RefusalCode.FEWER_SAMPLES:
                return text.fewer_samples(
                    int(best.samples[row]), int(best.samples[self.best] - best.samples[row])
                )
            case RefusalCode.OVER_STAGE_BUDGET:
                return text.over_stage_budget(
                    int(here.least_est[row]), int(here.least_p95[row]), limits.cap_micro(0)
                )
            case RefusalCode.LATER_STAGE_INFEASIBLE:
                return self._blocked()
            case RefusalCode.OVER_BUDGET:
                return self._over_budget(row)
            case RefusalCode.OVER_DEADLINE:
                return self._over_deadline(row)
            case RefusalCode.OVER_BUDGET_OR_DEADLINE:
                return text.over_either(self._over_budget(row), self._over_deadline(row))
            case _:
                return self._unusable(code, 0, row // here.width)

    def _over_budget(self, row: int) -> str:
        keep_micro = int(self.plans.needs_micro[row] - self.here.least_p95[row])
        return text.over_budget(
            int(self.here.least_est[row]),
            int(self.here.least_p95[row]),
            self.limits.left_micro,
            keep_micro,
            self.later,
        )

    def _over_deadline(self, row: int) -> str:
        needs_ms = int(self.plans.needs_ms[row])
        return text.over_deadline(needs_ms, self.limits.left_ms, self.plans.shortest_ms, self.later)

    def _unusable(self, code: RefusalCode, stage: int, slot: int) -> str:
        pool = self._pools[self.candidates.pools[self.candidates.pool[slot]]]
        market: Market = self.candidates.markets[self.candidates.market[slot]]
        return text.unusable(code, self.question, self.question.needs[stage], pool, market)

    def _blocked(self) -> str:
        """The first later stage that nothing can take, and what keeps it off the first offer it has; empty when each has an offer."""
        for stage, least in sorted(self.plans.ahead.blocked.items()):
            why = "there is no pool"
            exclusions = self.candidates.offers[stage].exclusion
            if least is not None:
                why = text.over_stage_budget(*least, self.limits.cap_micro(stage))
            elif exclusions.size:
                why = self._unusable(self.candidates.offers[stage].exclusions[exclusions[0]], stage, 0)
            return text.could_not_follow(self.question.needs[stage].stage, why)
        ahead = self.plans.ahead
        if isinstance(ahead, DagLookahead) and ahead.beside_ms > self.limits.left_ms:
            return text.late_beside(ahead.beside_ms, self.limits.left_ms)
        return ""
