"""The later stages: the interface of a look-ahead over them, and the options of one of them.

The options of a stage are its undominated offers, by the formats that they read and write.

10,000 targets are pruned before their formats are considered. Pruning removes no optimal plan and changes no
tie-break. It drops
    a target that another target of its kind undercuts: cheaper, preempted no more often, same transfer
    prices; a target whose best case is worse than another's worst case, within each of a few groups of
    formats that take about as long.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from typing import Protocol

import numpy as np

from shoestring.routing.candidates import MS_PER_HOUR, NONE, PPB, Candidates, Flags, Floats, Ints
from shoestring.routing.offers.offer_costs import OfferBlock, delay_cost
from shoestring.routing.planner.partial_plans import (
    ANY_NEED,
    CACHED,
    UNBOUNDED,
    NeedRange,
    PartialPlans,
    PlanStep,
    Points,
    Pruning,
    RunLimits,
    dominated_on_grid,
    undominated,
)
from shoestring.routing.question import Question

PRUNE_ABOVE_OFFERS = 2048
"""With this many offers of a stage or fewer, pricing all of them costs no more than pruning targets first."""

MAX_FORMAT_GROUPS = 8
"""Maximum number of groups that pairs of formats are divided into."""


class Lookahead(Protocol):
    """The stages after the current one, as the current stage's planner uses them."""

    @property
    def blocked(self) -> Mapping[int, tuple[int, int] | None]:
        """Stages that no offer can run, with their first offer's price if only a stage budget excludes it."""
        ...

    @property
    def parallel_ms(self) -> int:
        """The minimum P95 time of the stages that do not wait for the current one."""
        ...

    def search(self, current: NeedRange, *, saving: bool) -> None:
        """Find the plans of the later stages that may fit after what the current stage needs.

        Args:
            current: what the offers of the current stage need.
            saving: the current stage can use what the later ones leave of the budget.
        """
        ...

    def min_needs(self, format_left: int) -> tuple[int, int] | None:
        """Return the minimum dollars and minimum time of the plans after a format; None: there is none."""
        ...

    def continuations(self, format_left: int) -> PartialPlans | None:
        """Return the plans after a format, by expected cost; None: there is none."""
        ...

    def trade_offs(self, format_left: int) -> PartialPlans | None:
        """Return the plans after a format that are Pareto-optimal in P95 dollars and P95 time."""
        ...

    def path(self, format_left: int, index: int) -> list[PlanStep]:
        """Return the offers of all later stages in one of the continuations."""
        ...


class TargetKinds:
    """Targets grouped by kind.

    Targets of one kind do the same work in the same time, start alike, pay the same transfer prices in every
    stage, and have the same prepaid time. Only their prices and preemption rates differ.
    """

    def __init__(self, candidates: Candidates) -> None:
        self.candidates = candidates

    @cached_property
    def _columns(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Three numbers by target, and the order of the second.

        They are: its kind; a number that rises by kind, then price; a number that falls by kind, then rises
        with the preemption rate.
        """
        candidates = self.candidates
        width, kind = len(candidates.formats) + 1, candidates.machine
        fees = [
            table.reshape(-1, columns)
            for each in candidates.offers
            for table, columns in (
                (each.transfer_in_microusd_by_region, len(each.scan_us_by_format)),
                (each.transfer_out_microusd_by_region, width),
            )
        ]
        _, region = np.unique(np.hstack(fees), axis=0, return_inverse=True)
        _, start = np.unique(candidates.startup_ms, return_inverse=True)
        _, prepaid = np.unique(candidates.prepaid_ms, return_inverse=True)
        for number in (region.reshape(-1)[candidates.region], start, *([prepaid] if prepaid.size else [])):
            kind = kind * (int(number.max(initial=0)) + 1) + number
        price = kind * (int(candidates.usd_per_hour_micro.max(initial=0)) + 1) + candidates.usd_per_hour_micro
        preempted = (int(kind.max(initial=0)) - kind) * (int(candidates.preemptions_ppb.max(initial=0)) + 1)
        return kind, price, preempted + candidates.preemptions_ppb, np.argsort(price, kind="stable")

    def not_undercut(self, usable: Flags, by_micro: int) -> Ints:
        """Return the usable targets that no other of their kind undercuts by this much an hour."""
        by_kind, by_price, by_preemption, order = self._columns
        order = order[usable[order]]
        kind, price, preempted = by_kind[order], by_price[order], by_preemption[order]
        least_preempted = np.minimum.accumulate(preempted)
        cheaper = np.searchsorted(price, price - by_micro, side="right") - 1
        undercut = (cheaper >= 0) & (kind[cheaper] == kind) & (least_preempted[cheaper] <= preempted)
        return np.sort(order[~undercut])


class StageOptions:
    """The offers of one later stage, priced, and pruned where there are more than `prune_above_offers`."""

    def __init__(
        self,
        question: Question,
        candidates: Candidates,
        limits: RunLimits,
        stage: int,
        kinds: TargetKinds,
        prune_above_offers: int = PRUNE_ABOVE_OFFERS,
    ) -> None:
        need, self.prune_above_offers = question.needs[stage], prune_above_offers
        self.candidates, self.stage, self.limits = candidates, stage, limits
        self.offers, self.writes_data = candidates.offers[stage], need.writes_bytes_per_row > 0
        self.cap, self.delay_micro = limits.cap_micro(stage), question.delay_microusd_per_hour(need)
        usable = self.offers.exclusion == NONE
        self.targets = np.flatnonzero(usable)
        if self._is_large():
            self.targets = kinds.not_undercut(usable, self._min_price_difference())
        # Without a deadline time hardly matters, and one group usually removes enough.
        for groups in (MAX_FORMAT_GROUPS,) if limits.timed else (1, MAX_FORMAT_GROUPS):
            if self._is_large():
                self.targets = self.targets[
                    self._promising(OfferBlock(candidates, stage, self.targets), groups)
                ]
        block = OfferBlock(candidates, stage, self.targets)
        self._columns = self._sums(block, block.fixed_us(), block.fees_microusd())
        _, self.p95, self.ms = self._columns
        self.within_cap = self.p95 <= self.cap

    def _is_large(self) -> bool:
        offers = self.targets.size * len(self.offers.reads) * len(self.offers.writes)
        return offers > self.prune_above_offers

    def _min_price_difference(self) -> int:
        """Return a difference in hourly price that makes any offer at least a micro-dollar more expensive."""
        offers, block = self.offers, OfferBlock(self.candidates, self.stage, np.zeros(0, dtype=np.int64))
        work_us = offers.min_work_us_by_machine + offers.setup_us_by_machine + block.fixed_us().min()
        factor = np.minimum(offers.mean_ppb_by_machine, offers.p95_ppb_by_machine) / (PPB * 1e3)
        min_ms = float((work_us * factor).min()) + float(self.candidates.startup_ms.min())
        return int(2 * MS_PER_HOUR / max(min_ms, 1.0)) + 1

    def _promising(self, block: OfferBlock, groups: int) -> Ints:
        """Return the indices of targets that, in some group of formats, no other surely dominates."""
        remaining = np.zeros(len(block.targets), dtype=np.bool_)
        for best, worst in self._best_and_worst(block, groups):
            # Only a target that stays within the cap in every format of the group may remove others.
            within = worst[1] <= self.cap
            remaining |= (
                ~dominated_on_grid(best, [column[within] for column in worst]) if within.any() else True
            )
        return np.flatnonzero(remaining)

    def _best_and_worst(self, block: OfferBlock, max_groups: int) -> list[tuple[Points, Points]]:
        """Return, by group of pairs of formats, the sums of each target in its best and in its worst case."""
        fixed_us, (into, out) = block.fixed_us()[:, :, 0], block.fees_by_region()
        groups, fees = _format_groups(fixed_us, max_groups), into[:, None, :] + out[None, :, :]
        low, high = (
            [(pick(fixed_us[group]), pick(fees[group], axis=0)) for group in groups]
            for pick in (np.min, np.max)
        )
        # Where all formats of a group take as long and cost as much, the worst case is the best case.
        wide = [
            number
            for number in range(len(groups))
            if low[number][0] < high[number][0] or (low[number][1] < high[number][1]).any()
        ]
        times_us, fees_micro = zip(*low, *(high[number] for number in wide), strict=True)
        by_target = np.stack(fees_micro)[:, None, block.region]
        cost, p95, ms = self._sums(block, np.array(times_us)[:, None, None], by_target)
        sums = list(zip(cost[:, 0], p95[:, 0], np.maximum(ms[:, 0], self.limits.sufficient_ms), strict=True))
        worst = dict(zip(wide, sums[len(groups) :], strict=True))
        return [(sums[number], worst.get(number, sums[number])) for number in range(len(groups))]

    def _sums(self, block: OfferBlock, fixed_us: Floats, fees: Ints) -> Points:
        """Return expected cost, P95 dollars and P95 time, each [.., .., targets]."""
        mean = block.prices(fixed_us, fees)
        p95 = block.prices(fixed_us, fees, minimum=True, p95=True)
        return mean.microusd + delay_cost(mean.ms, self.delay_micro), p95.microusd, p95.ms

    def any(self) -> bool:
        """Return whether some offer can run the stage."""
        return self.offers.cached is not None or bool(self.within_cap.any())

    def first_offer_cost(self) -> tuple[int, int] | None:
        """Return the price, expected and at P95, of the first offer; None: it is excluded anyway."""
        if not self.offers.exclusion.size or self.offers.exclusion[0] != NONE:
            return None
        block = OfferBlock(self.candidates, self.stage, np.zeros(1, dtype=np.int64))
        fixed_us, fees = block.fixed_us(), block.fees_microusd()
        mean, p95 = block.prices(fixed_us, fees), block.prices(fixed_us, fees, minimum=True, p95=True)
        return int(mean.microusd[0, 0, 0]), int(p95.microusd[0, 0, 0])

    def min_needs(self, reads: int) -> dict[int, tuple[int, int]]:
        """Return, by format left, the minimum P95 dollars and P95 time of the offers that read a format."""
        found = {}
        row = self.offers.reads.index(reads)
        for column, writes in enumerate(self.offers.writes):
            within, format_left = self.within_cap[row, column], writes if self.writes_data else reads
            if within.any():
                p95, ms = self.p95[row, column][within], self.ms[row, column][within]
                found[format_left] = int(p95.min()), int(ms.min())
        if (cached := self.offers.cached) is not None and cached.reads == reads:
            found[cached.writes if self.writes_data else reads] = 0, 0
        return found

    def need_range(self, max_micro: int = UNBOUNDED, max_ms: int = UNBOUNDED) -> NeedRange | None:
        """Return the range of needs of the offers within these maxima; None: there is no such offer."""
        fit = self.within_cap & (self.p95 <= max_micro) & (self.ms <= max_ms)
        p95, ms = self.p95[fit], self.ms[fit]
        if self.offers.cached:
            p95, ms = np.append(p95, 0), np.append(ms, 0)
        return NeedRange.of(p95, ms) if p95.size else None

    def plans(
        self, reads: int, within: NeedRange = ANY_NEED, sufficient_micro: int = 0, sufficient_ms: int = 0
    ) -> list[PartialPlans]:
        """Return the undominated offers that read a format and need no more than the maxima of `within`.

        One element of the list holds those that leave one format. `sufficient_*`: see `undominated`.
        """
        row, sufficient_ms = self.offers.reads.index(reads), self.limits.sufficient_ms or sufficient_ms
        fits = self.within_cap[row] & (self.p95[row] <= within.max_micro) & (self.ms[row] <= within.max_ms)
        prune = partial(undominated, sufficient_micro=sufficient_micro, sufficient_ms=sufficient_ms)
        return self._pruned(reads, fits, prune)

    def trade_offs(self, reads: int) -> list[PartialPlans]:
        """Return the same for all offers, pruned by P95 dollars and time only."""
        fits = self.within_cap[self.offers.reads.index(reads)]
        return self._pruned(reads, fits, lambda _, p95, ms: undominated(p95, np.zeros_like(p95), ms))

    def _pruned(self, reads: int, fits: Flags, prune: Pruning) -> list[PartialPlans]:
        """Return what pruning keeps of the offers that fit, and the cached result.

        `fits` is [formats written, targets].
        """
        row, parts = self.offers.reads.index(reads), []
        for column, writes in enumerate(self.offers.writes):
            at = fits[column]
            cost, p95, ms = (each[row, column][at] for each in self._columns)
            remaining = prune(cost, p95, ms)
            parts.append(
                self._plans(
                    (cost[remaining], p95[remaining], ms[remaining]),
                    self.targets[at][remaining],
                    reads,
                    writes,
                )
            )
        cached = self.offers.cached
        if cached is not None and cached.reads == reads:
            zeros = (np.zeros(1, dtype=np.int64),) * 3
            parts.append(self._plans(zeros, np.array([CACHED]), reads, cached.writes))
        return [part for part in parts if len(part)]

    def _plans(self, sums: Points, targets: Ints, reads: int, writes: int) -> PartialPlans:
        writing = np.full(len(targets), writes)
        format_left = writing if self.writes_data else np.full(len(targets), reads)
        cost, p95, ms = sums
        return PartialPlans(
            cost, p95, ms, targets, writing, format_left, np.zeros(len(targets), dtype=np.int64)
        )


def _format_groups(fixed_us: Floats, maximum: int) -> list[Flags]:
    """Return pairs of formats, [read, written], in groups, split where their times differ most."""
    values = np.unique(fixed_us)
    gaps = np.sort(np.argsort(np.diff(values), kind="stable")[::-1][: maximum - 1])
    group = np.searchsorted(values[gaps], fixed_us, side="left")
    return [group == number for number in range(len(gaps) + 1)]
