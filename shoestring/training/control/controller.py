"""The controller of a training: the one place that decides its learning rate, batch, validation, length and
end.

Pure: numbers in, numbers out, no clock. The loop and the simulator drive the same object.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import NamedTuple, Self

from shoestring.config.guardrails import SkillFloor
from shoestring.core.receipt import SpendForecast
from shoestring.training.changes import GuardrailStop, Instructions, PlanChange, Snapshot
from shoestring.training.contracts import NO_STEPS, RunPosition, Signals, StepPlan, TrainingSetup, Window
from shoestring.training.control.batch_size import BatchMoves, first_rows
from shoestring.training.control.drift import WINDOW_STEPS, SpendTracker, TrainingPosition
from shoestring.training.control.guardrails import (
    DIVERGENCE_RATE_FACTOR,
    MAX_DIVERGENCES,
    MAX_ROLLBACKS,
    ROLLBACK_RATE_FACTOR,
    epoch_cost_violation,
    skill_score,
    skill_violation,
)
from shoestring.training.control.noise import MEASURED_BEFORE_END, GradientNoise
from shoestring.training.control.schedule import (
    EarlyStopping,
    LearningRateSchedule,
    ScheduleProgress,
    planned_warmup_samples,
)
from shoestring.training.curve import SchedulePhase, StepReadings

CONTROLLER_VERSION = 2
"""Rises when the same numbers lead to other plans or changes."""


class Mark(NamedTuple):
    """A moment to return to or to measure from: the samples, and the batch or the dollars at it."""

    samples: int
    batch_rows: int = 0
    spent_usd: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class Controller:
    """The decisions of a training so far, and the next ones.

    Each method returns a new controller. `rate_factor` is what rollbacks and divergences left of the learning
    rate. `rollback_to` is the last validation above the skill floor. `cost_mark` is the previous validation,
    as long as nothing has changed since. `window` holds the steps since the last forecast. `moves`: of the
    batch by the noise of the gradient, until something else changes it.
    """

    setup: TrainingSetup
    schedule: LearningRateSchedule
    early_stopping: EarlyStopping
    drift: SpendTracker
    batch_rows: int
    rows_per_s: float
    noise: GradientNoise
    moves: BatchMoves
    validation_share: float = 1.0
    best_loss: float = math.inf
    rate_factor: float = 1.0
    rollbacks: int = 0
    divergences: int = 0
    rollback_to: Mark | None = None
    cost_mark: Mark | None = None
    window: Window = NO_STEPS

    @classmethod
    def start(cls, setup: TrainingSetup, planned_samples: int | None, rows_per_s: float = 1.0) -> Self:
        """Return the controller before the first step.

        `planned_samples`: those that the budget should buy; None: no budget limits them. `rows_per_s`: the
        assumed throughput of the first step.
        """
        samples = planned_samples or setup.max_samples
        warmup_samples = planned_warmup_samples(setup.epoch_rows, samples)
        rows = first_rows(setup, samples)
        return cls(
            setup,
            LearningRateSchedule(end_samples=setup.max_samples, warmup_samples=warmup_samples),
            EarlyStopping(setup.patience, setup.min_gain),
            SpendTracker(setup.adaptation),
            rows,
            rows_per_s,
            GradientNoise.start(rows, setup.max_samples, samples),
            BatchMoves(rows),
        )

    def plan(self, at: RunPosition) -> StepPlan:
        """Return the next step. A batch spans neither a validation nor the end of an epoch."""
        every, epoch_rows = self.setup.validation_every_rows, self.setup.epoch_rows
        most = min(every - at.samples % every, epoch_rows - at.samples % epoch_rows)
        progress = self._progress(at)
        is_shaped = self.schedule.is_shaped_by_budget(progress, self.setup.max_samples)
        # Each half of a measured step is a batch: so batch normalisation does the same to both.
        is_due = self.setup.measures_noise and self.noise.is_due(at.samples, self.batch_rows)
        is_due = is_due and 2 * self.batch_rows <= most
        has_time = MEASURED_BEFORE_END * 2 * self.batch_rows <= at.left_s * progress.rows_per_s
        is_measured = is_due and has_time and not self.noise.is_short
        rows = min((1 + is_measured) * self.batch_rows, most)
        if self.setup.by_rounds:
            return StepPlan(rows, self.rate_factor, is_shaped)
        # A short batch is noisier: its rate is lower in proportion. For Adam the rate grows with the square
        # root of the batch size (arXiv 2205.10287); below the recipe's batch its rate is still the best one.
        size = self.batch_rows / self.setup.first_batch_rows
        share = min(1.0, rows / self.batch_rows) * math.sqrt(max(1.0, size))
        rate = self.rate_factor * self.schedule.factor(progress) * share
        return StepPlan(rows, rate, is_shaped or is_due != is_measured, is_measured, size)

    def phase(self, at: RunPosition) -> SchedulePhase:
        return self.schedule.phase(self._progress(at))

    def is_finished(self, at: RunPosition) -> bool:
        """Return True when all samples are trained or the budget is used up."""
        return self.schedule.is_finished(self._progress(at))

    def throughput(self, at: RunPosition) -> float:
        """Return the rows per second that the schedule assumes.

        From the first plan on they change only with the plan, so that one fast window cannot raise a learning
        rate that is falling.
        """
        return self.rows_per_s if self.drift.planned_samples else at.rows_per_s or self.rows_per_s

    def after_window(
        self, window: Window, at: RunPosition, signals: Signals
    ) -> tuple[Controller, PlanChange | None]:
        """Return the controller after more steps, and the change that its forecast calls for.

        A forecast needs `WINDOW_STEPS` steps; fewer are kept for the next one.
        """
        window = self.window.joined(window)
        if window.steps < WINDOW_STEPS or not window.seconds:
            return replace(self, window=window), None
        position, planned = self._position(at, signals), self.drift.planned_s_per_row
        drift, change = self.drift.after_window(window.seconds / window.rows, position)
        now = replace(self, drift=drift, rows_per_s=self.throughput(at), window=NO_STEPS)
        if drift.planned_s_per_row != planned:
            row_s = drift.planned_s_per_row + position.validation_s_per_row
            now = replace(now, rows_per_s=1 / row_s)
        if not self.setup.adaptation.length and now.schedule.follows_budget and drift.planned_samples:
            end_samples = min(now.schedule.end_samples, drift.planned_samples)
            now = replace(now, schedule=replace(now.schedule, end_samples=end_samples, follows_budget=False))
        return now._with_change(change), change

    def forecast(self, at: RunPosition, signals: Signals) -> SpendForecast | None:
        """Return the forecast of this attempt's spend, or None before the first plan and while a batch is
        measured again."""
        if not self.drift.recent_s_per_row:
            return None
        return self.drift.forecast(self._position(at, signals), signals.spent_usd)

    def is_settled(self, at: RunPosition, signals: Signals) -> bool:
        """Return True if no later window can change anything while pace and price stay."""
        return self.drift.is_settled(self._position(at, signals))

    def after_validation(
        self, loss: float | None, at: RunPosition, signals: Signals
    ) -> tuple[Controller, Instructions]:
        """Return the controller at a validation point, and what the loop has to do. `loss` None: the
        validation was skipped."""
        now, todo = (self, Instructions()) if loss is None else self._after_loss(loss, at)
        return (now, todo) if todo.stop else now._after_cost(todo, at, signals)

    def with_best_loss(self, loss: float) -> Controller:
        """Return the controller after the best weights were validated on other rows: losses on different rows
        do not compare."""
        return replace(self, best_loss=loss, early_stopping=replace(self.early_stopping, best_loss=loss))

    def _after_loss(self, loss: float, at: RunPosition) -> tuple[Controller, Instructions]:
        """Check the skill floor, the best loss, and on the plateau whether the loss still improves."""
        now, keep, floor = self, list[Snapshot](), self.setup.guardrails.skill
        if floor is not None:
            skill = skill_score(loss, self.setup.prior_loss)
            reason = skill_violation(floor, skill, at.samples / self.setup.epoch_rows, at.share)
            if reason is not None:
                return self._roll_back(floor, reason, at)
            if floor.action == "roll-back" and skill >= floor.min:
                keep.append("rollback")
                now = replace(now, rollback_to=Mark(at.samples, self.batch_rows))
        if loss < self.best_loss:
            keep.append("best")
            now = replace(now, best_loss=loss)
        if self.phase(at) == "decay":
            return now, Instructions(tuple(keep))
        now = replace(now, early_stopping=self.early_stopping.update(loss))
        if now.early_stopping.evaluations_without_gain == 0:
            keep.append("plateau")
        if not now.early_stopping.triggered:
            return now, Instructions(tuple(keep))
        return now.start_decay(at), Instructions(tuple(keep), restore="plateau")

    def after_readings(self, readings: StepReadings, at: RunPosition) -> tuple[Controller, PlanChange | None]:
        """Return the controller after the measurements of some steps, and the change of the batch that they
        call for. While the learning rate decays, none does."""
        if not readings.halves:
            return self, None
        now, limits = replace(self, noise=self.noise.after(readings.halves)), self.setup.batch_range
        scale, is_own = now.noise.scale, self.batch_rows == self.moves.rows
        if limits is None or scale is None or not is_own or self.phase(at) == "decay":
            return now, None
        moves, change = self.moves.after(scale, limits, is_early=now.noise.is_dense(at.samples))
        # The pace of a batch predicts nothing of another.
        drift = now.drift if change is None else replace(now.drift, recent_s_per_row=())
        return replace(now, moves=moves, drift=drift)._with_change(change), change

    def after_divergence(self, began: int, ended: int, loss: float) -> tuple[Controller, PlanChange] | None:
        """Return the controller after a window of steps, between these samples, whose loss is not a finite
        number: at a lower learning rate, since they are taken back. None: that did not help before."""
        if self.divergences == MAX_DIVERGENCES:
            return None
        factor = self.rate_factor * DIVERGENCE_RATE_FACTOR
        now = replace(self, divergences=self.divergences + 1, rate_factor=factor)
        before, after = (f"weights at {samples:,} samples" for samples in (ended, began))
        reason = f"the loss of the steps between them is {loss}"
        return now, PlanChange("guardrail", before, f"{after}, learning rate times {factor:g}", reason)

    def start_decay(self, at: RunPosition) -> Controller:
        """Return the controller whose learning rate decays from now on: further samples gain too little."""
        return replace(self, schedule=self.schedule.start_decay(self._progress(at)))

    def _roll_back(self, floor: SkillFloor, reason: str, at: RunPosition) -> tuple[Controller, Instructions]:
        """Return to the last validation above the skill floor, at a lower learning rate; or stop.

        The data does not go back: every row is still trained on once an epoch.
        """
        back = self.rollback_to
        if floor.action != "roll-back" or back is None or self.rollbacks >= MAX_ROLLBACKS:
            return self, Instructions(stop=GuardrailStop(floor.action, reason))
        now = replace(
            self,
            batch_rows=back.batch_rows,
            moves=BatchMoves(back.batch_rows),
            rollbacks=self.rollbacks + 1,
            rate_factor=self.rate_factor * ROLLBACK_RATE_FACTOR,
            drift=self.drift.without_trial(),
            window=NO_STEPS,
        )
        after = f"weights at {back.samples:,} samples, learning rate times {now.rate_factor:g}"
        change = PlanChange("guardrail", f"weights at {at.samples:,} samples", after, reason)
        return now, Instructions(restore="rollback", changes=(change,))

    def _after_cost(
        self, todo: Instructions, at: RunPosition, signals: Signals
    ) -> tuple[Controller, Instructions]:
        """Check the cost of an epoch. Without an earlier mark, or right after a change, it is unknown."""
        cap, before = self.setup.guardrails.usd_per_epoch, self.cost_mark
        now = replace(self, cost_mark=Mark(at.samples, spent_usd=signals.spent_usd))
        if cap is None or before is None or at.samples <= before.samples:
            return now, todo
        epochs = (at.samples - before.samples) / self.setup.epoch_rows
        reason = epoch_cost_violation(cap, signals.spent_usd - before.spent_usd, epochs)
        if reason is None:
            return now, todo
        if cap.action == "rebalance":
            position = now._position(at, signals)
            if position.annealing or not now.drift.recent_s_per_row:
                return now, todo
            if found := now.drift.next_saving(position):
                change = replace(found[1], reason=reason)
                now = replace(now, drift=found[0], cost_mark=None)._with_change(change)
                return now, todo._replace(changes=(*todo.changes, change))
            reason = f"{reason}; no further saving is possible"
        return now, todo._replace(stop=GuardrailStop(cap.action, reason))

    def _with_change(self, change: PlanChange | None) -> Controller:
        if change is not None and change.lever == "batch":
            return replace(self, batch_rows=int(change.value), window=NO_STEPS)
        if change is not None and change.lever == "validation":
            return replace(self, validation_share=change.value)
        return self

    def _progress(self, at: RunPosition) -> ScheduleProgress:
        return ScheduleProgress(at.samples, self.setup.epoch_rows, at.spent_s, at.left_s, self.throughput(at))

    def _position(self, at: RunPosition, signals: Signals) -> TrainingPosition:
        return TrainingPosition(
            samples=at.samples,
            max_samples=self.schedule.end_samples,
            spent_s=at.spent_s,
            left_s=at.left_s,
            usd_per_hour=signals.usd_per_hour,
            validation_s=signals.validation_s,
            validation_every_rows=self.setup.validation_every_rows,
            validation_share=self.validation_share,
            batch_rows=self.batch_rows,
            recipe_batch_rows=self.setup.first_batch_rows,
            annealing=self.phase(at) == "decay",
            may_validate=signals.may_validate,
        )
