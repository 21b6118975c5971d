"""A clock that only a test advances."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


class StillClock:
    """A clock that advances only when `sleep` is called or a test sets `at_s`."""

    def __init__(self, began: datetime = NOON) -> None:
        self.began, self.at_s = began, 0.0

    def now(self) -> datetime:
        return self.began + timedelta(seconds=self.at_s)

    def monotonic_s(self) -> float:
        return self.at_s

    def sleep(self, seconds: float) -> None:
        self.at_s += seconds
