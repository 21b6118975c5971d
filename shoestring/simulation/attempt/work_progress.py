"""The work of a simulated attempt: how much is done, how fast it goes on, and the cores that it uses."""

from __future__ import annotations

import math

from shoestring.core.types import Need, Pool
from shoestring.pricing.throughput import uses_gpu


class WorkProgress:
    """The progress of one attempt, on simulated time in seconds.

    Work is counted in seconds at the pace at which the attempt began.

    Attributes:
        full_s: all work of the attempt.
        samples: the samples that this work processes.
    """

    def __init__(self, started_s: float, full_s: float, samples: int, need: Need, pool: Pool) -> None:
        self.full_s, self.samples = full_s, samples
        self._need, self._pool, self._cores = need, pool, pool.cores
        self._since_s, self._done_s, self._cpu_s, self._pace = started_s, 0.0, 0.0, 1.0

    def done_s(self, now_s: float) -> float:
        """Return the work that is done."""
        return self._done_s + self._pace * (now_s - self._since_s)

    def ends_s(self) -> float:
        """Return the time at which all work is done if the pace stays."""
        return self.reaches_s(self.full_s)

    def reaches_s(self, done_s: float) -> float:
        """Return the time at which this much work is done if the pace stays."""
        return self._since_s + (done_s - self._done_s) / self._pace

    def done_samples(self, now_s: float) -> int:
        """Return the samples that this attempt has processed."""
        if self.full_s <= 0:
            return self.samples
        return min(self.samples, int(self.samples * self.done_s(now_s) / self.full_s))

    def cpu_s(self, now_s: float) -> float:
        """Return the seconds of its cores that the attempt has used."""
        return self._cpu_s + self.busy_cores(self._cores) * (now_s - self._since_s)

    def busy_cores(self, cores: int) -> float:
        """Return how many cores compute on average, by Amdahl's law; one if a GPU does the work."""
        if uses_gpu(self._need, self._pool):
            return 1.0
        parallel = self._need.parallel_fraction
        return 1 / (1 - parallel + parallel / cores)

    @property
    def busy_now(self) -> float:
        """How many of the cores that are left compute on average."""
        return self.busy_cores(self._cores)

    @property
    def cores_pace(self) -> float:
        """The pace with the cores that are left, as a multiple of the pace with all cores."""
        return self.busy_cores(self._cores) / self.busy_cores(self._pool.cores)

    def set_pace(self, now_s: float, pace: float) -> None:
        """Go on at this multiple of the first pace."""
        self._cpu_s = self.cpu_s(now_s)
        self._done_s, self._since_s, self._pace = self.done_s(now_s), now_s, pace

    def halve_cores(self, now_s: float) -> tuple[int, int] | None:
        """Take half of the cores away; return their number before and after, None if there is only one."""
        before = math.ceil(self._cores)
        if before < 2:
            return None
        pace = self._pace / self.cores_pace
        self.set_pace(now_s, self._pace)
        self._cores = before // 2
        self.set_pace(now_s, pace * self.cores_pace)
        return before, self._cores

    def end_at(self, samples: int) -> None:
        """End after this many samples, if that is earlier."""
        if samples < self.samples:
            self.full_s, self.samples = self.full_s * samples / self.samples, samples
