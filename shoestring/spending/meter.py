"""What elapsed time costs, and how much of it is left. Plain arithmetic on whole micro-dollars and nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from shoestring.money import from_microusd, microusd

NS_PER_HOUR = 3600 * 10**9
# A moment on a clock that has run for years is a float that is good to less than this.
MOMENT_NS = 1000


def cost_usd(usd_per_hour: Decimal, seconds: float) -> Decimal:
    """The price of so many seconds, rounded up to the micro-dollar. Seconds count to the nanosecond; negative ones as none."""
    elapsed_ns = max(0, round(seconds * 1e9))
    return from_microusd(-(-microusd(usd_per_hour) * elapsed_ns // NS_PER_HOUR))


@dataclass(frozen=True, slots=True)
class Meter:
    """The clock of one attempt at a stage. Moments (`*_s`) are `Clock.monotonic_s()` values, which agree across the processes of a machine.

    `limit_usd` is what may be spent before leaving: the price of the exit is not in it. `deadline_s` None is no deadline.
    """

    usd_per_hour: Decimal
    started_s: float
    limit_usd: Decimal
    deadline_s: float | None

    def spent_usd(self, now_s: float) -> Decimal:
        return cost_usd(self.usd_per_hour, now_s - self.started_s)

    @property
    def ends_s(self) -> float:
        """The last moment at which neither the money nor the time is overrun; infinity when nothing costs and nothing is due."""
        price = microusd(self.usd_per_hour)
        affordable_ns = microusd(self.limit_usd) * NS_PER_HOUR // price - MOMENT_NS if price else None
        paid_s = float("inf") if affordable_ns is None else self.started_s + affordable_ns / 1e9
        return paid_s if self.deadline_s is None else min(paid_s, self.deadline_s)

    def seconds_left(self, now_s: float) -> float:
        return max(0.0, self.ends_s - now_s)
