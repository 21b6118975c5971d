"""Every road from one stage to the end, by prices that are known one by one. Budgets are no limit: roads are compared by what they cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoestring.routing.candidates import NONE, Ints
from shoestring.routing.decision import Question
from shoestring.routing.front import undominated
from shoestring.routing.priced import Rows, time_cost
from shoestring.routing.ways import waiting


@dataclass(frozen=True, slots=True)
class Total:
    micro: int
    ms: int


@dataclass(frozen=True, slots=True)
class Onward:
    """Ways to do the later stages, undominated: what plans are compared by, money, time."""

    cost: Ints
    micro: Ints
    ms: Ints


class Roads:
    """Offers of all stages (`rows`) at these micro-dollars and milliseconds, one a row; a road takes `left_ms` at most."""

    def __init__(self, question: Question, rows: Rows, micro: Ints, ms: Ints, left_ms: int) -> None:
        self.rows, self.micro, self.ms, self.left_ms = rows, micro, ms, left_ms
        writes = np.array([need.writes_bytes_per_row > 0 for need in question.needs])[rows.stage]
        self.leaves = np.where(writes, rows.writes, rows.reads)
        worth = [waiting(question, stage) for stage in range(len(question.needs))]
        # What roads are compared by: money, and the time that a policy has a price for.
        self.cost = micro.copy()
        for stage, micro_per_hour in enumerate(worth):
            self.cost[rows.stage == stage] += time_cost(ms[rows.stage == stage], micro_per_hour)
        self.onward = self._onward(len(question.needs))

    def best(self) -> int:
        """The offer for the first stage that the best road begins with."""
        ends = {row: self._end(row) for row in np.flatnonzero((self.rows.stage == 0) & (self.rows.objection == NONE)).tolist()}
        return min((end, row) for row, end in ends.items() if end is not None)[1]

    def total(self, row: int) -> Total:
        """What an offer comes to with the best way on from it; alone, where there is none."""
        end = self._end(row)
        return Total(int(self.micro[row]), int(self.ms[row])) if end is None else Total(end[1], end[2])

    def _end(self, row: int) -> tuple[int, int, int] | None:
        """Cost, money and time of an offer with the best way on from it that is in time; None: there is none."""
        if (ways := self.onward.get(int(self.leaves[row]))) is None:
            return None
        cost, micro, ms = ways.cost + self.cost[row], ways.micro + self.micro[row], ways.ms + self.ms[row]
        in_time = np.flatnonzero(ms <= self.left_ms)
        return min(((int(cost[each]), int(micro[each]), int(ms[each])) for each in in_time), default=None)

    def _onward(self, stages: int) -> dict[int, Onward]:
        """By the format that the first stage leaves, the ways to do all later ones."""
        nothing = np.zeros(1, dtype=np.int64)
        following = {leaves: Onward(nothing, nothing, nothing) for leaves in np.unique(self.leaves).tolist()}
        for stage in range(stages - 1, 0, -1):
            found: dict[int, list[Onward]] = {}
            for row in np.flatnonzero((self.rows.stage == stage) & (self.rows.objection == NONE)).tolist():
                if (after := following.get(int(self.leaves[row]))) is not None:
                    sums = (after.cost + self.cost[row], after.micro + self.micro[row], after.ms + self.ms[row])
                    found.setdefault(int(self.rows.reads[row]), []).append(Onward(*sums))
            following = {reads: _thinned(ways) for reads, ways in found.items()}
        return following


def _thinned(ways: list[Onward]) -> Onward:
    cost, micro, ms = (np.concatenate([getattr(each, name) for each in ways]) for name in Onward.__slots__)
    best = undominated(cost, micro, ms)
    return Onward(cost[best], micro[best], ms[best])
