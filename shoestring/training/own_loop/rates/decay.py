"""The learning rate of a training, from the share of it that is done and from the losses it reports.

Pure: numbers in, numbers out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

WARMUP_SHARE = 0.05
# Without a reason to begin earlier, the decay takes the last fifth: of 10, 20, 40 and 80%, it has the best
# mean over four scripts (bench/own_loop_decay.py). One that is far from converged loses by a long decay.
LATEST_START = 0.8
# The square ends flat: the mean rate of the last 5% of the steps is 1% of the peak, and below 5% also where
# the machine slows down shortly before the end.
DECAY_POWER = 2
# Losses are averaged over intervals of this many equal parts of the training. The decay begins after as many
# intervals as PATIENCE without a new best one: the loss has reached the noise of its rate.
INTERVALS, PATIENCE = 20, 4


def rate_factor(share: float, decay_start: float = LATEST_START) -> float:
    """Return the learning rate as a share of its peak, where `share` of the training is done.

    `decay_start`: the share from which it decays to zero.
    """
    left = min(1.0, (1 - share) / (1 - decay_start))
    return min(1.0, share / WARMUP_SHARE, left**DECAY_POWER)


@dataclass(slots=True)
class DecayStart:
    """When the decay begins. `share`: of the training, and at most `LATEST_START`.

    `sums`, `counts`: of the losses of each interval.
    """

    share: float = LATEST_START
    sums: list[float] = field(default_factory=lambda: [0.0] * INTERVALS)
    counts: list[int] = field(default_factory=lambda: [0] * INTERVALS)

    def note_loss(self, at: float, loss: float) -> None:
        """Note a loss that was reported where the share `at` of the training is done.

        The decay begins here if none of the last intervals is better than the best one before. Once it has
        begun, it stays. A loss that is not a number is left out.
        """
        if at >= self.share or not math.isfinite(loss):
            return
        now = int(at * INTERVALS)
        # A larger budget makes a training less advanced: what is known is of other shares.
        if any(self.counts[now + 1 :]):
            self.sums, self.counts = [0.0] * INTERVALS, [0] * INTERVALS
        self.sums[now] += loss
        self.counts[now] += 1
        first = max(0, now + 1 - PATIENCE)
        if min(self._means(first, now + 1)) >= min(self._means(0, first), default=math.inf):
            self.share = at

    def _means(self, first: int, end: int) -> list[float]:
        pairs = zip(self.sums[first:end], self.counts[first:end], strict=True)
        return [total / count for total, count in pairs if count]
