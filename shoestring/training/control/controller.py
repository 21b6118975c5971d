"""A training's hand on the wheel: windows of steps in, forecasts and changes out. Plain numbers; the loop does what it is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from shoestring.core.receipt import SpendForecast
from shoestring.spending.spend_forecast import WINDOW_STEPS, PlanChange, SpendTracker, TrainingPosition


@dataclass(slots=True)
class TrainingController:
    """One start's. `rows_per_s`: what the schedule goes by; it moves only where the plan does, so that a rate which falls does not rise
    again because of one quick window."""

    drift: SpendTracker
    rows_per_s: float
    forecast: SpendForecast | None = None
    _took: list[tuple[int, float]] = field(default_factory=list)
    _stepped: int = 0
    _stepping_s: float = 0.0

    def record_step(self, rows: int, seconds: float) -> None:
        """A step on so many rows has taken so long."""
        self._took.append((rows, seconds))
        if not self.drift.planned_samples:
            self._stepped, self._stepping_s = self._stepped + rows, self._stepping_s + seconds
            self.rows_per_s = self._stepped / self._stepping_s if self._stepping_s else self.rows_per_s

    @property
    def window_is_full(self) -> bool:
        """Is a window full?"""
        return len(self._took) >= WINDOW_STEPS

    def reduce_cost(self, at: TrainingPosition) -> PlanChange | None:
        """What to change so that an epoch gets cheaper; None: nothing is left."""
        if found := self.drift.next_saving(at):
            self.drift, move = found
            return move
        return None

    def end_window(self, at: TrainingPosition, spent_usd: Decimal) -> PlanChange | None:
        """At the end of a window: a new forecast, and what to change, if anything."""
        rows, seconds = (sum(each) for each in zip(*self._took, strict=True))
        self._took.clear()
        if not seconds:
            return None
        before = self.drift.planned_s_per_row
        self.drift, move = self.drift.after_window(seconds / rows, at)
        if self.drift.planned_s_per_row != before:
            self.rows_per_s = 1 / (self.drift.planned_s_per_row + at.validation_s / at.validation_every_rows)
        if self.drift.recent_s_per_row:
            self.forecast = self.drift.forecast(at, spent_usd)
        return move
