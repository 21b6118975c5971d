"""The pauses between two tries of a request."""

from __future__ import annotations

import random

from shoestring.core.interfaces import Clock

MIN_BACKOFF_S, MAX_BACKOFF_S = 0.05, 5.0


class Backoff:
    """Pauses of growing length, up to a limit on the total time since the first pause."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self.tries, self.waited_s = clock, 0, 0.0
        self._began_s: float | None = None

    def wait(self, limit_s: float) -> bool:
        """Sleep; return False at once if the sleep would pass the limit."""
        now_s = self._clock.monotonic_s()
        if self._began_s is None:
            self._began_s = now_s
        self.waited_s = now_s - self._began_s
        # The jitter keeps pods that lost the server at the same moment from returning at the same moment.
        pause_s = min(MAX_BACKOFF_S, MIN_BACKOFF_S * 2.0**self.tries) * random.uniform(0.5, 1.0)
        self.tries += 1
        if self.waited_s + pause_s > limit_s:
            return False
        self._clock.sleep(pause_s)
        return True
