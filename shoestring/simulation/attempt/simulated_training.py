"""Simulate a training: its phases and validations, what it changes when its spend drifts, and its guardrails.

What it decides is decided by the code of a real training: the spend forecast, the learning rate schedule and
the checks of the guardrails. Only the measurements are simulated: the pace of steps and the skill.
"""

from __future__ import annotations

import math
from decimal import Decimal

from shoestring.config.guardrails import GuardrailAction
from shoestring.core.receipt import AdaptationChange, Lever
from shoestring.routing.question import sample_range
from shoestring.runtime.supervisor.attempt import Attempt
from shoestring.simulation.attempt.work_progress import WorkProgress
from shoestring.simulation.simulated_world import PipelineRun
from shoestring.spending.spend_forecast import (
    DRIFT_WINDOWS,
    VALIDATION_BELOW,
    WINDOW_STEPS,
    WINDOWS_BEFORE_PLAN,
    WINDOWS_BETWEEN_CHANGES,
    PlanChange,
    SpendTracker,
    TrainingPosition,
)
from shoestring.training.control.guardrails import MAX_ROLLBACKS, epoch_cost_violation, skill_violation
from shoestring.training.control.schedule import LearningRateSchedule, ScheduleProgress

VALIDATIONS_PER_EPOCH = 2
"""As in a real training (`training/torch_/session.py`)."""

QUIET_WINDOWS = WINDOWS_BETWEEN_CHANGES + DRIFT_WINDOWS
"""After this many windows without a change, nothing changes until a price or the pace does."""

MIN_WINDOW_S = 0.5


class SimulatedTraining:
    """The training of one attempt at an elastic stage.

    `changes` are what it changed by itself. `may_ask_for_pool`: whether its supervisor can migrate it.
    """

    def __init__(
        self,
        pipeline: PipelineRun,
        attempt: Attempt,
        work: WorkProgress,
        may_ask_for_pool: bool,
    ) -> None:
        self._pipeline, self._attempt, self._work = pipeline, attempt, work
        self._request, self._resumed = pipeline.request, pipeline.samples
        policy, need = attempt.world.policy, attempt.decision.question.needs[0]
        self._limits = policy.adaptation_limits.model_copy(
            update={"pool": policy.adaptation_limits.pool and may_ask_for_pool}
        )
        self._guardrails, self._model = policy.guardrails, self._request.kind.training
        self._tracker = SpendTracker(self._limits)
        self._started_s = attempt.world.clock.monotonic_s()
        self._s_per_row = work.full_s / max(1, work.samples)
        self._batch_rows, self._validation_share = self._model.batch_rows, 1.0
        _, self._all_samples = sample_range(need, self._request.rows)
        self._quiet, self._window_s = 0, self._started_s + self._window_length_s()
        self._cost_mark: tuple[int, Decimal] | None = None
        self._validation_number = self._next_validation_number(self._resumed)
        self._was_good = False
        self.changes: tuple[AdaptationChange, ...] = ()

    @property
    def end_samples(self) -> int:
        """Samples at the end, with those of earlier attempts."""
        return self._resumed + self._work.samples

    def samples(self, now_s: float) -> int:
        """Return the samples so far, with those of earlier attempts."""
        return self._resumed + self._work.done_samples(now_s)

    def next_s(self) -> float:
        """Return the time of the next window of steps or validation at which something can change."""
        return min(self._window_s, self._validation_s())

    def disturb(self, now_s: float) -> None:
        """Compare the forecast with the money again: the price or the pace has changed."""
        self._quiet, self._window_s = 0, now_s + self._window_length_s()

    def advance(self, now_s: float) -> None:
        """End the window and make the validation that are due."""
        if now_s >= self._validation_s():
            self._validation_number += 1
            self._check_skill(now_s)
            self._check_epoch_cost(now_s)
        if now_s >= self._window_s:
            self._end_window(now_s)

    def phase(self, now_s: float) -> str:
        """Return the phase of the learning rate schedule."""
        at = self._schedule_progress(now_s)
        return LearningRateSchedule(self.end_samples, follows_budget=self._limits.length).phase(at)

    def _end_window(self, now_s: float) -> None:
        at = self._position(now_s)
        self._tracker, change = self._tracker.after_window(self._steps_s_per_row(), at)
        planned = self._tracker.planned_samples
        if planned and not self._limits.length:
            self._work.end_at(max(1, planned - self._resumed))
        if change is not None:
            self._apply(now_s, change, change.reason)
        self._quiet = 0 if change else self._quiet + 1
        settled = self._quiet >= QUIET_WINDOWS or self._is_on_plan(at)
        self._window_s = math.inf if settled else now_s + self._window_length_s()

    def _is_on_plan(self, at: TrainingPosition) -> bool:
        """Return True if no later window can change anything while pace and price stay."""
        tracker = self._tracker
        return (
            len(tracker.recent_s_per_row) >= WINDOWS_BEFORE_PLAN
            and not tracker.drifting_windows
            and not tracker.trial_from_s_per_row
            and tracker.affordable_samples(at) >= VALIDATION_BELOW * tracker.initial_samples
        )

    def _apply(self, now_s: float, change: PlanChange, reason: str) -> None:
        if change.lever == "batch":
            self._batch_rows = int(change.value)
        if change.lever == "validation":
            self._validation_share = change.value
        cost_share = self._steps_share() + self._model.validation_share * self._validation_share
        self._work.set_pace(now_s, self._work.cores_pace / cost_share)
        self._record(now_s, change.lever, change.before, change.after, reason)

    def _check_skill(self, now_s: float) -> None:
        floor, at = self._guardrails.skill, self._schedule_progress(now_s)
        if floor is None or self._attempt.stop_reason:
            return
        share = at.spent_s / (at.spent_s + at.left_s) if at.spent_s else 0.0
        skill = self._skill(at.samples)
        reason = skill_violation(floor, skill, at.samples / self._request.rows, share)
        if reason is None:
            self._was_good |= skill >= floor.min
        elif floor.action == "roll-back" and self._was_good and self._pipeline.rollbacks < MAX_ROLLBACKS:
            self._pipeline.rollbacks += 1
            self._record(now_s, "guardrail", "its weights", "those of its last good validation", reason)
        else:
            self._stop(now_s, floor.action, reason)

    def _skill(self, samples: int) -> float:
        """Return the skill after `samples` samples. A training that went back does not collapse again."""
        share = samples / max(1.0, self._request.plateau_share * self._all_samples)
        collapsed = share >= self._request.collapse_share and not self._pipeline.rollbacks
        return 0.0 if collapsed else self._request.skill * (1 - math.exp(-3 * share))

    def _check_epoch_cost(self, now_s: float) -> None:
        cap, mark = (
            self._guardrails.usd_per_epoch,
            (self.samples(now_s), self._attempt.meter().spent_usd(now_s)),
        )
        before, self._cost_mark = self._cost_mark, mark
        if cap is None or before is None or mark[0] <= before[0] or self._attempt.stop_reason:
            return
        reason = epoch_cost_violation(cap, mark[1] - before[1], (mark[0] - before[0]) / self._request.rows)
        if reason is None:
            return
        if cap.action == "rebalance":
            at = self._position(now_s)
            if at.annealing or not self._tracker.recent_s_per_row:
                return
            if found := self._tracker.next_saving(at):
                self._tracker, change = found
                self._apply(now_s, change, reason)
                self.disturb(now_s)
                self._cost_mark = None
                return
            reason = f"{reason}; no further saving is possible"
        self._stop(now_s, cap.action, reason)

    def _stop(self, now_s: float, action: GuardrailAction, reason: str) -> None:
        self._record(now_s, "guardrail", "running", "stopped", reason)
        self._attempt.stop(reason, "stop-requested" if action == "pause" else "guardrail")

    def _record(self, now_s: float, lever: Lever, before: str, after: str, reason: str) -> None:
        change = AdaptationChange(
            at=self._attempt.world.clock.now(),
            samples=self.samples(now_s),
            lever=lever,
            before=before,
            after=after,
            reason=reason,
        )
        self.changes += (change,)

    def _steps_share(self) -> float:
        """Return the seconds of the steps of a row, over all first seconds of a row."""
        doublings = math.log2(self._batch_rows / self._model.batch_rows)
        return (1 - self._model.validation_share) * math.pow(1 - self._model.batch_gain, doublings)

    def _steps_s_per_row(self) -> float:
        return self._s_per_row * self._steps_share() / self._work.cores_pace

    def _window_length_s(self) -> float:
        return max(MIN_WINDOW_S, WINDOW_STEPS * self._batch_rows * self._steps_s_per_row())

    @property
    def _validation_every_rows(self) -> int:
        return max(1, self._request.rows // VALIDATIONS_PER_EPOCH)

    def _next_validation_number(self, samples: int) -> int:
        return samples // self._validation_every_rows + 1

    def _validation_s(self) -> float:
        """Return the time of the next validation; infinity if no guardrail asks for one."""
        if self._guardrails.usd_per_epoch is None and self._guardrails.skill is None:
            return math.inf
        due = self._validation_number * self._validation_every_rows - self._resumed
        return self._work.reaches_s(due * self._s_per_row) if due < self._work.samples else math.inf

    def _left_s(self, now_s: float) -> float:
        checkpoint_s = self._attempt.decision.question.needs[0].checkpoint_s
        return max(0.0, self._attempt.meter().seconds_left(now_s) - checkpoint_s)

    def _schedule_progress(self, now_s: float) -> ScheduleProgress:
        return ScheduleProgress(
            samples=self.samples(now_s),
            epoch_rows=self._request.rows,
            spent_s=now_s - self._started_s,
            left_s=self._left_s(now_s),
            rows_per_s=1 / max(1e-12, self._s_per_row),
        )

    def _position(self, now_s: float) -> TrainingPosition:
        """Return where the training is, as the spend forecast needs it."""
        meter = self._attempt.meter()
        price = meter.current_usd_per_hour
        ends_by_deadline = meter.ends_s == meter.deadline_s
        validation_s = self._s_per_row * self._model.validation_share * self._validation_share
        return TrainingPosition(
            samples=self.samples(now_s),
            max_samples=self._all_samples,
            spent_s=(
                now_s - self._started_s
                if ends_by_deadline or not price
                else float(meter.spent_usd(now_s) / price) * 3600
            ),
            left_s=self._left_s(now_s),
            usd_per_hour=price,
            validation_s=validation_s * self._validation_every_rows / self._work.cores_pace,
            validation_every_rows=self._validation_every_rows,
            validation_share=self._validation_share,
            batch_rows=self._batch_rows,
            recipe_batch_rows=self._model.batch_rows,
            annealing=self.phase(now_s) == "decay",
        )
