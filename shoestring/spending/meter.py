"""What elapsed time costs, and how much of it is left. Plain arithmetic on whole micro-dollars and nanoseconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import pairwise

from shoestring.core.money import from_microusd, microusd
from shoestring.core.receipt import PricePoint

NS_PER_HOUR = 3600 * 10**9
# A moment on a clock that has run for years is a float that is good to less than this.
CLOCK_ERROR_NS = 1000

RateChanges = tuple[tuple[float, Decimal], ...]
"""(moment on the monotonic clock, dollars an hour from then on), in order."""


def cost_usd(usd_per_hour: Decimal, seconds: float) -> Decimal:
    """The price of so many seconds, rounded up to the micro-dollar. Seconds count to the nanosecond; negative ones as none."""
    return costs_usd([(usd_per_hour, seconds)])


def costs_usd(spans: Iterable[tuple[Decimal, float]]) -> Decimal:
    """The price of spans of (dollars an hour, seconds), rounded up to the micro-dollar once."""
    total = sum(microusd(usd_per_hour) * max(0, round(seconds * 1e9)) for usd_per_hour, seconds in spans)
    return from_microusd(-(-total // NS_PER_HOUR))


def cost_between_usd(prices: Sequence[PricePoint], began: datetime, ended: datetime) -> Decimal:
    """What a pod cost from `began` to `ended`, by the prices that it had; the first of them holds from its beginning."""
    turns = [began, *(max(began, price.at) for price in prices[1:]), max(began, ended)]
    spans = [(before, min(after, turns[-1])) for before, after in pairwise(turns)]
    lasted = [(after - before).total_seconds() for before, after in spans]
    return costs_usd((price.usd_per_hour, seconds) for price, seconds in zip(prices, lasted, strict=True))


@dataclass(slots=True, eq=False)
class Meter:
    """The clock of one attempt at a stage. Moments (`*_s`) are `Clock.monotonic_s()` values, which agree across the processes of a machine.

    `limit_usd` is what may be spent before leaving: the price of the exit is not in it. `deadline_s` None is no deadline. `moves`: prices
    that took the place of `usd_per_hour` since it began. Only whoever keeps the books changes a meter, by `hear`.
    """

    usd_per_hour: Decimal
    started_s: float
    limit_usd: Decimal
    deadline_s: float | None
    moves: RateChanges = ()

    def update(self, limit_usd: Decimal, moves: RateChanges, deadline_s: float | None) -> None:
        """Go by another limit, other prices and another deadline from now on. `moves` holds all prices there have been."""
        self.limit_usd, self.moves, self.deadline_s = limit_usd, moves, deadline_s

    @property
    def current_usd_per_hour(self) -> Decimal:
        """The price in force."""
        return self.moves[-1][1] if self.moves else self.usd_per_hour

    def spent_usd(self, now_s: float) -> Decimal:
        moves = self.moves
        turns = [self.started_s, *(moment_s for moment_s, _ in moves), now_s]
        prices = [self.usd_per_hour, *(price for _, price in moves)]
        return costs_usd(
            (price, min(after, now_s) - before)
            for price, (before, after) in zip(prices, pairwise(turns), strict=True)
        )

    @property
    def ends_s(self) -> float:
        """The last moment at which neither the money nor the time is overrun, should the price stay; infinity when nothing costs and
        nothing is due."""
        since_s = self.moves[-1][0] if self.moves else self.started_s
        price, left = microusd(self.current_usd_per_hour), microusd(self.limit_usd - self.spent_usd(since_s))
        affordable_ns = left * NS_PER_HOUR // price - CLOCK_ERROR_NS if price else None
        paid_s = float("inf") if affordable_ns is None else since_s + affordable_ns / 1e9
        return paid_s if self.deadline_s is None else min(paid_s, self.deadline_s)

    def seconds_left(self, now_s: float) -> float:
        return max(0.0, self.ends_s - now_s)
