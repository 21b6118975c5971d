"""The offers for the stage that is decided, and for each of them the best way to go on. Arrays go by candidate, in its stage's order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from shoestring.routing.candidates import NONE, PPB, Candidates, Floats, Ints
from shoestring.routing.question import Question
from shoestring.routing.offers.offer_costs import Block, time_cost
from shoestring.routing.planner.chain_planner import ChainLookahead
from shoestring.routing.planner.dag_lookahead import DagLookahead
from shoestring.routing.planner.pareto import undominated
from shoestring.routing.planner.partial_plans import CACHED, UNBOUNDED, Limits, Span, Step, Ways, waiting

Flags = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]

AT_ONCE = 16_384
"""Offers that are priced at once."""

MOST = np.iinfo(np.int64).max


class Here:
    """What the stage's offers cost. `possible`: nothing stands against it at any budget; `usable`: it keeps to the stage's own, too."""

    def __init__(self, question: Question, candidates: Candidates, limits: Limits) -> None:
        self.limits, self.waiting = limits, waiting(question, 0)
        self.offers = offers = candidates.offers[0]
        self.width, self.slots = len(offers.writes), len(candidates.pool)
        block = Block(candidates, 0, np.arange(self.slots))
        fixed_us, fees = block.fixed_us(), block.fees_microusd()
        self.est, self.est_ms = self._priced(block, fixed_us, fees)
        self.p95, self.p95_ms = self._priced(block, fixed_us, fees, worst=True)
        self.least_est, self.min_est_ms = self.est, self.est_ms
        self.least_p95, self.min_p95_ms = self.p95, self.p95_ms
        if question.needs[0].elastic:
            self.least_est, self.min_est_ms = self._priced(block, fixed_us, fees, least=True)
            self.least_p95, self.min_p95_ms = self._priced(block, fixed_us, fees, least=True, worst=True)
        # Records from before an elastic stage tried anything hold what it would have been worth there.
        self.tries = bool(
            offers.worth_ppb_by_machine.any() and (not question.needs[0].elastic or question.exploration_sd)
        )
        self.worth = self._worth(candidates) if self.tries else np.broadcast_to(np.int64(0), len(self.est))
        self.min_samples = self._with_cached(
            np.broadcast_to(np.int64(offers.min_samples), self.slots * self.width), offers.samples
        )
        writes = self._with_cached(
            np.tile(offers.writes, self.slots), offers.cached.writes if offers.cached else NONE
        )
        writing = question.needs[0].writes_bytes_per_row > 0
        self.leaves = writes if writing else np.full(len(writes), offers.reads[0])
        self.formats = (
            sorted({*offers.writes, *([offers.cached.writes] if offers.cached else [])})
            if writing
            else [offers.reads[0]]
        )
        self.elastic = question.needs[0].elastic
        # What plans are compared by, with all the work done.
        self.cost = self.est + time_cost(self.est_ms, self.waiting)
        self.cost -= self.worth
        self.possible = self.by_slot(offers.exclusion == NONE, True)
        self.within_cap = self.least_p95 <= limits.cap_micro(0)
        self.usable = self.possible & self.within_cap

    def _priced(
        self, block: Block, fixed_us: Floats, fees: Ints, *, least: bool = False, worst: bool = False
    ) -> tuple[Ints, Ints]:
        """Micro-dollars and milliseconds. So many at a time that what lies between them and their factors stays in a cache."""
        micro, ms = (np.empty((self.slots, self.width), dtype=np.int64) for _ in range(2))
        step = max(1, AT_ONCE // max(self.slots, 1))
        for some in (slice(begin, begin + step) for begin in range(0, self.width, step)):
            prices = block.prices(fixed_us[:, some], fees[:, some], least=least, worst=worst)
            micro[:, some], ms[:, some] = prices.microusd[0].T, prices.ms[0].T
        return self._with_cached(micro.ravel(), 0), self._with_cached(ms.ravel(), 0)

    def _worth(self, candidates: Candidates) -> Ints:
        """What is taken off the expected cost where plans are compared: finding out how fast the stage is there."""
        shares = np.repeat(self.offers.worth_ppb_by_machine[candidates.machine] / PPB, self.width)
        count = len(shares)
        return self._with_cached(np.floor(self.est[:count] * shares).astype(np.int64), 0)

    def by_slot(self, values: Array, of_cached: int) -> Array:
        """What holds for all offers on a slot, by offer."""
        return self._with_cached(np.repeat(values, self.width), of_cached)

    def _with_cached(self, values: Array, of_cached: int) -> Array:
        return np.append(values, values.dtype.type(of_cached)) if self.offers.cached else values

    def __len__(self) -> int:
        return len(self.est)

    def is_cached(self, row: int) -> bool:
        return row == self.slots * self.width

    def step(self, row: int) -> Step:
        if self.offers.cached and self.is_cached(row):
            return Step(CACHED, self.offers.cached.reads, self.offers.cached.writes)
        return Step(row // self.width, self.offers.reads[0], self.offers.writes[row % self.width])

    def expected(self, rows: Ints, money_micro: int, time_ms: int) -> tuple[Ints, Ints, Ints]:
        """Samples that money and time buy at the mean, their expected price, and that with the price of their time, less what they
        find out. Fixed work is all done.

        Between its least and all of its passes an elastic stage's price and time grow linearly with its samples.
        """
        share = np.minimum(
            _share(money_micro, self.least_est[rows], self.est[rows]),
            _share(time_ms, self.min_est_ms[rows], self.est_ms[rows]),
        )
        least, most = self.min_samples[rows], self.offers.samples
        samples = least + np.floor((most - least) * share).astype(np.int64)
        est = self.least_est[rows] + np.ceil((self.est[rows] - self.least_est[rows]) * share).astype(np.int64)
        ms = self.min_est_ms[rows] + np.ceil((self.est_ms[rows] - self.min_est_ms[rows]) * share).astype(
            np.int64
        )
        return samples, est, est + time_cost(ms, self.waiting) - self.worth_within(rows, money_micro, time_ms)

    def worth_within(self, rows: Ints, money_micro: int | Ints, time_ms: int | Ints) -> Ints:
        """What finding out is worth where all the work fits at P95, too: no try takes samples from a training."""
        if not self.tries:
            return self.worth[rows]
        sure = (self.p95[rows] <= money_micro) & (self.p95_ms[rows] <= time_ms)
        return np.where(sure, self.worth[rows], 0)


def _share(limit: int, least: Ints, most: Ints) -> Floats:
    """How far from `least` to `most` a limit reaches, from 0 to 1."""
    width = np.maximum(most - least, 1)
    return np.where(limit >= most, 1.0, np.clip((limit - least) / width, 0.0, 1.0))


@dataclass(slots=True)
class Best:
    """For each candidate its best plan that fits: the place of the way to go on (-1: none fits, and the rest means nothing), samples and
    price of this stage, the plan's expected cost, and what of money and time it needs at P95."""

    way: Ints
    samples: Ints
    est: Ints
    total: Ints
    needs_micro: Ints
    needs_ms: Ints

    def better_of(self, other: Best) -> Flags:
        """Take over the plans of `other` for the candidates that have better ones there; which those are."""
        better: Flags = (
            (self.way < 0)
            | (other.samples > self.samples)
            | ((other.samples == self.samples) & (other.total < self.total))
        )
        better &= other.way >= 0
        for mine, theirs in ((getattr(self, name), getattr(other, name)) for name in Best.__slots__):
            mine[better] = theirs[better]
        return better

    def first(self, but: int | None = None) -> int | None:
        """The best candidate, `but` one: most samples, least expected cost, P95 price, P95 time; then the first by name."""
        able = self.way >= 0
        if but is not None:
            able[but] = False
        able &= self.samples == np.where(able, self.samples, -1).max(initial=-1)
        able &= self.total == np.where(able, self.total, MOST).min(initial=MOST)
        rows = np.flatnonzero(able)
        for column in (self.needs_micro, self.needs_ms):
            if rows.size:
                rows = rows[column[rows] == column[rows].min()]
        return int(rows[0]) if rows.size else None


class Plans:
    """Every candidate of this stage with the ways to go on."""

    def __init__(self, here: Here, ahead: ChainLookahead | DagLookahead) -> None:
        self.here, self.ahead, self.limits = here, ahead, here.limits
        self.needs_micro, self.needs_ms = self._least()
        self.followed = self.needs_micro < UNBOUNDED
        self.needs_micro += here.least_p95
        self.needs_ms += here.min_p95_ms
        # Of fixed work samples and price are always these.
        done = np.full(len(here), here.offers.samples), here.est.copy()
        self.best = Best(
            np.full(len(here), -1), *done, *(np.zeros(len(here), dtype=np.int64) for _ in range(3))
        )
        may_fit = (
            here.usable
            & (self.needs_micro <= self.limits.left_micro)
            & (self.needs_ms <= self.limits.left_ms)
        )
        if may_fit.any():
            ahead.go_on(Span.of(here.least_p95[may_fit], here.min_p95_ms[may_fit]), saving=here.elastic)
            for leaves in here.formats:
                if (ways := ahead.after(0, leaves)) is not None:
                    self._settle(np.flatnonzero(may_fit & (here.leaves == leaves)), ways)

    def _least(self) -> tuple[Ints, Ints]:
        """By candidate: the least that the ways to go on from what it leaves need of money, and of time; no way: no end of it."""
        # With a place for no format, which is the last one.
        micro, ms = (np.full(max(self.here.formats) + 2, UNBOUNDED) for _ in range(2))
        for leaves in self.here.formats:
            if (least := self.ahead.least_after(0, leaves)) is not None:
                micro[leaves], ms[leaves] = least
        return micro[self.here.leaves], ms[self.here.leaves]

    def _settle(self, still: Ints, ways: Ways) -> None:
        """The best way for each candidate. Ways come by expected cost: of fixed work, the first that fits is the cheapest."""
        here, limits = self.here, self.limits
        if not here.elastic:
            still = self._settle_fixed(still, ways)
        for place, (cost, p95, ms) in enumerate(
            zip(ways.cost.tolist(), ways.p95.tolist(), ways.ms.tolist(), strict=True)
        ):
            if not still.size:
                break
            fit = (here.least_p95[still] <= limits.left_micro - p95) & (
                here.min_p95_ms[still] <= limits.left_ms - ms
            )
            rows = still[fit]
            done = self._take(rows, place, cost, p95, ms)
            fit[np.flatnonzero(fit)[~done]] = False
            still = still[~fit]

    def _settle_fixed(self, rows: Ints, ways: Ways) -> Ints:
        """Where money and time each bring about the same first way, that is it. The candidates of which that cannot be said."""
        here, best = self.here, self.best
        p95, ms, limits = here.least_p95[rows], here.min_p95_ms[rows], self.limits
        place = np.maximum(_first(ways.p95, limits.left_micro - p95), _first(ways.ms, limits.left_ms - ms))
        there = place < len(ways)
        place = np.minimum(place, len(ways) - 1)
        needs_micro, needs_ms = p95 + ways.p95[place], ms + ways.ms[place]
        sure = there & (needs_micro <= limits.left_micro) & (needs_ms <= limits.left_ms)
        at, way = rows[sure], place[sure]
        best.way[at], best.total[at] = way, here.cost[at] + ways.cost[way]
        best.needs_micro[at], best.needs_ms[at] = needs_micro[sure], needs_ms[sure]
        return rows[there & ~sure]

    def _take(self, rows: Ints, place: int, way_cost: int, keep_micro: int, keep_ms: int) -> Flags:
        """Let the candidates go on in this way, where it is better than those before it. For which no later way can be better still."""
        here, best = self.here, self.best
        money = min(self.limits.left_micro - keep_micro, self.limits.cap_micro(0))
        samples, est, cost = here.expected(rows, money, self.limits.left_ms - keep_ms)
        total, needs_micro, needs_ms = (
            cost + way_cost,
            here.least_p95[rows] + keep_micro,
            here.min_p95_ms[rows] + keep_ms,
        )
        # Later ways are dearer: no better with as many samples, unless fewer of them were bought before.
        better = (best.way[rows] < 0) | (samples > best.samples[rows])
        same = ~better & (samples == best.samples[rows])
        before = (best.total[rows], best.needs_micro[rows], best.needs_ms[rows])
        for old, new in zip(before, (total, needs_micro, needs_ms), strict=True):
            better |= same & (new < old)
            same &= new == old
        at = rows[better]
        best.way[at], best.samples[at], best.est[at], best.total[at] = (
            place,
            samples[better],
            est[better],
            total[better],
        )
        best.needs_micro[at], best.needs_ms[at] = needs_micro[better], needs_ms[better]
        settled: Flags = samples == here.offers.samples
        if here.tries:
            # With more money kept for it, what it finds out may yet count.
            settled &= here.worth_within(rows, money, self.limits.left_ms - keep_ms) == here.worth[rows]
        return settled

    @cached_property
    def shortest_ms(self) -> int | None:
        """The least time at P95 of any plan that the money allows."""
        needs_micro, needs_ms = self.corners()
        affordable_ms = needs_ms[needs_micro <= self.limits.left_micro]
        return int(affordable_ms.min()) if len(affordable_ms) else None

    def corners(self) -> tuple[Ints, Ints]:
        """What plans need of money and of time at P95, of those where less of the one means more of the other."""
        micro, ms = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
        for leaves in self.here.formats:
            if (ways := self.ahead.corners_after(leaves)) is not None:
                rows = np.flatnonzero(self.here.usable & (self.here.leaves == leaves))
                own = self.here.least_p95[rows], self.here.min_p95_ms[rows]
                some = undominated(own[0], np.zeros_like(own[0]), own[1])
                micro.append((own[0][some][:, None] + ways.p95).ravel())
                ms.append((own[1][some][:, None] + ways.ms).ravel())
        return np.concatenate(micro), np.concatenate(ms)


def _first(values: Ints, limits: Ints) -> Ints:
    """For each limit, the place of the first value that is within it; that after the last, where none is."""
    lowest = np.minimum.accumulate(values)[::-1]
    found: Ints = len(values) - np.searchsorted(lowest, limits, side="right")
    return found
