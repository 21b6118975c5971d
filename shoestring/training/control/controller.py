"""Adapt a training to its spend: windows of steps in, forecasts and plan changes out. The loop applies
the changes.

Pure: plain numbers in and out, no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from shoestring.core.receipt import SpendForecast
from shoestring.spending.spend_forecast import WINDOW_STEPS, PlanChange, SpendTracker, TrainingPosition


@dataclass(slots=True)
class TrainingController:
    """The controller of one start of a training.

    `rows_per_s` is the throughput that the learning rate schedule assumes. It changes only when the plan
    changes, so that one fast window cannot raise a learning rate that is falling.
    """

    tracker: SpendTracker
    rows_per_s: float
    forecast: SpendForecast | None = None
    _window: list[tuple[int, float]] = field(default_factory=list)
    _rows_before_plan: int = 0
    _seconds_before_plan: float = 0.0

    def record_step(self, rows: int, seconds: float) -> None:
        """Record the rows and the duration of one step."""
        self._window.append((rows, seconds))
        if not self.tracker.planned_samples:
            self._rows_before_plan += rows
            self._seconds_before_plan += seconds
            if self._seconds_before_plan:
                self.rows_per_s = self._rows_before_plan / self._seconds_before_plan

    @property
    def window_is_full(self) -> bool:
        return len(self._window) >= WINDOW_STEPS

    def reduce_cost(self, at: TrainingPosition) -> PlanChange | None:
        """Return a change that makes an epoch cheaper, or None when none is left."""
        if found := self.tracker.next_saving(at):
            self.tracker, change = found
            return change
        return None

    def end_window(self, at: TrainingPosition, spent_usd: Decimal) -> PlanChange | None:
        """Close the window: update the forecast, and return the change that it calls for, if any."""
        rows, seconds = (sum(each) for each in zip(*self._window, strict=True))
        self._window.clear()
        if not seconds:
            return None
        before = self.tracker.planned_s_per_row
        self.tracker, change = self.tracker.after_window(seconds / rows, at)
        if self.tracker.planned_s_per_row != before:
            self.rows_per_s = 1 / (
                self.tracker.planned_s_per_row + at.validation_s / at.validation_every_rows
            )
        if self.tracker.recent_s_per_row:
            self.forecast = self.tracker.forecast(at, spent_usd)
        return change
