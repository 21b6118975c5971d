"""What one later stage may do by itself: the offers that are worth looking at, by the formats that they read and write.

10,000 slots are thinned before their formats are looked at, by what loses no plan and decides no tie otherwise:
    a slot that another machine of its kind undercuts, which is taken away no more often and moves bytes for as much;
    a slot whose best case another's worst case beats, within each of a few groups of formats that take about as long.
"""

from __future__ import annotations

from functools import cached_property, partial

import numpy as np

from shoestring.routing.candidates import MS_PER_HOUR, NONE, PPB, Candidates, Floats, Ints
from shoestring.routing.question import Question
from shoestring.routing.offers.offer_costs import Block, time_cost
from shoestring.routing.planner.pareto import Best, Flags, Points, beaten, undominated
from shoestring.routing.planner.partial_plans import ANY, CACHED, UNBOUNDED, Limits, Span, Ways, waiting

FEW = 2048
"""Offers that are not thinned: pricing them all costs no more."""

GROUPS = 8
"""Of pairs of formats, at most."""


class TargetKinds:
    """Slots by kind: machines that do the same work in the same time, start alike, move bytes at the same prices in every stage, and are
    paid for already for as long."""

    def __init__(self, candidates: Candidates) -> None:
        self.candidates = candidates

    @cached_property
    def _columns(self) -> tuple[Ints, Ints, Ints, Ints]:
        """By slot: its kind; a number that rises by kind, then price; one that falls by kind, then rises with how often it is taken away.
        The order of the second."""
        candidates = self.candidates
        width, kind = len(candidates.formats) + 1, candidates.machine
        fees = [
            table.reshape(-1, columns)
            for each in candidates.offers
            for table, columns in (
                (each.into_microusd_by_region, len(each.scan_us_by_format)),
                (each.out_microusd_by_region, width),
            )
        ]
        _, region = np.unique(np.hstack(fees), axis=0, return_inverse=True)
        _, start = np.unique(candidates.startup_ms, return_inverse=True)
        _, free = np.unique(candidates.free_ms, return_inverse=True)
        for number in (region.reshape(-1)[candidates.region], start, *([free] if free.size else [])):
            kind = kind * (int(number.max(initial=0)) + 1) + number
        price = kind * (int(candidates.usd_per_hour_micro.max(initial=0)) + 1) + candidates.usd_per_hour_micro
        taken = (int(kind.max(initial=0)) - kind) * (
            int(candidates.preemptions_ppb.max(initial=0)) + 1
        ) + candidates.preemptions_ppb
        return kind, price, taken, np.argsort(price, kind="stable")

    def not_undercut(self, usable: Flags, by_micro: int) -> Ints:
        """The slots to which no other usable one of their kind is better by so many micro-dollars an hour."""
        by_kind, by_price, by_taken, order = self._columns
        order = order[usable[order]]
        kind, price, taken = by_kind[order], by_price[order], by_taken[order]
        least_taken = np.minimum.accumulate(taken)
        cheaper = np.searchsorted(price, price - by_micro, side="right") - 1
        undercut = (cheaper >= 0) & (kind[cheaper] == kind) & (least_taken[cheaper] <= taken)
        return np.sort(order[~undercut])


class StageOptions:
    """One later stage by itself: its undominated offers, by the formats that they read and write."""

    def __init__(
        self, question: Question, candidates: Candidates, limits: Limits, stage: int, alike: TargetKinds
    ) -> None:
        self.candidates, self.stage, self.limits = candidates, stage, limits
        self.offers, self.writes_data = (
            candidates.offers[stage],
            question.needs[stage].writes_bytes_per_row > 0,
        )
        self.cap, self.waiting = limits.cap_micro(stage), waiting(question, stage)
        usable = self.offers.exclusion == NONE
        self.slots = np.flatnonzero(usable)
        if self._are_many():
            self.slots = alike.not_undercut(usable, self._worth_a_micro())
        # Where only money counts, mostly one group will do.
        for groups in (GROUPS,) if limits.timed else (1, GROUPS):
            if self._are_many():
                self.slots = self.slots[self._promising(Block(candidates, stage, self.slots), groups)]
        block = Block(candidates, stage, self.slots)
        self._columns = self._sums(block, block.fixed_us(), block.fees_microusd())
        _, self.p95, self.ms = self._columns
        self.within = self.p95 <= self.cap

    def _are_many(self) -> bool:
        return self.slots.size * len(self.offers.reads) * len(self.offers.writes) > FEW

    def _worth_a_micro(self) -> int:
        """A difference in price by which any offer of the stage costs at least a micro-dollar more, however it is rounded."""
        offers, block = self.offers, Block(self.candidates, self.stage, np.zeros(0, dtype=np.int64))
        work_us = offers.min_work_us_by_machine + offers.setup_us_by_machine + block.fixed_us().min()
        multiplier = np.minimum(offers.mean_ppb_by_machine, offers.p95_ppb_by_machine) / (PPB * 1e3)
        least_ms = float((work_us * multiplier).min()) + float(self.candidates.startup_ms.min())
        return int(2 * MS_PER_HOUR / max(least_ms, 1.0)) + 1

    def _promising(self, block: Block, groups: int) -> Ints:
        """Places of the slots that no other one beats whatever formats of a group they read and write, of each group."""
        kept = np.zeros(len(block.slots), dtype=np.bool_)
        for best, worst in self._cases(block, groups):
            # A cap that the other keeps to in every format.
            within = worst[1] <= self.cap
            kept |= ~beaten(best, [column[within] for column in worst]) if within.any() else True
        return np.flatnonzero(kept)

    def _cases(self, block: Block, most_groups: int) -> list[tuple[Points, Points]]:
        """Of each group of pairs of formats: what slots come to at best and at worst."""
        fixed_us, (into, out) = block.fixed_us()[:, :, 0], block.fees_by_region()
        groups, fees = _groups(fixed_us, most_groups), into[:, None, :] + out[None, :, :]
        low, high = (
            [(pick(fixed_us[group]), pick(fees[group], axis=0)) for group in groups]
            for pick in (np.min, np.max)
        )
        # Formats that take as long and cost as much are priced once.
        wide = [
            number
            for number in range(len(groups))
            if low[number][0] < high[number][0] or (low[number][1] < high[number][1]).any()
        ]
        times_us, prices = zip(*low, *(high[number] for number in wide), strict=True)
        cost, p95, ms = self._sums(
            block, np.array(times_us)[:, None, None], np.stack(prices)[:, None, block.region]
        )
        priced = list(zip(cost[:, 0], p95[:, 0], np.maximum(ms[:, 0], self.limits.enough_ms), strict=True))
        worst = dict(zip(wide, priced[len(groups) :], strict=True))
        return [(priced[number], worst.get(number, priced[number])) for number in range(len(groups))]

    def _sums(self, block: Block, fixed_us: Floats, fees: Ints) -> Points:
        """Expected cost, P95 dollars and P95 time, [.., .., slots]."""
        mean, worst = block.prices(fixed_us, fees), block.prices(fixed_us, fees, least=True, worst=True)
        return mean.microusd + time_cost(mean.ms, self.waiting), worst.microusd, worst.ms

    def any(self) -> bool:
        """Is there an offer at all that can be taken?"""
        return self.offers.cached is not None or bool(self.within.any())

    def first(self) -> tuple[int, int] | None:
        """What the first offer costs, expected and at P95; None when something else than the cap stands against it."""
        if not self.offers.exclusion.size or self.offers.exclusion[0] != NONE:
            return None
        block = Block(self.candidates, self.stage, np.zeros(1, dtype=np.int64))
        fixed_us, fees = block.fixed_us(), block.fees_microusd()
        both = block.prices(fixed_us, fees), block.prices(fixed_us, fees, least=True, worst=True)
        return int(both[0].microusd[0, 0, 0]), int(both[1].microusd[0, 0, 0])

    def least(self, reads: int) -> dict[int, tuple[int, int]]:
        """By the format that is left, the least that any offer which reads this one needs at P95, of money and of time."""
        found = {}
        place = self.offers.reads.index(reads)
        for number, writes in enumerate(self.offers.writes):
            within, leaves = self.within[place, number], writes if self.writes_data else reads
            if within.any():
                p95, ms = self.p95[place, number][within], self.ms[place, number][within]
                found[leaves] = int(p95.min()), int(ms.min())
        if (cached := self.offers.cached) is not None and cached.reads == reads:
            found[cached.writes if self.writes_data else reads] = 0, 0
        return found

    def span(self, most_micro: int = UNBOUNDED, most_ms: int = UNBOUNDED) -> Span | None:
        """What its offers need that need no more than so much, of money and of time; None: there is none."""
        fit = self.within & (self.p95 <= most_micro) & (self.ms <= most_ms)
        found = [Span.of(self.p95[fit], self.ms[fit])] if fit.any() else []
        return Span.over([*found, *([Span(0, 0, 0, 0)] if self.offers.cached else [])])

    def of(self, reads: int, within: Span = ANY, enough_micro: int = 0, enough_ms: int = 0) -> list[Ways]:
        """The undominated offers that read a format, one part for each format that they leave, of those that need no more than `within`."""
        place, enough_ms = self.offers.reads.index(reads), self.limits.enough_ms or enough_ms
        fits = (
            self.within[place] & (self.p95[place] <= within.most_micro) & (self.ms[place] <= within.most_ms)
        )
        return self._parts(reads, fits, partial(undominated, enough_micro=enough_micro, enough_ms=enough_ms))

    def corners(self, reads: int) -> list[Ways]:
        """The same of all offers, whatever they are expected to cost."""
        fits = self.within[self.offers.reads.index(reads)]
        return self._parts(reads, fits, lambda _, p95, ms: undominated(p95, np.zeros_like(p95), ms))

    def _parts(self, reads: int, fits: Flags, best: Best) -> list[Ways]:
        """The best of the offers that fit, [written, slots], by expected cost, P95 dollars and P95 time; and what is there already."""
        place, parts = self.offers.reads.index(reads), []
        for number, writes in enumerate(self.offers.writes):
            cost, p95, ms, slots = (
                column[fits[number]]
                for column in (*(each[place, number] for each in self._columns), self.slots)
            )
            kept = best(cost, p95, ms)
            parts.append(self._ways((cost[kept], p95[kept], ms[kept]), slots[kept], reads, writes))
        cached = self.offers.cached
        if cached is not None and cached.reads == reads:
            parts.append(
                self._ways((np.zeros(1, dtype=np.int64),) * 3, np.array([CACHED]), reads, cached.writes)
            )
        return [part for part in parts if len(part)]

    def _ways(self, sums: Points, slots: Ints, reads: int, writes: int) -> Ways:
        writing = np.full(len(slots), writes)
        leaves = writing if self.writes_data else np.full(len(slots), reads)
        cost, p95, ms = sums
        return Ways(cost, p95, ms, slots, writing, leaves, np.zeros(len(slots), dtype=np.int64))


def _groups(fixed_us: Floats, most: int) -> list[Flags]:
    """Pairs of formats, [read, written], in a few groups of about the same time: apart where the times are furthest apart."""
    values = np.unique(fixed_us)
    gaps = np.sort(np.argsort(np.diff(values), kind="stable")[::-1][: most - 1])
    group = np.searchsorted(values[gaps], fixed_us, side="left")
    return [group == number for number in range(len(gaps) + 1)]
