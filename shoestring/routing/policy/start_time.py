"""Decide whether a run starts now or later. Pure.

The cost of a start at time t is dollars x factor(t) / factor(now) + delay_usd_per_hour x hours of delay. The
factor is the mean of the windows' price factors over the expected duration of the run. Only the times at
which a window opens or closes are candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from pydantic import AwareDatetime

from shoestring.config.policy import PriceWindow, Priority, StartPolicy
from shoestring.core.record import Record, utc_text

MIN_WAIT_S = 1.0
"""Shorter delays, in seconds, are not worth a wait."""

ROUNDING = 1e-9
"""A share of the cost that may be the rounding of equal costs: no run waits for it."""


class StartTime(Record):
    """The time at which a run may start.

    `not_before` is None if it starts now. The sentence contains the numbers.
    """

    not_before: AwareDatetime | None
    sentence: str


START_NOW = StartTime(not_before=None, sentence="starts now")


def is_open(window: PriceWindow, moment: datetime) -> bool:
    """Return True if the window is open at this time.

    A window whose end hour is not after its start hour lasts past midnight. It belongs to the day on which
    it opens.
    """
    hour = moment.hour + moment.minute / 60 + moment.second / 3600
    if window.from_hour < window.to_hour:
        return weekday_of(moment) in window.days and window.from_hour <= hour < window.to_hour
    if hour >= window.from_hour:
        return weekday_of(moment) in window.days
    return hour < window.to_hour and weekday_of(moment - timedelta(days=1)) in window.days


def weekday_of(moment: datetime) -> str:
    """Return the weekday as a window names it: "mon" to "sun"."""
    return ("mon", "tue", "wed", "thu", "fri", "sat", "sun")[moment.weekday()]


def price_factor(windows: Sequence[PriceWindow], moment: datetime) -> float:
    """Return the price factor of the first window that is open, or 1 if none is."""
    return next((window.price_factor for window in windows if is_open(window, moment)), 1.0)


def window_edges(windows: Sequence[PriceWindow], after: datetime, seconds: float) -> list[datetime]:
    """Return the times within `seconds` after `after` at which a window opens or closes, in order."""
    midnight = after.replace(hour=0, minute=0, second=0, microsecond=0)
    end = after + timedelta(seconds=seconds)
    days = range(int(seconds // 86400) + 2)
    found = {
        midnight + timedelta(days=day, hours=hour)
        for day in days
        for each in windows
        for hour in (each.from_hour, each.to_hour)
    }
    return sorted(moment for moment in found if after < moment <= end)


def mean_price_factor(windows: Sequence[PriceWindow], begins: datetime, seconds: float) -> float:
    """Return the time-weighted mean price factor over `seconds` from `begins`."""
    seconds = max(seconds, MIN_WAIT_S)
    ends = begins + timedelta(seconds=seconds)
    edges = [begins, *(each for each in window_edges(windows, begins, seconds) if each < ends), ends]
    parts = pairwise(edges)
    return (
        sum(price_factor(windows, first) * (last - first).total_seconds() for first, last in parts) / seconds
    )


def choose_start_time(
    now: datetime,
    policy: StartPolicy,
    priority: Priority,
    *,
    est_usd: float,
    est_s: float,
    spare_s: float | None,
    queue: int,
    delay_usd_per_hour: float = 0.0,
    waited_s: float = 0.0,
) -> StartTime:
    """Decide when a run starts.

    A run of high priority never waits. Every other run waits for a lower price if the delay saves
    `min_saving` of its cost. A run of low priority also waits out a peak window and a long queue.

    Args:
        est_usd: expected cost of the run in dollars.
        est_s: expected duration of the run.
        spare_s: how late the run may start and still meet its deadline at P95; None without a deadline.
        queue: number of pending pods for its pool.
        waited_s: the part of `max_delay_s` that is already used.
    """
    max_delay_s = min(policy.max_delay_s - waited_s, policy.max_delay_s if spare_s is None else spare_s)
    if priority == "high" or max_delay_s < MIN_WAIT_S:
        return START_NOW
    base = mean_price_factor(policy.windows, now, est_s)

    def cost(moment: datetime) -> float:
        delay_usd = delay_usd_per_hour * (moment - now).total_seconds() / 3600
        return est_usd * mean_price_factor(policy.windows, moment, est_s) / base + delay_usd

    later = window_edges(policy.windows, now, max_delay_s)
    best = min(later, key=lambda moment: (cost(moment), moment), default=None)
    saving = 1 - cost(best) / est_usd if best and est_usd > 0 else 0.0
    if best and saving >= max(policy.min_saving, ROUNDING):
        costs = f"${cost(best):.6f} then, ${est_usd:.6f} now, {saving:.0%} less"
        return StartTime(not_before=best, sentence=f"not before {utc_text(best)}: {costs}")
    low = priority == "low"
    return low_priority_start(now, policy, later, queue, max_delay_s) if low else START_NOW


def low_priority_start(
    now: datetime, policy: StartPolicy, later: Sequence[datetime], queue: int, max_delay_s: float
) -> StartTime:
    """Delay a low-priority run past a peak window, or while `yield_to_queue` pods or more are pending for
    its pool.
    """
    if is_peak(policy.windows, now):
        after = next((each for each in later if not is_peak(policy.windows, each)), None)
        if after is not None:
            sentence = f"not before {utc_text(after)}: low priority, and a peak window lasts until then"
            return StartTime(not_before=after, sentence=sentence)
    if policy.yield_to_queue and queue >= policy.yield_to_queue:
        until = now + timedelta(seconds=min(policy.poll_s, max_delay_s))
        sentence = f"not before {utc_text(until)}: low priority, and {queue} pods are pending for its pool"
        return StartTime(not_before=until, sentence=sentence)
    return START_NOW


def is_peak(windows: Sequence[PriceWindow], moment: datetime) -> bool:
    """Return True if a peak window is open at this time."""
    return any(window.peak and is_open(window, moment) for window in windows)
