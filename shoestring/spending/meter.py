"""The cost of elapsed time, and how much time is left. Plain arithmetic on whole micro-dollars and
nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from itertools import pairwise

from shoestring.core.money import from_microusd, microusd
from shoestring.core.receipt import PricePoint

NS_PER_HOUR = 3600 * 10**9
CLOCK_ERROR_NS = 1000
"""Upper bound of the rounding error of a monotonic clock that has run for years: its seconds are floats."""

RateChanges = tuple[tuple[float, Decimal], ...]
"""(moment on the monotonic clock, dollars an hour from then on), in order of time."""


def cost_usd(usd_per_hour: Decimal, seconds: float) -> Decimal:
    """Return the cost of `seconds`, rounded up to the micro-dollar.

    Seconds count to the nanosecond. Negative seconds cost nothing.
    """
    return costs_usd([(usd_per_hour, seconds)])


def costs_usd(spans: Iterable[tuple[Decimal, float]]) -> Decimal:
    """Return the cost of spans of (dollars an hour, seconds). The sum is rounded up to the micro-dollar."""
    total = sum(microusd(usd_per_hour) * max(0, round(seconds * 1e9)) for usd_per_hour, seconds in spans)
    return from_microusd(-(-total // NS_PER_HOUR))


def cost_between_usd(prices: Sequence[PricePoint], began: datetime, ended: datetime) -> Decimal:
    """Return the cost of a pod from `began` to `ended` at its prices. The first price counts from the
    beginning.
    """
    turns = [began, *(max(began, price.at) for price in prices[1:]), max(began, ended)]
    spans = [(before, min(after, turns[-1])) for before, after in pairwise(turns)]
    lasted = [(after - before).total_seconds() for before, after in spans]
    return costs_usd((price.usd_per_hour, seconds) for price, seconds in zip(prices, lasted, strict=True))


@dataclass(slots=True, eq=False)
class Meter:
    """The meter of one attempt at a stage.

    Moments (`*_s`) are `Clock.monotonic_s()` values, which agree across the processes of a machine.
    `limit_usd` is what may be spent before the exit, whose cost is not included. `deadline_s` None means no
    deadline. `rate_changes` are the prices that replaced `usd_per_hour` since the start. `ends_s` is the
    last moment at which neither the limit nor the deadline is exceeded at the current price: infinity if the
    price is zero and there is no deadline. Only the owner of the meter changes it, by `update`.
    """

    usd_per_hour: Decimal
    started_s: float
    limit_usd: Decimal
    deadline_s: float | None
    rate_changes: RateChanges = ()
    ends_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.ends_s = self._end()

    def update(self, limit_usd: Decimal, rate_changes: RateChanges, deadline_s: float | None) -> None:
        """Replace the limit, the prices and the deadline. `rate_changes` holds all price changes since the
        start.
        """
        self.limit_usd, self.rate_changes, self.deadline_s = limit_usd, rate_changes, deadline_s
        self.ends_s = self._end()

    @property
    def current_usd_per_hour(self) -> Decimal:
        return self.rate_changes[-1][1] if self.rate_changes else self.usd_per_hour

    def spent_usd(self, now_s: float) -> Decimal:
        """Return what the time from the start to `now_s` costs."""
        changes = self.rate_changes
        turns = [self.started_s, *(moment_s for moment_s, _ in changes), now_s]
        prices = [self.usd_per_hour, *(price for _, price in changes)]
        return costs_usd(
            (price, min(after, now_s) - before)
            for price, (before, after) in zip(prices, pairwise(turns), strict=True)
        )

    def seconds_at_current_price(self, from_s: float, to_s: float) -> float:
        """Return the seconds that the cost of the time between two moments buys at the current price, which
        is not 0."""
        if not self.rate_changes:
            return to_s - from_s
        turns = [(from_s, self.usd_per_hour), *self.rate_changes, (to_s, Decimal(0))]
        paid = sum(
            float(price) * max(0.0, min(after, to_s) - max(before, from_s))
            for (before, price), (after, _) in pairwise(turns)
        )
        return paid / float(self.current_usd_per_hour)

    def _end(self) -> float:
        since_s = self.rate_changes[-1][0] if self.rate_changes else self.started_s
        price, left = microusd(self.current_usd_per_hour), microusd(self.limit_usd - self.spent_usd(since_s))
        affordable_ns = left * NS_PER_HOUR // price - CLOCK_ERROR_NS if price else None
        paid_s = float("inf") if affordable_ns is None else since_s + affordable_ns / 1e9
        return paid_s if self.deadline_s is None else min(paid_s, self.deadline_s)

    def seconds_left(self, now_s: float) -> float:
        return max(0.0, self.ends_s - now_s)


@dataclass(frozen=True, slots=True)
class MeterShare:
    """A meter as a part of an attempt reads it, which may use a share of the time that is left at `from_s`,
    less `reserve_s`. It follows the meter: the prices and the limit of the attempt may change."""

    meter: Meter | MeterShare
    from_s: float
    share: float = 1.0
    reserve_s: float = 0.0

    @property
    def ends_s(self) -> float:
        return self.from_s + self.share * max(0.0, self.meter.ends_s - self.reserve_s - self.from_s)

    @property
    def deadline_s(self) -> float | None:
        """The end, where the deadline ends the meter: `ends_s == deadline_s` means that time is short, and
        not money."""
        return self.ends_s if self.meter.ends_s == self.meter.deadline_s else self.meter.deadline_s

    @property
    def current_usd_per_hour(self) -> Decimal:
        return self.meter.current_usd_per_hour

    def spent_usd(self, now_s: float) -> Decimal:
        return self.meter.spent_usd(now_s)

    def seconds_at_current_price(self, from_s: float, to_s: float) -> float:
        return self.meter.seconds_at_current_price(from_s, to_s)

    def seconds_left(self, now_s: float) -> float:
        return max(0.0, self.ends_s - now_s)
