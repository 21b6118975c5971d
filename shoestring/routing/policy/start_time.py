"""Start now, or wait? Pure.

What a start at t costs, beside one now: dollars x factor(t) / factor(now) + the price of an hour of waiting x hours, where factor is the
mean of the windows' price factors over the time that the run is expected to take. Only the moments at which a window opens or closes are
looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from pydantic import AwareDatetime

from shoestring.config.policy import PriceWindow, Priority, StartPolicy
from shoestring.core.types import Record, utc_text

LEAST_S = 1.0


class When(Record):
    """`until` None: now."""

    until: AwareDatetime | None
    sentence: str


def is_open(window: PriceWindow, moment: datetime) -> bool:
    """Whether a window is open. One that ends at or before its beginning lasts over midnight, and belongs to the day it began on."""
    hour = moment.hour + moment.minute / 60 + moment.second / 3600
    if window.from_hour < window.to_hour:
        return day_of(moment) in window.days and window.from_hour <= hour < window.to_hour
    if hour >= window.from_hour:
        return day_of(moment) in window.days
    return hour < window.to_hour and day_of(moment - timedelta(days=1)) in window.days


def day_of(moment: datetime) -> str:
    return ("mon", "tue", "wed", "thu", "fri", "sat", "sun")[moment.weekday()]


def price_factor(windows: Sequence[PriceWindow], moment: datetime) -> float:
    """Of the windows that are open, the first; 1 where none is."""
    return next((window.price_factor for window in windows if is_open(window, moment)), 1.0)


def turns(windows: Sequence[PriceWindow], after: datetime, seconds: float) -> list[datetime]:
    """When a window opens or closes within so many seconds."""
    midnight, end = (
        after.replace(hour=0, minute=0, second=0, microsecond=0),
        after + timedelta(seconds=seconds),
    )
    days = range(int(seconds // 86400) + 2)
    found = {
        midnight + timedelta(days=day, hours=hour)
        for day in days
        for each in windows
        for hour in (each.from_hour, each.to_hour)
    }
    return sorted(moment for moment in found if after < moment <= end)


def mean_factor(windows: Sequence[PriceWindow], begins: datetime, seconds: float) -> float:
    """Of a run that lasts so long."""
    seconds = max(seconds, LEAST_S)
    ends = begins + timedelta(seconds=seconds)
    edges = [begins, *(each for each in turns(windows, begins, seconds) if each < ends), ends]
    parts = pairwise(edges)
    return (
        sum(price_factor(windows, first) * (last - first).total_seconds() for first, last in parts) / seconds
    )


def when(
    now: datetime,
    rules: StartPolicy,
    priority: Priority,
    *,
    est_usd: float,
    est_s: float,
    spare_s: float | None,
    queue: int,
    delay_usd_per_hour: float = 0.0,
    waited_s: float = 0.0,
) -> When:
    """Whether a run begins now. `spare_s`: how late it may begin and still keep its deadline at P95. `queue`: pods that wait for its pool.

    `waited_s`: already, of `max_delay_s`. What is urgent never waits. What may wait yields to a window that is called peak, and to a
    queue; all but the urgent waits for a better price where that saves `min_saving` of its cost.
    """
    most_s = min(rules.max_delay_s - waited_s, spare_s if spare_s is not None else rules.max_delay_s)
    if priority == "high" or most_s < LEAST_S:
        return When(until=None, sentence="starts now")
    base = mean_factor(rules.windows, now, est_s)

    def cost(moment: datetime) -> float:
        waiting_usd = delay_usd_per_hour * (moment - now).total_seconds() / 3600
        return est_usd * mean_factor(rules.windows, moment, est_s) / base + waiting_usd

    later = turns(rules.windows, now, most_s)
    best = min(later, key=lambda moment: (cost(moment), moment), default=None)
    saving = 1 - cost(best) / est_usd if best and est_usd > 0 else 0.0
    if best and saving > 0 and saving >= rules.min_saving:
        return When(
            until=best,
            sentence=f"not before {utc_text(best)}: ${cost(best):.6f} then, ${est_usd:.6f} now, {saving:.0%} less",
        )
    if priority == "low":
        return yielded(now, rules, later, queue, most_s)
    return When(until=None, sentence="starts now")


def yielded(now: datetime, rules: StartPolicy, later: Sequence[datetime], queue: int, most_s: float) -> When:
    """What a run that may wait gives way to."""
    if is_peak(rules.windows, now) and (
        after := next((each for each in later if not is_peak(rules.windows, each)), None)
    ):
        return When(
            until=after, sentence=f"not before {utc_text(after)}: it may wait, and until then is a peak"
        )
    if rules.yield_to_queue and queue >= rules.yield_to_queue:
        until = now + timedelta(seconds=min(rules.poll_s, most_s))
        return When(
            until=until,
            sentence=f"not before {utc_text(until)}: it may wait, and {queue} pods wait for its pool already",
        )
    return When(until=None, sentence="starts now")


def is_peak(windows: Sequence[PriceWindow], moment: datetime) -> bool:
    return any(window.peak and is_open(window, moment) for window in windows)
