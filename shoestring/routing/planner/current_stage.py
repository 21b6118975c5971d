"""The offers of the current stage, and the best plan for each. Arrays are indexed by candidate."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from shoestring.routing.candidates import NONE, PPB, Candidates, Flags, Floats, Ints
from shoestring.routing.offers.offer_costs import OfferBlock, delay_cost
from shoestring.routing.planner.partial_plans import (
    CACHED,
    UNBOUNDED,
    BestPlans,
    NeedRange,
    PartialPlans,
    PlanStep,
    RunLimits,
    undominated,
)
from shoestring.routing.planner.stage_options import Lookahead
from shoestring.routing.question import Question

Array = npt.NDArray[Any]

BLOCK_OFFERS = 16_384
"""Offers that are priced at once."""


class CurrentStage:
    """The costs of the stage's offers.

    `possible`: not excluded at any budget; `usable`: within the stage's own budget, too. For an elastic stage
    `min_*` is for the fewest samples worth starting for; for a fixed stage it is the same as the rest.
    """

    def __init__(self, question: Question, candidates: Candidates, limits: RunLimits) -> None:
        need, self.limits = question.needs[0], limits
        self.delay_micro, self.elastic = question.delay_microusd_per_hour(need), need.elastic
        self.offers = offers = candidates.offers[0]
        self.width, self.targets = len(offers.writes), len(candidates.pool)
        block = OfferBlock(candidates, 0, np.arange(self.targets))
        fixed_us, fees = block.fixed_us(), block.fees_microusd()
        self.est, self.est_ms = self._prices(block, fixed_us, fees)
        self.p95, self.p95_ms = self._prices(block, fixed_us, fees, p95=True)
        self.min_est, self.min_est_ms, self.min_p95, self.min_p95_ms = (
            self.est,
            self.est_ms,
            self.p95,
            self.p95_ms,
        )
        if self.elastic:
            self.min_est, self.min_est_ms = self._prices(block, fixed_us, fees, minimum=True)
            self.min_p95, self.min_p95_ms = self._prices(block, fixed_us, fees, minimum=True, p95=True)
        # A record may hold a bonus for an elastic stage that does not explore.
        explores = not self.elastic or question.exploration_sd > 0
        self.explores = bool(offers.exploration_ppb_by_machine.any() and explores)
        self.bonus = self._bonus(candidates) if self.explores else np.broadcast_to(np.int64(0), len(self.est))
        min_samples = np.broadcast_to(np.int64(offers.min_samples), self.targets * self.width)
        self.min_samples = self._with_cached(min_samples, offers.samples)
        cached = [offers.cached.writes] if offers.cached else []
        if need.writes_bytes_per_row > 0:
            self.format_left = self._with_cached(
                np.tile(offers.writes, self.targets), cached[0] if cached else NONE
            )
            self.formats = sorted({*offers.writes, *cached})
        else:
            self.format_left, self.formats = np.full(len(self.est), offers.reads[0]), [offers.reads[0]]
        # Plans are compared by this cost, with all the work done.
        self.cost = self.est + delay_cost(self.est_ms, self.delay_micro) - self.bonus
        self.possible = self.by_target(offers.exclusion == NONE, True)
        self.within_cap = self.min_p95 <= limits.cap_micro(0)
        self.usable = self.possible & self.within_cap

    def _prices(
        self, block: OfferBlock, fixed_us: Floats, fees: Ints, *, minimum: bool = False, p95: bool = False
    ) -> tuple[Ints, Ints]:
        """Return micro-dollars and milliseconds.

        A few formats are priced at a time, so that the arrays fit a CPU cache.
        """
        micro, ms = (np.empty((self.targets, self.width), dtype=np.int64) for _ in range(2))
        step = max(1, BLOCK_OFFERS // max(self.targets, 1))
        for part in (slice(begin, begin + step) for begin in range(0, self.width, step)):
            prices = block.prices(fixed_us[:, part], fees[:, part], minimum=minimum, p95=p95)
            micro[:, part], ms[:, part] = prices.microusd[0].T, prices.ms[0].T
        return self._with_cached(micro.ravel(), 0), self._with_cached(ms.ravel(), 0)

    def _bonus(self, candidates: Candidates) -> Ints:
        """Return the exploration bonus: what measuring the speed is worth when plans are compared."""
        shares = np.repeat(self.offers.exploration_ppb_by_machine[candidates.machine] / PPB, self.width)
        return self._with_cached(np.floor(self.est[: len(shares)] * shares).astype(np.int64), 0)

    def by_target(self, values: Array, cached_value: int) -> Array:
        """Return values by target as values by candidate."""
        return self._with_cached(np.repeat(values, self.width), cached_value)

    def _with_cached(self, values: Array, cached_value: int) -> Array:
        return np.append(values, values.dtype.type(cached_value)) if self.offers.cached else values

    def __len__(self) -> int:
        return len(self.est)

    def is_cached(self, row: int) -> bool:
        """Return whether a candidate is the cached result."""
        return row == self.targets * self.width

    def step(self, row: int) -> PlanStep:
        """Return the offer of a candidate."""
        if self.offers.cached and self.is_cached(row):
            return PlanStep(CACHED, self.offers.cached.reads, self.offers.cached.writes)
        return PlanStep(row // self.width, self.offers.reads[0], self.offers.writes[row % self.width])

    def expected(self, rows: Ints, money_micro: int, time_ms: int) -> tuple[Ints, Ints, Ints]:
        """Return the expected samples within money and time, their price, and the cost that plans are
        compared by.

        An elastic stage's price and time grow linearly between its fewest samples and all of them. A fixed
        stage does all its work.
        """
        share = np.minimum(
            _share(money_micro, self.min_est[rows], self.est[rows]),
            _share(time_ms, self.min_est_ms[rows], self.est_ms[rows]),
        )
        minimum, min_est, min_ms = self.min_samples[rows], self.min_est[rows], self.min_est_ms[rows]
        samples = minimum + np.floor((self.offers.samples - minimum) * share).astype(np.int64)
        est = min_est + np.ceil((self.est[rows] - min_est) * share).astype(np.int64)
        ms = min_ms + np.ceil((self.est_ms[rows] - min_ms) * share).astype(np.int64)
        return (
            samples,
            est,
            est + delay_cost(ms, self.delay_micro) - self.bonus_within(rows, money_micro, time_ms),
        )

    def bonus_within(self, rows: Ints, money_micro: int | Ints, time_ms: int | Ints) -> Ints:
        """Return the bonus where all the work fits at P95: exploring must not cost a training samples."""
        if not self.explores:
            return self.bonus[rows]
        sure = (self.p95[rows] <= money_micro) & (self.p95_ms[rows] <= time_ms)
        return np.where(sure, self.bonus[rows], 0)


def _share(limit: int, low: Ints, high: Ints) -> Floats:
    """Return how far a limit reaches from `low` (0) to `high` (1)."""
    width = np.maximum(high - low, 1)
    return np.where(limit >= high, 1.0, np.clip((limit - low) / width, 0.0, 1.0))


class CandidatePlans:
    """The result of a plan search: every candidate of the current stage with its best plan.

    `needs_*`: what a candidate's plans need at least of money and of time. `has_continuation`: some plan
    follows it. `chosen`: the best candidate; None: no plan fits. `optimality_gap_ppm`: upper bound on the
    distance from the best possible plan, in parts per million. 0: exact. None: no plan was found, and one may
    still exist.
    """

    optimality_gap_ppm: int | None = 0

    def __init__(self, current: CurrentStage, lookahead: Lookahead) -> None:
        self.current, self.lookahead, self.limits = current, lookahead, current.limits
        self.needs_micro, self.needs_ms = self._min_needs()
        self.has_continuation = self.needs_micro < UNBOUNDED
        self.needs_micro += current.min_p95
        self.needs_ms += current.min_p95_ms
        # A fixed stage always has these samples and this price.
        done = np.full(len(current), current.offers.samples), current.est.copy()
        zeros = (np.zeros(len(current), dtype=np.int64) for _ in range(3))
        self.best = BestPlans(np.full(len(current), -1), *done, *zeros)
        fits = (
            current.usable
            & (self.needs_micro <= self.limits.left_micro)
            & (self.needs_ms <= self.limits.left_ms)
        )
        if fits.any():
            needs = NeedRange.of(current.min_p95[fits], current.min_p95_ms[fits])
            lookahead.search(needs, saving=current.elastic)
            for format_left in current.formats:
                if (continuations := lookahead.continuations(format_left)) is not None:
                    self._choose_continuations(
                        np.flatnonzero(fits & (current.format_left == format_left)), continuations
                    )
        self.chosen = self.best.first()

    @cached_property
    def path(self) -> list[PlanStep]:
        """The offers of the later stages in the best plan; empty where there is none."""
        row = self.chosen
        if row is None:
            return []
        return self.lookahead.path(int(self.current.format_left[row]), int(self.best.way[row]))

    def _min_needs(self) -> tuple[Ints, Ints]:
        """Return, by candidate, the minimum money and time of its continuations; UNBOUNDED for none."""
        # The last element is for candidates that leave no format.
        micro, ms = (np.full(max(self.current.formats) + 2, UNBOUNDED) for _ in range(2))
        for format_left in self.current.formats:
            if (needs := self.lookahead.min_needs(format_left)) is not None:
                micro[format_left], ms[format_left] = needs
        return micro[self.current.format_left], ms[self.current.format_left]

    def _choose_continuations(self, open_rows: Ints, continuations: PartialPlans) -> None:
        """Find the best continuation of each candidate. Continuations are sorted by expected cost."""
        current, limits = self.current, self.limits
        if not current.elastic:
            open_rows = self._choose_first_fitting(open_rows, continuations)
        columns = (continuations.cost.tolist(), continuations.p95.tolist(), continuations.ms.tolist())
        for way, (cost, p95, ms) in enumerate(zip(*columns, strict=True)):
            if not open_rows.size:
                break
            fits = current.min_p95[open_rows] <= limits.left_micro - p95
            fits &= current.min_p95_ms[open_rows] <= limits.left_ms - ms
            settled = self._take(open_rows[fits], way, cost, p95, ms)
            fits[np.flatnonzero(fits)[~settled]] = False
            open_rows = open_rows[~fits]

    def _choose_first_fitting(self, rows: Ints, continuations: PartialPlans) -> Ints:
        """Give each candidate the first continuation that fits: for a fixed stage it is the cheapest one.

        Returns the candidates for which the first one within the money and the first one within the time do
        not settle it.
        """
        current, best, limits = self.current, self.best, self.limits
        p95, ms = current.min_p95[rows], current.min_p95_ms[rows]
        first = np.maximum(
            _first_within(continuations.p95, limits.left_micro - p95),
            _first_within(continuations.ms, limits.left_ms - ms),
        )
        exists = first < len(continuations)
        first = np.minimum(first, len(continuations) - 1)
        needs_micro, needs_ms = p95 + continuations.p95[first], ms + continuations.ms[first]
        sure = exists & (needs_micro <= limits.left_micro) & (needs_ms <= limits.left_ms)
        at, way = rows[sure], first[sure]
        best.way[at], best.total[at] = way, current.cost[at] + continuations.cost[way]
        best.needs_micro[at], best.needs_ms[at] = needs_micro[sure], needs_ms[sure]
        return rows[exists & ~sure]

    def _take(self, rows: Ints, way: int, later_cost: int, later_micro: int, later_ms: int) -> Flags:
        """Give candidates this continuation where it is better than their best so far.

        Returns which candidates are settled: no later continuation can be better.
        """
        current, best = self.current, self.best
        money = min(self.limits.left_micro - later_micro, self.limits.cap_micro(0))
        time_ms = self.limits.left_ms - later_ms
        samples, est, cost = current.expected(rows, money, time_ms)
        new = (cost + later_cost, current.min_p95[rows] + later_micro, current.min_p95_ms[rows] + later_ms)
        # Later continuations cost more. They are better only with more samples, or if the price of the
        # samples is lower.
        better = (best.way[rows] < 0) | (samples > best.samples[rows])
        same = ~better & (samples == best.samples[rows])
        columns = (best.total, best.needs_micro, best.needs_ms)
        for column, values in zip(columns, new, strict=True):
            better |= same & (values < column[rows])
            same &= values == column[rows]
        at = rows[better]
        best.way[at], best.samples[at], best.est[at] = way, samples[better], est[better]
        for column, values in zip(columns, new, strict=True):
            column[at] = values[better]
        settled: Flags = samples == current.offers.samples
        if current.explores:
            # A continuation that leaves more money may still earn the bonus.
            settled &= current.bonus_within(rows, money, time_ms) == current.bonus[rows]
        return settled

    @cached_property
    def shortest_ms(self) -> int | None:
        """The minimum P95 time of the plans that the money allows; None: it allows none."""
        needs_micro, needs_ms = self.trade_offs()
        affordable_ms = needs_ms[needs_micro <= self.limits.left_micro]
        return int(affordable_ms.min()) if len(affordable_ms) else None

    def trade_offs(self) -> tuple[Ints, Ints]:
        """Return P95 money and P95 time of plans, including all that are Pareto-optimal in the two."""
        current, micro, ms = self.current, [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
        for format_left in current.formats:
            if (continuations := self.lookahead.trade_offs(format_left)) is not None:
                rows = np.flatnonzero(current.usable & (current.format_left == format_left))
                p95, own_ms = current.min_p95[rows], current.min_p95_ms[rows]
                remaining = undominated(p95, np.zeros_like(p95), own_ms)
                micro.append((p95[remaining][:, None] + continuations.p95).ravel())
                ms.append((own_ms[remaining][:, None] + continuations.ms).ravel())
        return np.concatenate(micro), np.concatenate(ms)


def _first_within(values: Ints, limits: Ints) -> Ints:
    """Return, for each limit, the index of the first value within it, and len(values) where there is none."""
    lowest = np.minimum.accumulate(values)[::-1]
    found: Ints = len(values) - np.searchsorted(lowest, limits, side="right")
    return found
