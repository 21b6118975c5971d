"""The offers of the current stage. Arrays are indexed by candidate."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from shoestring.routing.candidates import NONE, PPB, Candidates, Floats, Ints
from shoestring.routing.offers.offer_costs import OfferBlock, delay_cost
from shoestring.routing.planner.best_plans import PPM
from shoestring.routing.planner.partial_plans import (
    CACHED,
    PlanStep,
    RunLimits,
)
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
        self.min_share_ppm = round(question.active_policy.min_sample_share * PPM)
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
