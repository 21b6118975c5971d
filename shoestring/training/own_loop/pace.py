"""The share of a training that is done, and its last step, from the share of its budget that is gone.

Pure: numbers in, numbers out.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

# Where the machine slows down or the price rises late, the last steps are a larger share of the budget. The
# rate is 0 from this share of it on, so that their mean rate is still below 5% of the peak.
ZERO_FROM = 0.985
# Times vary: the largest of the last few measurements counts, and this share on top.
MEASUREMENTS, MARGIN = 3, 0.1
# Until a validation was measured, it is assumed to take this share of the batches before it: a forward pass
# over a split of a seventh.
UNMEASURED_VALIDATION_SHARE = 0.05
# In a short budget, a checkpoint is written after this share of the seconds left ...
CHECKPOINT_INTERVAL_SHARE = 0.05
# ... but checkpoints take at most this share of the time.
CHECKPOINT_COST_SHARE = 0.05
# The duration of a step is the median of the last few measurements: a few steps wait for another process.
STEP_MEASUREMENTS = 5


class BudgetReading(NamedTuple):
    """The rest of a budget. `seconds_left`: until the script is asked to stop. `stop_reason`: why it is, or
    will be; empty where the budget itself ends.
    """

    share_gone: float
    seconds_left: float
    should_stop: bool = False
    stop_reason: str = ""


class Ramp(NamedTuple):
    """The share of a training that is done: `share` at a moment, and `per_s` more each second after it.

    It is 1 from shortly before the batches end, in `stop_in_s` seconds.
    """

    share: float
    per_s: float
    stop_in_s: float


def ramp_to_stop(reading: BudgetReading, stop_in_s: float) -> Ramp:
    """Return the share of a training whose batches end in `stop_in_s` seconds.

    The share of the budget that is gone is stretched, so that it is 1 shortly before (`ZERO_FROM`).
    """
    if reading.should_stop or reading.share_gone >= 1 or stop_in_s <= 0:
        return Ramp(1.0, 0.0, 0.0)
    gone_per_s = (1 - reading.share_gone) / reading.seconds_left
    gone_at_end = ZERO_FROM * (reading.share_gone + gone_per_s * stop_in_s)
    return Ramp(min(1.0, reading.share_gone / gone_at_end), gone_per_s / gone_at_end, stop_in_s)


def recent() -> deque[float]:
    return deque(maxlen=MEASUREMENTS)


@dataclass(slots=True)
class ExitReserve:
    """Measured seconds: what a clean end takes, and a step."""

    validations_s: deque[float] = field(default_factory=recent)
    checkpoints_s: deque[float] = field(default_factory=recent)
    steps_s: deque[float] = field(default_factory=lambda: deque(maxlen=STEP_MEASUREMENTS))

    @property
    def step_s(self) -> float:
        """The seconds of a step; 0 where none was measured."""
        return sorted(self.steps_s)[(len(self.steps_s) - 1) // 2] if self.steps_s else 0.0

    def validation_s(self, pass_s: float) -> float:
        """Return the seconds to reserve for a validation. `pass_s`: the time of the batches before it."""
        if not self.validations_s:
            return UNMEASURED_VALIDATION_SHARE * pass_s
        return max(self.validations_s) * (1 + MARGIN)

    @property
    def checkpoint_s(self) -> float:
        return max(self.checkpoints_s, default=0.0) * (1 + MARGIN)

    def seconds(self, pass_s: float) -> float:
        """Return what a clean end takes: the step that is running, a checkpoint and a validation."""
        return self.step_s + self.checkpoint_s + self.validation_s(pass_s)


def last_batch_in_s(stop_in_s: float, pass_ends_in_s: float, validation_s: float) -> float:
    """Return the seconds until the batches end.

    A pass that ends shortly before the stop is the last one: after its validation no time is left for more.
    """
    is_last = pass_ends_in_s <= stop_in_s <= pass_ends_in_s + validation_s
    return pass_ends_in_s if is_last else stop_in_s
