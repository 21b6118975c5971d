"""The best plan of each candidate of the current stage: its offer, with the continuation that suits it."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from shoestring.routing.candidates import Flags, Floats, Ints
from shoestring.routing.offers.offer_costs import delay_cost
from shoestring.routing.planner.best_plans import NEAR, BestPlans, share_of_samples
from shoestring.routing.planner.current_stage import CurrentStage
from shoestring.routing.planner.partial_plans import (
    UNBOUNDED,
    NeedRange,
    PartialPlans,
    PlanStep,
    undominated,
)
from shoestring.routing.planner.stage_options import Lookahead

ROUNDING_MICRO = 2.0
"""Estimates are rounded up, so that the cost of some samples is at most this far from its line."""


class CandidatePlans:
    """The result of a plan search: every candidate of the current stage with its best plan.

    `needs_*`: what a candidate's plans need at least of money and of time. `has_continuation`: some plan
    follows it. `chosen`: the best candidate; None: no plan fits. `optimality_gap_ppm`: upper bound on the
    distance from the best possible plan, in parts per million. 0: exact. None: no plan was found, and one may
    still exist.
    """

    optimality_gap_ppm: int | None = 0

    def __init__(self, current: CurrentStage, lookahead: Lookahead, most_samples: int = 0) -> None:
        """Find the plans. `most_samples`: what a plan that is known already buys."""
        self.current, self.lookahead, self.limits = current, lookahead, current.limits
        self.needs_micro, self.needs_ms = self._min_needs()
        self.has_continuation = self.needs_micro < UNBOUNDED
        self.needs_micro += current.min_p95
        self.needs_ms += current.min_p95_ms
        # A fixed stage always has these samples and this price.
        samples, est = np.full(len(current), current.offers.samples), current.est.copy()
        total, micro, ms = np.zeros((3, len(current)), dtype=np.int64)
        self.best = BestPlans(np.full(len(current), -1), samples, est, total, micro, ms)
        fits = (
            current.usable
            & (self.needs_micro <= self.limits.left_micro)
            & (self.needs_ms <= self.limits.left_ms)
        )
        if fits.any():
            needs = NeedRange.of(current.min_p95[fits], current.min_p95_ms[fits])
            lookahead.search(needs, saving=current.elastic)
            self._choose(fits)
        self.most_samples = max(self.best.most_samples, most_samples)
        self.chosen = self.best.first()
        if current.elastic:
            self.compare_prices(self.most_samples)

    def compare_prices(self, most_samples: int) -> None:
        """Choose by the price of a sample, among the plans that buy the policy's share of this many."""
        self.best.min_samples = share_of_samples(most_samples, self.current.min_share_ppm)
        rounding = ROUNDING_MICRO / max(self.best.min_samples, 1)
        self._least_prices = np.minimum(*self._sample_prices()) - rounding
        self._choose(self.best.counts)
        self.chosen = self.best.first()

    def _choose(self, candidates: Flags) -> None:
        """Find the best plan of each of these candidates."""
        for format_left in self.current.formats:
            rows = np.flatnonzero(candidates & (self.current.format_left == format_left))
            if rows.size and (continuations := self.lookahead.continuations(format_left)) is not None:
                self._choose_continuations(rows, continuations)

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
        plans = BestPlans(
            np.full(len(rows), way),
            samples,
            est,
            cost + later_cost,
            current.min_p95[rows] + later_micro,
            current.min_p95_ms[rows] + later_ms,
        )
        best.take_better(rows, plans)
        if best.min_samples < UNBOUNDED:
            return self._is_cheapest(rows, later_cost)
        settled: Flags = samples == current.offers.samples
        if current.explores:
            # A continuation that leaves more money may still earn the bonus.
            settled &= current.bonus_within(rows, money, time_ms) == current.bonus[rows]
        return settled

    def _is_cheapest(self, rows: Ints, later_cost: int) -> Flags:
        """Return the candidates for which no continuation of this cost or more has cheaper samples."""
        price = self.best.total[rows] / np.maximum(self.best.samples[rows], 1)
        later = later_cost / max(self.current.offers.samples, 1)
        settled: Flags = self._least_prices[rows] + later > price * (1 + NEAR)
        return settled

    def _sample_prices(self) -> tuple[Floats, Floats]:
        """Return what a sample costs without the later stages: of the fewest that count, and of all samples.

        The cost grows linearly with the samples, so between the two the price of one is between these prices.
        """
        current, most = self.current, self.current.offers.samples
        low = current.min_est + delay_cost(current.min_est_ms, current.delay_micro) - current.bonus
        fewest = np.maximum(current.min_samples, self.best.min_samples)
        share = (fewest - current.min_samples) / np.maximum(most - current.min_samples, 1)
        return (low + (current.cost - low) * share) / np.maximum(fewest, 1), current.cost / max(most, 1)

    def lowest_price(self) -> float:
        """Return a lower bound on what a sample of any plan that counts costs, in micro-dollars.

        The later stages may cost more than in the plans found, and the current stage may buy fewer samples:
        that makes samples cheaper only where few are cheaper than all.
        """
        best, rows = self.best, np.flatnonzero(self.best.counts)
        price = best.total[rows] / np.maximum(best.samples[rows], 1)
        few, every = (each[rows] for each in self._sample_prices())
        lowest = np.where(few < every, np.minimum(few, price), price).min()
        return float(lowest) - ROUNDING_MICRO / max(best.min_samples, 1)

    def least_micro(self) -> int | None:
        """Return the minimum P95 money of all plans of a chain, in any time; None: there is none.

        Without a limit of time, the cheapest offers of each format make the cheapest plan.
        """
        needs_micro = self.needs_micro[self.current.usable & self.has_continuation]
        return int(needs_micro.min()) if needs_micro.size else None

    def cheapest_micro(self, left_ms: int) -> int | None:
        """Return the minimum P95 money of the plans within a time; None: there is none."""
        needs_micro, needs_ms = self.trade_offs
        in_time = needs_micro[needs_ms <= left_ms]
        return int(in_time.min()) if len(in_time) else None

    def shortest_ms(self, left_micro: int) -> int | None:
        """Return the minimum P95 time of the plans that an amount of money allows; None: it allows none."""
        needs_micro, needs_ms = self.trade_offs
        affordable_ms = needs_ms[needs_micro <= left_micro]
        return int(affordable_ms.min()) if len(affordable_ms) else None

    @cached_property
    def trade_offs(self) -> tuple[Ints, Ints]:
        """P95 money and P95 time of plans, including all that are Pareto-optimal in the two.

        Of a chain, these are the plans for any money and time.
        """
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
