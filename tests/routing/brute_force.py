"""All plans of a question, by enumeration: the oracle of the planner's tests and of bench/optimal.py.

It knows nothing of the planner. Every combination of usable offers whose formats follow on one another is a
plan; its sums are compared with the question's limits one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from itertools import product

import numpy as np
from sample_prices import BestByRow, best_by_row, fewest_that_count, undominated_continuations

from shoestring.core.money import microusd
from shoestring.core.types import STANDARD_CLASS, Format, Need
from shoestring.routing.candidates import MS_PER_HOUR, NONE, PPB, Candidates, Flags, Floats, Ints
from shoestring.routing.decision import PlannedStage
from shoestring.routing.offers.offer_table import full_offer_table
from shoestring.routing.question import Question

NO_LIMIT = 2**50
"""Milliseconds, where the question has no deadline."""

NEVER = -(2**40)
"""Milliseconds after the first stage, for a stage that does not wait for it."""

INPUT = ""
"""The name of the data set that the question's first stage reads."""


@dataclass(frozen=True, slots=True)
class FittingPlans:
    """The plans that keep the limits of a question, one an index.

    `row`: the offer of the first stage. `samples`: of the first stage, expected. `total`: expected
    micro-dollars of all stages, with delay and less the exploration bonus. `micro`, `ms`: the P95 dollars of
    all stages, and the P95 time of the first one and of those that wait for it. `fewest`: the fewest samples
    that count.
    """

    row: Ints
    samples: Ints
    total: Ints
    micro: Ints
    ms: Ints
    fewest: int

    def best_by_row(self) -> BestByRow:
        """Return the best plan of each offer of the first stage that has one."""
        order = np.lexsort([self.ms, self.micro, self.total, self.samples, self.row])
        columns = np.stack([self.row, self.samples, self.total, self.micro, self.ms])[:, order]
        # Of the plans of an offer with as many samples, the first is the best one.
        first = np.append([True], (columns[:2, 1:] != columns[:2, :-1]).any(axis=0))[: len(order)]
        return best_by_row(columns[0, first], columns[1:, first], self.fewest)


class AllPlans:
    """All plans of a question, one an index, within the stages' own budgets.

    `rows`: by stage, the offers as rows of `table`. `later_cost`, `later_p95`: micro-dollars of the stages
    after the first, expected for all the work (with delay), and at P95 for the fewest samples.
    `after_first`: by stage, the P95 time from the end of the first stage to its own. `alone`: by stage, the
    P95 time to its end if the first stage took no time; far below 0 where it waits for the first one only.
    """

    def __init__(self, question: Question, candidates: Candidates) -> None:
        self.question, self.candidates, self.table = question, candidates, full_offer_table(candidates)
        zero = np.zeros(1, dtype=np.int64)
        self.rows, self.later_cost, self.later_p95 = list[Ints](), zero, zero
        self.alone, self.after_first = dict[str, Ints](), dict[str, Ints]()
        self.ready_ms = {each.stage: round(each.ready_s * 1000) for each in question.upstream}
        self.existing = {INPUT: self._stored(question.reads_format, question.reads_storage_class)}
        self.datasets: dict[str, tuple[str, ...]] = {INPUT: (INPUT,)}
        for each in question.upstream:
            self.existing[each.stage] = self._stored(each.format, each.storage_class)
            passed_on = (source for name in each.after for source in self.datasets.get(name, ()))
            self.datasets[each.stage] = (each.stage,) if each.row_bytes else tuple(passed_on)
        self.formats = {name: np.array([stored]) for name, stored in self.existing.items()}
        for name in question.needs[0].after or ():
            self.datasets.setdefault(name, (INPUT,))
        for stage, need in enumerate(question.needs):
            reads = self._datasets_read(stage)
            self._add_stage(stage, need, reads)
            self.datasets[need.stage] = (need.stage,) if need.writes_bytes_per_row else reads

    def __len__(self) -> int:
        return len(self.later_cost)

    def _stored(self, written: Format | None, storage_class: str) -> int:
        """Return the number of a stored format. A class without a price counts as the standard one."""
        names = list(self.candidates.stored_formats)
        if written is None:
            return NONE
        known = (written, storage_class) in names
        return names.index((written, storage_class if known else STANDARD_CLASS))

    def _before(self, stage: int) -> tuple[str, ...]:
        """Return the names of the stages that a stage waits for."""
        after = self.question.needs[stage].after
        if after is not None:
            return after
        return (self.question.needs[stage - 1].stage,) if stage else ()

    def _datasets_read(self, stage: int) -> tuple[str, ...]:
        """Return the names of the data sets that a stage reads, in the order of their numbers."""
        upstream = [each.stage for each in self.question.upstream]
        names = [name for name in self._before(stage) if stage or name in upstream]
        order = [*reversed(upstream), INPUT, *(each.stage for each in self.question.needs)]
        read = sorted({each for name in names for each in self.datasets[name]}, key=order.index)
        return tuple(read) if read or stage else (INPUT,)

    def _add_stage(self, stage: int, need: Need, reads: tuple[str, ...]) -> None:
        """Extend each plan by each usable offer of a stage that reads what the plan has written."""
        table, cap = self.table, self.question.stage_budgets.get(need.stage)
        usable = (table.stage == stage) & (table.exclusion == NONE)
        if cap is not None:
            usable &= table.min_p95_microusd <= microusd(cap)
        own = np.flatnonzero(usable)
        before, row = np.repeat(np.arange(len(self)), len(own)), np.tile(own, len(self))
        fits = table.reads[row] == self._reading(stage, reads)[before]
        before, row = before[fits], row[fits]
        for columns in (self.formats, self.alone, self.after_first):
            columns |= {name: values[before] for name, values in columns.items()}
        self.rows = [*(each[before] for each in self.rows), row]
        cost = table.est_microusd[row] + self._delay(stage, table.est_ms[row])
        self.later_cost = self.later_cost[before] + (cost if stage else 0)
        self.later_p95 = self.later_p95[before] + (table.min_p95_microusd[row] if stage else 0)
        self.formats[need.stage] = table.writes[row]
        self._add_times(stage, table.min_p95_ms[row])

    def _add_times(self, stage: int, ms: Ints) -> None:
        """Record when a stage ends that takes this long."""
        name, names = self.question.needs[stage].stage, self._before(stage)
        if stage == 0:
            self.after_first[name], self.alone[name] = np.zeros_like(ms), np.full_like(ms, NEVER)
            return
        self.after_first[name] = self._latest(self.after_first, names, len(ms)) + ms
        self.alone[name] = self._latest(self.alone, names, len(ms)) + ms
        ready_ms = max((self.ready_ms.get(each, 0) for each in names), default=0)
        if ready_ms or not any(each in self.candidates.stages for each in names):
            self.alone[name] = np.maximum(self.alone[name], ready_ms + ms)

    def _latest(self, times: dict[str, Ints], names: tuple[str, ...], plans: int) -> Ints:
        known = [times[name] for name in names if name in times]
        return np.max(known, axis=0) if known else np.full(plans, NEVER)

    def _reading(self, stage: int, reads: tuple[str, ...]) -> Ints:
        """Return, by plan, the number that offers know a stage's formats read by."""
        stored = [self.formats[name] for name in reads]
        if len(reads) == 1:
            return stored[0]
        if not reads:
            return np.full(len(self), NONE)
        number = {each: index for index, each in enumerate(product(*map(self._possible_formats, reads)))}
        assert self.candidates.offers[stage].reads == tuple(number.values())
        codes = [number[each] for each in zip(*map(np.ndarray.tolist, stored), strict=True)]
        return np.array(codes, dtype=np.int64)

    def _possible_formats(self, name: str) -> tuple[int, ...]:
        if name not in self.candidates.stages:
            return (self.existing[name],)
        offers = self.candidates.offers[self.candidates.stages.index(name)]
        return tuple(sorted({*offers.writes} | ({offers.cached.writes} if offers.cached else set())))

    def _delay(self, stage: int, ms: Ints) -> Ints:
        delayed: Ints = ms * self.question.delay_microusd_per_hour(self.question.needs[stage]) // MS_PER_HOUR
        return delayed

    def at(self, index: int) -> AllPlans:
        """Return one of the plans, as the only one."""
        one, only = copy(self), np.array([index])
        one.rows = [each[only] for each in self.rows]
        one.later_cost, one.later_p95 = self.later_cost[only], self.later_p95[only]
        one.alone = {name: each[only] for name, each in self.alone.items()}
        one.after_first = {name: each[only] for name, each in self.after_first.items()}
        return one

    def index(self, row: int, later: Sequence[PlannedStage]) -> int:
        """Return the number of the plan of these offers. Raises IndexError: it is none."""
        table, found = self.table, self.rows[0] == row
        for rows, each in zip(self.rows[1:], later, strict=True):
            stored = NONE if each.format is None else self._stored(each.format, each.storage_class)
            named = (table.pool == self.candidates.pools.index(each.pool)) & (table.writes == stored)
            named &= table.market == self.candidates.markets.index(each.market)
            named &= table.est_microusd == microusd(each.est_usd)
            named &= table.min_p95_microusd == microusd(each.reserved_usd)
            found &= named[rows]
        return int(np.flatnonzero(found)[0])

    @property
    def later_ms(self) -> Ints:
        """P95 time of the stages that wait for the first one, from its end on."""
        return np.max(list(self.after_first.values()), axis=0)

    @property
    def parallel_ms(self) -> Ints:
        """P95 time at which all is done that does not wait for the first stage."""
        return np.max(list(self.alone.values()), axis=0)

    @property
    def last_ms(self) -> Ints:
        """P95 time at which the last stage ends."""
        return np.maximum(self.table.min_p95_ms[self.rows[0]] + self.later_ms, self.parallel_ms)

    @property
    def p95(self) -> Ints:
        """P95 micro-dollars of all stages, for the fewest samples."""
        return self.table.min_p95_microusd[self.rows[0]] + self.later_p95

    def fitting(self, question: Question) -> FittingPlans:
        """Return the plans that keep the limits of this question, which differs only in its limits."""
        money, time_ms = left(question)
        at = np.flatnonzero((self.p95 <= money) & (self.last_ms <= time_ms))
        if self.question.needs[0].elastic:
            waits = self.later_ms * (question.deadline_left_s is not None)
            columns = (self.rows[0], self.later_cost, self.later_p95, waits, self.later_ms)
            at = at[undominated_continuations(*(each[at] for each in columns))]
        row, micro, ms = self.rows[0][at], self.later_p95[at], self.later_ms[at]
        own_micro = money - micro
        if (cap := question.stage_budgets.get(question.stage)) is not None:
            own_micro = np.minimum(own_micro, microusd(cap))
        samples, cost = self._first_stage(row, own_micro, time_ms - ms)
        needed_ms = self.table.min_p95_ms[row] + ms
        fewest = fewest_that_count(question, int(samples.max(initial=0)))
        return FittingPlans(row, samples, cost + self.later_cost[at], self.p95[at], needed_ms, fewest)

    def _first_stage(self, row: Ints, money: Ints, time_ms: Ints) -> tuple[Ints, Ints]:
        """Return the samples of the first stage within money and time, and its cost."""
        table = self.table
        samples, est, ms = table.samples[row], table.est_microusd[row], table.est_ms[row]
        if self.question.needs[0].elastic:
            share = np.minimum(
                _share(money, table.min_est_microusd[row], est), _share(time_ms, table.min_est_ms[row], ms)
            )
            fewest = table.min_samples[row]
            samples = fewest + np.floor((samples - fewest) * share).astype(np.int64)
            est = _between(table.min_est_microusd[row], est, share)
            ms = _between(table.min_est_ms[row], ms, share)
        return samples, est + self._delay(0, ms) - self._bonus(row, money, time_ms)

    def _bonus(self, row: Ints, money: Ints, time_ms: Ints) -> Ints:
        """Return the exploration bonus; 0 where not all the work fits at P95, or nothing is explored."""
        table, offers = self.table, self.candidates.offers[0]
        share_ppb = offers.exploration_ppb_by_machine
        if self.question.needs[0].elastic and not self.question.exploration_sd:
            return np.zeros_like(row)
        target = np.minimum(row // len(offers.writes), len(self.candidates.pool) - 1)
        share = share_ppb[self.candidates.machine[target]] / PPB
        sure = (table.p95_microusd[row] <= money) & (table.p95_ms[row] <= time_ms) & (table.cached[row] == 0)
        return np.where(sure, np.floor(table.est_microusd[row] * share), 0).astype(np.int64)

    def min_p95(self, question: Question) -> int | None:
        """Return the minimum P95 micro-dollars of the plans that keep the deadline; None: there is none."""
        needed = self.p95[self.last_ms <= left(question)[1]]
        return int(needed.min()) if len(needed) else None

    def first_minima(self, question: Question) -> tuple[Ints, Ints]:
        """Return, by offer of the first stage, the minimum P95 dollars and the minimum P95 time of its plans.

        Only plans whose stages that do not wait for the first one keep the deadline count. NO_LIMIT: none.
        """
        at = np.flatnonzero(self.parallel_ms <= left(question)[1])
        minima = [np.full(self.candidates.first_offer(1), NO_LIMIT) for _ in range(2)]
        needed_ms = self.table.min_p95_ms[self.rows[0]] + self.later_ms
        for minimum, values in zip(minima, (self.p95, needed_ms), strict=True):
            np.minimum.at(minimum, self.rows[0][at], values[at])
        return minima[0], minima[1]


def every_plan(question: Question, candidates: Candidates) -> list[list[int]]:
    """Return every plan as its offers, one a stage, as rows of the table of all offers."""
    plans: list[list[int]] = np.stack(AllPlans(question, candidates).rows, axis=1).tolist()
    return plans


def left(question: Question) -> tuple[int, int]:
    """Return the micro-dollars and the milliseconds that are left."""
    deadline_s = question.deadline_left_s
    return microusd(question.left_usd), NO_LIMIT if deadline_s is None else int(deadline_s * 1000)


def _share(limit: Ints, low: Ints, high: Ints) -> Floats:
    """Return how far a limit reaches between two amounts, from 0 to 1."""
    reached = np.clip((limit - low) / np.maximum(high - low, 1), 0.0, 1.0)
    within: Flags = limit >= high
    return np.where(within, 1.0, reached)


def _between(low: Ints, high: Ints, share: Floats) -> Ints:
    return low + np.ceil((high - low) * share).astype(np.int64)
