"""Forecast what a training will have spent at its planned end, and choose what to change when the spend
drifts.

A window is `WINDOW_STEPS` steps; its pace is the seconds that a row took. The median pace of the last few
windows predicts the next ones, so that neither a slow step nor a fast window changes anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from statistics import median

from shoestring.config.adaptation import AdaptationLimits
from shoestring.core.money import usd
from shoestring.core.receipt import SpendForecast
from shoestring.training.changes import PlanChange

WINDOW_STEPS = 16
RECENT_WINDOWS = 5
"""Windows that are remembered. Their median pace predicts the next ones."""
WINDOWS_BEFORE_PLAN, WINDOWS_BETWEEN_CHANGES, DRIFT_WINDOWS = 3, 6, 2
"""Windows before the first plan; windows between two changes; consecutive windows outside the band that make
a drift.
"""
DRIFT_BAND = 0.15
"""A forecast further than this share from the limit is drift. On a quiet machine, windows of one training
differ by a tenth.
"""
VALIDATION_BELOW, BATCH_BELOW, POOL_BELOW = 0.8, 0.67, 0.5
"""Below this share of the first plan's samples, the lever is used: validate on less, a larger batch, another
pool.
"""
VALIDATION_TIME_SHARE = 0.05
"""Validation that takes less than this share of the remaining time is not reduced."""
BATCH_GAIN = 0.05
"""A larger batch is kept if rows take this much less time. Otherwise it only costs statistical efficiency."""


@dataclass(frozen=True, slots=True)
class TrainingPosition:
    """The progress of a training, with the numbers that a forecast needs.

    `samples`, `spent_s` and `left_s` are as in `RunPosition`. Every `validation_every_rows` rows a validation
    takes `validation_s` and reads `validation_share` of the validation split; `may_validate`: one more is
    affordable now.
    """

    samples: int
    max_samples: int
    spent_s: float
    left_s: float
    usd_per_hour: Decimal
    validation_s: float
    validation_every_rows: int
    validation_share: float
    batch_rows: int
    recipe_batch_rows: int
    annealing: bool
    may_validate: bool = True

    @property
    def validation_s_per_row(self) -> float:
        return self.validation_s / self.validation_every_rows


@dataclass(frozen=True, slots=True)
class SpendTracker:
    """The state of the forecast between windows.

    `recent_s_per_row` are the paces of the last windows. `planned_samples` is the planned end, and
    `planned_s_per_row` the pace that it was planned with. While a larger batch is on trial,
    `trial_from_s_per_row` and `trial_from_rows` are the pace and the batch before it;
    `larger_batch_rejected`: the trial brought no gain.
    """

    limits: AdaptationLimits
    recent_s_per_row: tuple[float, ...] = ()
    planned_samples: int = 0
    initial_samples: int = 0
    planned_s_per_row: float = 0.0
    windows_since_change: int = 0
    drifting_windows: int = 0
    trial_from_s_per_row: float = 0.0
    trial_from_rows: int = 0
    larger_batch_rejected: bool = False
    migration_requested: bool = False

    @property
    def s_per_row(self) -> float:
        """Seconds per row, without validation."""
        return median(self.recent_s_per_row)

    def after_window(self, s_per_row: float, at: TrainingPosition) -> tuple[SpendTracker, PlanChange | None]:
        """Return the tracker after one more window, and the change to make, if any."""
        now = replace(
            self,
            recent_s_per_row=(*self.recent_s_per_row, s_per_row)[-RECENT_WINDOWS:],
            windows_since_change=self.windows_since_change + 1,
        )
        if len(now.recent_s_per_row) < WINDOWS_BEFORE_PLAN:
            return now, None
        if not now.planned_samples:
            return now._first_plan(at), None
        is_drifting = abs(now.spend_ratio(at) - 1) > DRIFT_BAND and now._can_change_length(at)
        now = replace(now, drifting_windows=now.drifting_windows + 1 if is_drifting else 0)
        if now.windows_since_change < WINDOWS_BETWEEN_CHANGES:
            return now, None
        if now.trial_from_s_per_row and now.s_per_row <= now.trial_from_s_per_row * (1 - BATCH_GAIN):
            now = replace(now, trial_from_s_per_row=0.0)
        for lever in now._levers(at):
            if found := lever(at):
                after, change = found
                return replace(after, windows_since_change=0, drifting_windows=0), change
        return now, None

    def _first_plan(self, at: TrainingPosition) -> SpendTracker:
        samples = self.affordable_samples(at)
        return replace(
            self,
            planned_samples=samples,
            initial_samples=samples,
            planned_s_per_row=self.s_per_row,
            windows_since_change=0,
        )

    def _levers(self, at: TrainingPosition) -> tuple[LeverFunction, ...]:
        """Return the levers that may be used now, mildest first.

        While the learning rate anneals, only the planned end may change. The stronger levers wait until the
        planned end is affordable, if the policy lets it change, and otherwise for a lasting drift.
        """
        strong = self.drifting_windows == 0 if self.limits.length else self.drifting_windows >= DRIFT_WINDOWS
        if at.annealing or not strong:
            return (self._change_length,)
        return (
            self._revert_batch,
            self._change_length,
            self._reduce_validation,
            self._enlarge_batch,
            self._request_migration,
        )

    def next_saving(self, at: TrainingPosition) -> tuple[SpendTracker, PlanChange] | None:
        """Return the mildest remaining change that makes an epoch cheaper, whatever the plan, or None."""
        for lever in (self._reduce_validation, self._enlarge_batch, self._request_migration):
            if found := lever(at, urgent=True):
                after, change = found
                return replace(after, windows_since_change=0, drifting_windows=0), change
        return None

    def affordable_samples(self, at: TrainingPosition) -> int:
        """Return the samples that the money and the deadline allow, at most `max_samples`."""
        if at.left_s == float("inf"):
            return at.max_samples
        row_s = self.s_per_row + at.validation_s_per_row
        return min(at.max_samples, at.samples + int(at.left_s / max(row_s, 1e-12)))

    def needed_s(self, at: TrainingPosition, s_per_row: float | None = None) -> float:
        """Return the seconds from now to the planned end."""
        rows = max(0, min(self.planned_samples, at.max_samples) - at.samples)
        return rows * ((self.s_per_row if s_per_row is None else s_per_row) + at.validation_s_per_row)

    def spend_ratio(self, at: TrainingPosition) -> float:
        """Return the spend at the planned end, divided by all that may be spent."""
        total_s = at.spent_s + at.left_s
        return (at.spent_s + self.needed_s(at)) / total_s if 0 < total_s < float("inf") else 1.0

    def is_settled(self, at: TrainingPosition) -> bool:
        """Return True if no later window can change anything while pace and price stay."""
        return (
            len(self.recent_s_per_row) >= WINDOWS_BEFORE_PLAN
            and not self.drifting_windows
            and not self.trial_from_s_per_row
            and self.affordable_samples(at) >= VALIDATION_BELOW * self.initial_samples
        )

    def forecast(self, at: TrainingPosition, spent_usd: Decimal) -> SpendForecast | None:
        """Return the forecast, or None before the first plan."""
        if not self.planned_samples:
            return None
        paces = (self.s_per_row, min(self.recent_s_per_row), max(self.recent_s_per_row))
        median_usd, low_usd, high_usd = (spent_usd + _usd(at, self.needed_s(at, pace)) for pace in paces)
        finite = at.left_s < float("inf")
        return SpendForecast(
            planned_samples=self.planned_samples,
            samples_per_s=round(1 / self.s_per_row, 3),
            usd=median_usd,
            low_usd=low_usd,
            high_usd=high_usd,
            limit_usd=spent_usd + (_usd(at, at.left_s) if finite else median_usd - spent_usd),
            needed_s=round(self.needed_s(at), 3),
            left_s=round(at.left_s, 3) if finite else None,
        )

    def _can_change_length(self, at: TrainingPosition) -> bool:
        """Return False for a plan that covers all samples and is affordable: it cannot get longer."""
        return self.spend_ratio(at) > 1 or self.planned_samples < at.max_samples

    def _is_above(self, share: float, at: TrainingPosition, urgent: bool) -> bool:
        """Return whether more than `share` of the first plan is still affordable. Never when the change is
        urgent.
        """
        first = max(1, min(self.initial_samples, at.max_samples))
        return not urgent and self.affordable_samples(at) / first >= share

    def without_trial(self) -> SpendTracker:
        """Return the tracker with no larger batch on trial, none to come, and no measurements."""
        return replace(self, trial_from_s_per_row=0.0, larger_batch_rejected=True, recent_s_per_row=())

    def _change_length(self, at: TrainingPosition) -> tuple[SpendTracker, PlanChange] | None:
        samples = self.affordable_samples(at)
        lasting = self.drifting_windows >= DRIFT_WINDOWS
        if not self.limits.length or not lasting or samples == self.planned_samples:
            return None
        needed_s = self.needed_s(at)
        reason = (
            f"the planned end needs {needed_s:,.1f} s, ${_usd(at, needed_s)}, and {at.left_s:,.1f} s, "
            f"${_usd(at, at.left_s)}, are left: {_rate(self.s_per_row)} rows/s "
            f"at ${at.usd_per_hour.normalize():f} an hour, planned with "
            f"{_rate(self.planned_s_per_row)} rows/s"
        )
        before, after = f"{self.planned_samples:,} samples", f"{samples:,} samples"
        change = PlanChange("length", before, after, reason, samples)
        return replace(self, planned_samples=samples, planned_s_per_row=self.s_per_row), change

    def _reduce_validation(
        self, at: TrainingPosition, *, urgent: bool = False
    ) -> tuple[SpendTracker, PlanChange] | None:
        share = max(self.limits.min_validation_share, at.validation_share / 2)
        time_share = at.validation_s_per_row / (self.s_per_row + at.validation_s_per_row)
        if (
            self._is_above(VALIDATION_BELOW, at, urgent)
            or share >= at.validation_share
            or not at.may_validate
            or time_share < VALIDATION_TIME_SHARE
        ):
            return None
        reason = f"{self._affordable_text(at)}, and validation takes {time_share:.0%} of the remaining time"
        before = f"{at.validation_share:.0%} of the validation split"
        return self, PlanChange("validation", before, f"{share:.0%}", reason, share)

    def _enlarge_batch(
        self, at: TrainingPosition, *, urgent: bool = False
    ) -> tuple[SpendTracker, PlanChange] | None:
        largest = int(at.recipe_batch_rows * self.limits.max_batch_factor)
        rows = min(2 * at.batch_rows, largest, at.validation_every_rows)
        if self._is_above(BATCH_BELOW, at, urgent) or self.larger_batch_rejected or rows <= at.batch_rows:
            return None
        reason = f"{self._affordable_text(at)}; a larger batch inside its flat range may train more rows/s"
        change = PlanChange("batch", f"{at.batch_rows:,} rows", f"{rows:,} rows", reason, rows)
        after = replace(
            self,
            trial_from_s_per_row=self.s_per_row,
            trial_from_rows=at.batch_rows,
            recent_s_per_row=(),
        )
        return after, change

    def _revert_batch(self, at: TrainingPosition) -> tuple[SpendTracker, PlanChange] | None:
        """Return to the batch before the trial: rows got no faster."""
        if not self.trial_from_s_per_row:
            return None
        reason = (
            f"it trains {_rate(self.s_per_row)} rows/s, and the batch before trained "
            f"{_rate(self.trial_from_s_per_row)}: the gain is less than {BATCH_GAIN:.0%}"
        )
        rows = self.trial_from_rows
        change = PlanChange("batch", f"{at.batch_rows:,} rows", f"{rows:,} rows", reason, rows)
        return self.without_trial(), change

    def _request_migration(
        self, at: TrainingPosition, *, urgent: bool = False
    ) -> tuple[SpendTracker, PlanChange] | None:
        if not self.limits.pool or self.migration_requested or self._is_above(POOL_BELOW, at, urgent):
            return None
        reason = f"{self._affordable_text(at)}, and the other changes are used up"
        change = PlanChange("pool", "this pool", "another, requested", reason)
        return replace(self, migration_requested=True), change

    def _affordable_text(self, at: TrainingPosition) -> str:
        samples = self.affordable_samples(at)
        return f"the money buys {samples:,} of the {self.initial_samples:,} samples first planned"


LeverFunction = Callable[[TrainingPosition], "tuple[SpendTracker, PlanChange] | None"]


def _usd(at: TrainingPosition, seconds: float) -> Decimal:
    return usd(at.usd_per_hour * Decimal(str(round(seconds, 6))) / 3600)


def _rate(s_per_row: float) -> str:
    return f"{1 / s_per_row:,.0f}"
