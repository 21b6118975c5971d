"""Why each candidate of this stage was not taken."""

from __future__ import annotations

import numpy as np

from shoestring.model import Market, Pool
from shoestring.routing import sentences
from shoestring.routing.decision import Candidates, Question, Reason, Refusal
from shoestring.routing.plan import Ints, Limits, Plans, Table


def first_by_candidate(pairs: Plans, order: Ints) -> dict[int, int]:
    """Candidate -> its first plan in this order."""
    rows, at = np.unique(pairs.candidate[order], return_index=True)
    return dict(zip(rows.tolist(), order[at].tolist(), strict=True))


class Refuser:
    """Everything that a refusal may have to say, looked up once. `ranked` holds the plans that fit, best first."""

    def __init__(self, question: Question, candidates: Candidates, limits: Limits, table: Table, pairs: Plans, ranked: Ints) -> None:
        self.question, self.candidates, self.limits, self.table, self.pairs = question, candidates, limits, table, pairs
        self.pools = {pool.name: pool for pool in question.pools}
        self.later = sentences.later_stages(question)
        self.best = int(ranked[0]) if len(ranked) else None
        self.best_of = first_by_candidate(pairs, ranked)
        self.cheapest_of = first_by_candidate(pairs, np.lexsort((pairs.needs_ms, pairs.needs_micro)))
        self.quickest_of = first_by_candidate(pairs, np.lexsort((pairs.needs_micro, pairs.needs_ms)))
        affordable_ms = pairs.needs_ms[pairs.needs_micro <= limits.left_micro]
        self.shortest_ms = int(affordable_ms.min()) if len(affordable_ms) else None
        self.blocked = self._blocked()

    def all(self) -> tuple[Refusal, ...]:
        """One refusal for every candidate of this stage but the chosen."""
        chosen = None if self.best is None else int(self.pairs.candidate[self.best])
        rows = [row for row in np.flatnonzero(self.table.stage == 0).tolist() if row != chosen]
        return tuple(Refusal(candidate=row, code=code, sentence=sentence) for row in rows for code, sentence in [self._why(row)])

    def _pool(self, row: int) -> Pool:
        return self.pools[self.candidates.pools[self.candidates.pool[row]]]

    def _market(self, row: int) -> Market:
        return self.candidates.markets[self.candidates.market[row]]

    def _why(self, row: int) -> tuple[Reason, str]:
        table = self.table
        if not table.possible[row]:
            return self._unusable(row)
        least, least_p95 = int(table.least_est[row]), int(table.least_p95[row])
        if not table.within_cap[row]:
            return Reason.STAGE_BUDGET, sentences.over_stage_budget(least, least_p95, self.limits.cap_micro(0))
        if row in self.best_of:
            return self._beaten(self.best_of[row])
        if row not in self.cheapest_of:
            return Reason.LATER_STAGE, self.blocked
        cheapest, quickest = self.cheapest_of[row], self.quickest_of[row]
        money = sentences.over_budget(least, least_p95, self.limits.left_micro, int(self.pairs.keep_micro[cheapest]), self.later)
        time = sentences.over_deadline(int(self.pairs.needs_ms[quickest]), self.limits.left_ms, self.shortest_ms, self.later)
        if self.pairs.needs_micro[cheapest] > self.limits.left_micro:
            return Reason.BUDGET, money
        if self.pairs.needs_ms[quickest] > self.limits.left_ms:
            return Reason.DEADLINE, time
        return Reason.BUDGET_AND_DEADLINE, sentences.over_either(money, time)

    def _unusable(self, row: int) -> tuple[Reason, str]:
        code, need = Reason(self.candidates.objection[row]), self.question.needs[int(self.table.stage[row])]
        return code, sentences.unusable(code, self.question, need, self._pool(row), self._market(row))

    def _beaten(self, plan: int) -> tuple[Reason, str]:
        pairs, row = self.pairs, int(self.pairs.candidate[plan])
        est, p95 = int(pairs.est[plan]), int(self.table.p95[row])
        if fewer := int(pairs.samples[self.best] - pairs.samples[plan]):
            return Reason.FEWER_SAMPLES, sentences.fewer_samples(int(pairs.samples[plan]), fewer)
        if dearer := int(pairs.cost_total[plan] - pairs.cost_total[self.best]):
            return Reason.COSTLIER, sentences.dearer(est, p95, dearer, self.later, sentences.waiting(self.question))
        return Reason.TIE, sentences.as_good(est, p95)

    def _blocked(self) -> str:
        """The first later stage that nothing can take, and what keeps it off the first offer it has; empty when each has an offer."""
        for number, need in enumerate(self.question.needs[1:], 1):
            rows = np.flatnonzero(self.table.stage == number).tolist()
            if not self.table.usable[rows].any():
                why = self._keeps_off(rows[0], number) if rows else "there is no pool"
                return sentences.could_not_follow(need.stage, why)
        return ""

    def _keeps_off(self, row: int, number: int) -> str:
        if not self.table.possible[row]:
            return self._unusable(row)[1]
        est, p95 = int(self.table.least_est[row]), int(self.table.least_p95[row])
        return sentences.over_stage_budget(est, p95, self.limits.cap_micro(number))
