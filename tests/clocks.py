"""Clocks of tests: one that only a test advances, and one that runs fast."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
BOOT_S = 1e6
"""Where the monotonic clocks of tests begin: on a machine that has been up for a while. On one that begins at
0, a moment that was never set is the beginning, and code that forgets to set it works."""


class StillClock:
    """A clock that advances only when `sleep` is called or a test sets `at_s`, the seconds since it began."""

    def __init__(self, began: datetime = NOON) -> None:
        self.began, self.at_s = began, 0.0

    def now(self) -> datetime:
        return self.began + timedelta(seconds=self.at_s)

    def monotonic_s(self) -> float:
        return BOOT_S + self.at_s

    def sleep(self, seconds: float) -> None:
        self.at_s += seconds


class FastClock:
    """The real clock, running `times` as fast."""

    def __init__(self, times: float) -> None:
        self._times, self._began, self._began_s = times, datetime.now(UTC), time.monotonic()

    def now(self) -> datetime:
        return self._began + timedelta(seconds=self.monotonic_s() - BOOT_S)

    def monotonic_s(self) -> float:
        return BOOT_S + (time.monotonic() - self._began_s) * self._times

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds / self._times)
