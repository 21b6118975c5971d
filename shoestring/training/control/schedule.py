"""How the learning rate follows what is left: money, time and useful samples. Plain numbers in, plain numbers out."""

from __future__ import annotations

from dataclasses import dataclass, replace

from shoestring.training.curve import SchedulePhase

# Share of an epoch, or of the budget where that is less, over which the learning rate rises.
WARMUP_EPOCHS, WARMUP_SHARE = 0.1, 0.05
# Epochs over which it comes down; a budget that buys less spends all that is not warm-up on the way down.
DECAY_EPOCHS = 1.0


@dataclass(frozen=True, slots=True)
class ScheduleProgress:
    """Where a run stands. Seconds are of this start's budget, samples of the whole run; `rows` is an epoch; `rows_per_s` is above 0."""

    samples: int
    epoch_rows: int
    spent_s: float
    left_s: float
    rows_per_s: float


@dataclass(frozen=True, slots=True)
class LearningRateSchedule:
    """Warm-up, plateau, linear decay (the shape of Hu et al. 2024, arXiv 2404.06395), with every end in sight taken into account.

    The way down is a function of the share of the budget that is left, money or deadline, whichever ends first; and of the samples
    that are left until `end_samples`. Whichever runs out first, the rate is at zero when it does: every stop is annealed. One that may not
    follow the money (`Bounds.length`) goes by the samples that were planned, and is cut off where the money ends before.
    """

    end_samples: int
    decaying: bool = False
    follows_budget: bool = True

    def factor(self, at: ScheduleProgress) -> float:
        """The share of the peak learning rate, in [0, 1]."""
        return max(0.0, min(1.0, self._rise(at), self._money(at), self._samples(at)))

    def phase(self, at: ScheduleProgress) -> SchedulePhase:
        if min(self._money(at), self._samples(at)) < 1.0:
            return "decay"
        return "warm-up" if self._rise(at) < 1.0 else "stable"

    def is_finished(self, at: ScheduleProgress) -> bool:
        """Is there nothing left to train for, or with?"""
        return at.samples >= self.end_samples or at.left_s <= 0.0

    def start_decay(self, at: ScheduleProgress) -> LearningRateSchedule:
        """Begin the way down here: what more samples on the plateau would buy is no longer worth its price."""
        return replace(
            self,
            end_samples=min(self.end_samples, at.samples + int(DECAY_EPOCHS * at.epoch_rows)),
            decaying=True,
        )

    def _rise(self, at: ScheduleProgress) -> float:
        affordable = at.samples + at.left_s * at.rows_per_s
        warmup = min(WARMUP_EPOCHS * at.epoch_rows, WARMUP_SHARE * max(affordable, 1.0))
        return (at.samples + 1) / max(warmup, 1.0)

    def _money(self, at: ScheduleProgress) -> float:
        """Seconds left over the seconds that the way down takes: those of its samples, or all that the budget had beyond warm-up."""
        if not self.follows_budget:
            return 1.0
        whole_s = (at.spent_s + at.left_s) * (1 - WARMUP_SHARE)
        decay_s = min(DECAY_EPOCHS * at.epoch_rows / at.rows_per_s, whole_s)
        return at.left_s / decay_s if decay_s > 0 else 0.0

    def _samples(self, at: ScheduleProgress) -> float:
        decay = min(DECAY_EPOCHS * at.epoch_rows, self.end_samples * (1 - WARMUP_SHARE))
        return (self.end_samples - at.samples) / max(decay, 1.0)


@dataclass(frozen=True, slots=True)
class EarlyStopping:
    """Has signal validation stopped getting better? A new best has to beat the old one by `MIN_GAIN` of it."""

    patience: int
    best_loss: float = float("inf")
    evaluations_without_gain: int = 0

    def update(self, loss: float) -> EarlyStopping:
        """After one more evaluation. A loss that is not a number is no improvement."""
        if loss < self.best_loss * (1 - MIN_RELATIVE_GAIN):
            return EarlyStopping(self.patience, loss, 0)
        return replace(self, evaluations_without_gain=self.evaluations_without_gain + 1)

    @property
    def triggered(self) -> bool:
        return self.evaluations_without_gain >= self.patience


# Half of a thousandth: below it, the difference between two evaluations a quarter of an epoch apart is mostly noise on 30,000 rows.
MIN_RELATIVE_GAIN = 0.0005
