"""The learning rate schedule, driven by what is left: money, time and useful samples. Pure: numbers in,
numbers out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from shoestring.training.contracts import MIN_RELATIVE_GAIN
from shoestring.training.curve import SchedulePhase

# Warm-up takes this share of an epoch, or of the planned samples where that is less.
WARMUP_EPOCHS, WARMUP_SHARE = 0.1, 0.05
# Decay takes this many epochs. When the budget buys less, everything after warm-up is decay.
DECAY_EPOCHS = 1.0
# After a plateau that no longer improves, decay takes this share of the samples so far, if that is less.
# Hu et al. 2024 (arXiv 2404.06395) find a tenth enough.
DECAY_SHARE = 0.2
# The minimum relative improvement of early stopping if validation were one independent unit: smaller
# differences between two validations are mostly noise, which falls with the root of the units.
UNIT_GAIN = 0.02


class ScheduleProgress(NamedTuple):
    """The position of a training in its schedule.

    `samples` and `spent_s` count all starts: seconds of the budget that are gone. `left_s` are the seconds
    of the budget that this start has left. `epoch_rows` is the size of an epoch. `rows_per_s` is above 0.
    """

    samples: int
    epoch_rows: int
    spent_s: float
    left_s: float
    rows_per_s: float


@dataclass(frozen=True, slots=True)
class LearningRateSchedule:
    """Warm-up, plateau and linear decay (Hu et al. 2024, arXiv 2404.06395), ending wherever the training
    ends.

    The warm-up goes by samples, whose number the plan fixes, so that it is the same on a busy machine. The
    decay follows the remaining share of the budget (money or deadline, whichever ends first) and the
    samples left until `end_samples`. The learning rate is 0 when the first of them runs out, so that
    every stop is annealed. When `AdaptationLimits.length` forbids changing the planned length, the
    schedule follows the planned samples only, and training is cut off if the money ends earlier.
    """

    end_samples: int
    decaying: bool = False
    follows_budget: bool = True
    warmup_samples: int = 1

    def factor(self, at: ScheduleProgress) -> float:
        """Return the learning rate as a share of its peak, in [0, 1]."""
        return max(
            0.0, min(1.0, self._warmup(at), self._budget_left(at), self._samples_left(at, self.end_samples))
        )

    def phase(self, at: ScheduleProgress) -> SchedulePhase:
        if min(self._budget_left(at), self._samples_left(at, self.end_samples)) < 1.0:
            return "decay"
        return "warm-up" if self._warmup(at) < 1.0 else "stable"

    def is_shaped_by_budget(self, at: ScheduleProgress, max_samples: int) -> bool:
        """Return True if more money or time would give this step a higher learning rate.

        `max_samples` are those of the recipe's epochs, which a plan for less money does not reach.
        """
        if self.warmup_samples < int(WARMUP_EPOCHS * at.epoch_rows):
            return True
        end_samples = self.end_samples if self.decaying else max_samples
        by_samples = min(1.0, self._warmup(at), self._samples_left(at, end_samples))
        return self.factor(at) < by_samples

    def is_finished(self, at: ScheduleProgress) -> bool:
        """Return True when all samples are trained or the budget is used up."""
        return at.samples >= self.end_samples or at.left_s <= 0.0

    def start_decay(self, at: ScheduleProgress) -> LearningRateSchedule:
        """Return the schedule with its decay starting now, because further samples on the plateau gain
        too little."""
        decay = int(min(DECAY_EPOCHS * at.epoch_rows, DECAY_SHARE * at.samples))
        return replace(self, end_samples=min(self.end_samples, at.samples + decay), decaying=True)

    def _warmup(self, at: ScheduleProgress) -> float:
        return (at.samples + 1) / self.warmup_samples

    def _budget_left(self, at: ScheduleProgress) -> float:
        """Return the seconds left over the seconds of the decay, at most all of the budget after warm-up."""
        if not self.follows_budget:
            return 1.0
        whole_s = (at.spent_s + at.left_s) * (1 - WARMUP_SHARE)
        decay_s = min(DECAY_EPOCHS * at.epoch_rows / at.rows_per_s, whole_s)
        return at.left_s / decay_s if decay_s > 0 else 0.0

    def _samples_left(self, at: ScheduleProgress, end_samples: int) -> float:
        """Return the samples until `end_samples` over those of the decay."""
        share = DECAY_SHARE / (1 + DECAY_SHARE) if self.decaying else 1 - WARMUP_SHARE
        decay = min(DECAY_EPOCHS * at.epoch_rows, end_samples * share)
        return (end_samples - at.samples) / max(decay, 1.0)


def planned_warmup_samples(epoch_rows: int, planned_samples: int) -> int:
    """Return the samples of the warm-up, at least 1. `planned_samples`: those that the budget should buy."""
    return max(1, int(min(WARMUP_EPOCHS * epoch_rows, WARMUP_SHARE * planned_samples)))


def min_relative_gain(units: int) -> float:
    """Return the share by which a validation loss must improve to count. `units`: the independent units that
    it is the mean over."""
    return max(MIN_RELATIVE_GAIN, UNIT_GAIN / math.sqrt(units))


@dataclass(frozen=True, slots=True)
class EarlyStopping:
    """Detects that the validation loss no longer improves. A new best must be lower by the share
    `min_gain`."""

    patience: int
    min_gain: float = MIN_RELATIVE_GAIN
    best_loss: float = float("inf")
    evaluations_without_gain: int = 0

    def update(self, loss: float) -> EarlyStopping:
        """Return the state after one more validation. A loss that is not a number is no improvement."""
        if loss < self.best_loss * (1 - self.min_gain):
            return replace(self, best_loss=loss, evaluations_without_gain=0)
        return replace(self, evaluations_without_gain=self.evaluations_without_gain + 1)

    @property
    def triggered(self) -> bool:
        return self.evaluations_without_gain >= self.patience
