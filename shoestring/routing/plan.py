"""The look-ahead, exact over the remaining chain of stages.

What couples neighbours is the format: a stage reads what the last writer before it wrote. So, from the last stage backwards and for each
format that a stage may find, the completions of the chain are combined and the dominated dropped (one that another beats or equals
in cost, P95 dollars and P95 seconds can be replaced by it in any plan). What is left is small, and loses no optimum.

Cost is expected dollars, and where a policy has a price for an hour of waiting, the expected time at that.

A stage of fixed work: the least cost for all that remains, among plans whose summed P95 fits money and deadline. A later
elastic stage counts with all its passes in the cost and with its least in what has to fit.
The elastic stage: the most expected samples with what the P95 of the later stages leaves of money and deadline; then the least cost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shoestring.money import microusd
from shoestring.routing.cost import needed_gb
from shoestring.routing.decision import Candidates, Question
from shoestring.routing.policy import MOST_MICRO
from shoestring.routing.preferences import kind_of, waiting_micro_per_hour

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

MS_PER_HOUR = 3_600_000
UNBOUNDED = 2**60
"""Milliseconds or micro-dollars where there is no limit."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the rest of the run may use. `caps` are the budgets that a person declared, by number of the stage."""

    left_micro: int
    left_ms: int
    caps: dict[int, int]

    @classmethod
    def of(cls, question: Question) -> Limits:
        deadline_s = question.deadline_left_s
        return cls(
            left_micro=microusd(question.budget_usd - question.spent_usd - question.held_usd),
            left_ms=UNBOUNDED if deadline_s is None else int(deadline_s * 1000),
            caps={
                number: microusd(question.stage_budgets[need.stage])
                for number, need in enumerate(question.needs)
                if need.stage in question.stage_budgets
            },
        )

    def cap_micro(self, stage: int) -> int:
        return self.caps.get(stage, UNBOUNDED)


def _column(values: tuple[int, ...]) -> Ints:
    return np.array(values, dtype=np.int64)


def time_cost(ms: Ints, micro_per_hour: Ints) -> Ints:
    """What waiting so long is worth, in micro-dollars. Hours and the rest apart, so that products stay within 64 bits."""
    hours, rest = np.divmod(ms, MS_PER_HOUR)
    found: Ints = np.minimum(hours * micro_per_hour + rest * micro_per_hour // MS_PER_HOUR, MOST_MICRO)
    return found


class Table:
    """Candidates as arrays, with what each leaves to the next stage and whether it can be taken at all."""

    def __init__(self, question: Question, candidates: Candidates, limits: Limits) -> None:
        self.stage = _column(candidates.stage)
        self.reads = _column(candidates.reads)
        self.est = _column(candidates.est_microusd)
        self.p95 = _column(candidates.p95_microusd)
        self.est_ms = _column(candidates.est_ms)
        kinds = [kind_of(need, needed_gb(need, question.rows)) for need in question.needs]
        self.waiting = _column(tuple(waiting_micro_per_hour(question.in_force, kind) for kind in kinds))[self.stage]
        # What plans are compared by: money, and the time that a policy has a price for.
        self.cost = self.est + time_cost(self.est_ms, self.waiting)
        self.p95_ms = _column(candidates.p95_ms)
        self.least_est = _column(candidates.least_est_microusd)
        self.least_est_ms = _column(candidates.least_est_ms)
        self.least_p95 = _column(candidates.least_p95_microusd)
        self.least_p95_ms = _column(candidates.least_p95_ms)
        self.samples = _column(candidates.samples)
        self.least_samples = _column(candidates.least_samples)
        writes_data = np.array([need.writes_bytes_per_row > 0 for need in question.needs])[self.stage]
        self.leaves = np.where(writes_data, _column(candidates.writes), self.reads)
        self.possible = np.array([not each for each in candidates.objection], dtype=np.bool_)
        cap = np.array([limits.cap_micro(number) for number in range(len(question.needs))])
        self.within_cap = self.least_p95 <= cap[self.stage]
        self.usable = self.possible & self.within_cap


@dataclass(frozen=True, slots=True)
class Completions:
    """Ways to do the stages that follow: sums, and the candidate taken for each stage (one row a way)."""

    cost: Ints
    p95: Ints
    p95_ms: Ints
    path: Ints

    def __len__(self) -> int:
        return len(self.cost)


def nothing_more() -> Completions:
    zero = np.zeros(1, dtype=np.int64)
    return Completions(zero, zero, zero, np.zeros((1, 0), dtype=np.int64))


def completions(table: Table, stages: int) -> dict[int, Completions]:
    """By the format that the first stage leaves: the undominated ways to do all the others. A format with no way is not there."""
    following = {int(state): nothing_more() for state in np.unique(table.leaves)}
    for stage in range(stages - 1, 0, -1):
        here = np.flatnonzero((table.stage == stage) & table.usable)
        ways = {int(state): _extend(table, here[table.reads[here] == state], following) for state in np.unique(table.reads[here])}
        following = {state: found for state, found in ways.items() if len(found)}
    return following


def _extend(table: Table, rows: Ints, following: dict[int, Completions]) -> Completions:
    """Each of the candidate rows before each completion of what it leaves."""
    parts = []
    for state in np.unique(table.leaves[rows]):
        if (after := following.get(int(state))) is None:
            continue
        own = rows[table.leaves[rows] == state]
        own = own[undominated(table.cost[own], table.least_p95[own], table.least_p95_ms[own])]
        first, then = np.repeat(own, len(after)), np.tile(np.arange(len(after)), len(own))
        parts.append(
            Completions(
                table.cost[first] + after.cost[then],
                table.least_p95[first] + after.p95[then],
                table.least_p95_ms[first] + after.p95_ms[then],
                np.concatenate([first[:, None], after.path[then]], axis=1),
            )
        )
    joined = _joined(parts)
    best = undominated(joined.cost, joined.p95, joined.p95_ms)
    return Completions(joined.cost[best], joined.p95[best], joined.p95_ms[best], joined.path[best])


def undominated(cost: Ints, p95: Ints, p95_ms: Ints) -> Ints:
    """Indices of the points that no other beats or equals in all three; of equal points the first. In lexicographic order."""
    left = np.lexsort((p95_ms, p95, cost))
    best = []
    while left.size:
        winner = left[0]
        best.append(winner)
        left = left[(p95[left] < p95[winner]) | (p95_ms[left] < p95_ms[winner])]
    return np.array(best, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Plans:
    """Every candidate of this stage with every completion of what it leaves, one pair an index.

    `needs_micro` and `needs_ms` have to fit; `keep_*` of them are the later stages'. `samples` and `est` are this stage's. `cost_total` is
    the expected money for all that remains, with what its time is worth.
    """

    candidate: Ints
    keep_micro: Ints
    keep_ms: Ints
    needs_micro: Ints
    needs_ms: Ints
    samples: Ints
    est: Ints
    cost_total: Ints
    path: Ints
    fits: Flags

    def ranked(self) -> Ints:
        """The plans that fit, best first. Ties go to the first candidate, and candidates are sorted by name."""
        keys = (self.needs_ms, self.needs_micro, self.cost_total, -self.samples)
        order = np.lexsort(keys)
        return order[self.fits[order]]


def plans(table: Table, limits: Limits, after: dict[int, Completions]) -> Plans:
    """Pair this stage's candidates with the ways to go on."""
    own, way, ways = _pairs(table, after)
    keep_micro, keep_ms = ways.p95[way], ways.p95_ms[way]
    needs_micro, needs_ms = table.least_p95[own] + keep_micro, table.least_p95_ms[own] + keep_ms
    fits = (needs_micro <= limits.left_micro) & (needs_ms <= limits.left_ms)
    money = np.minimum(limits.left_micro - keep_micro, limits.cap_micro(0))
    samples, est, cost = expected(table, own, money, limits.left_ms - keep_ms)
    return Plans(own, keep_micro, keep_ms, needs_micro, needs_ms, samples, est, cost + ways.cost[way], ways.path[way], fits)


def _pairs(table: Table, after: dict[int, Completions]) -> tuple[Ints, Ints, Completions]:
    """Candidate and completion of each pair, by candidate, and the completions of all formats in one list."""
    ways = _joined([after[state] for state in sorted(after)])
    first = np.cumsum([0, *(len(after[state]) for state in sorted(after))])
    begins = dict(zip(sorted(after), zip(first[:-1].tolist(), first[1:].tolist(), strict=True), strict=True))
    rows = [row for row in np.flatnonzero((table.stage == 0) & table.usable).tolist() if table.leaves[row] in begins]
    way = [np.arange(*begins[int(table.leaves[row])]) for row in rows]
    own = np.repeat(np.array(rows, dtype=np.int64), [len(each) for each in way])
    return own, np.concatenate(way, dtype=np.int64) if way else np.zeros(0, dtype=np.int64), ways


def _joined(parts: list[Completions]) -> Completions:
    if not parts:
        none = np.zeros(0, dtype=np.int64)
        return Completions(none, none, none, np.zeros((0, 0), dtype=np.int64))
    return Completions(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("cost", "p95", "p95_ms", "path")))


def expected(table: Table, own: Ints, money_micro: Ints, time_ms: Ints) -> tuple[Ints, Ints, Ints]:
    """Samples that money and time buy at the mean, their expected price, and that with the price of their time. Fixed work is all done.

    Between its least and all of its passes an elastic stage's price and time grow linearly with its samples.
    """
    share = np.minimum(
        _share(money_micro, table.least_est[own], table.est[own]),
        _share(time_ms, table.least_est_ms[own], table.est_ms[own]),
    )
    least, most = table.least_samples[own], table.samples[own]
    samples = least + np.floor((most - least) * share).astype(np.int64)
    est = table.least_est[own] + np.ceil((table.est[own] - table.least_est[own]) * share).astype(np.int64)
    ms = table.least_est_ms[own] + np.ceil((table.est_ms[own] - table.least_est_ms[own]) * share).astype(np.int64)
    return samples, est, est + time_cost(ms, table.waiting[own])


def _share(limit: Ints, least: Ints, most: Ints) -> Floats:
    """How far from `least` to `most` a limit reaches, from 0 to 1."""
    width = np.maximum(most - least, 1)
    return np.where(limit >= most, 1.0, np.clip((limit - least) / width, 0.0, 1.0))
