"""Simulate a training: its phases and validations, what it changes when its spend drifts, and its guardrails.

The controller of a real training decides. Its measurements alone are simulated: the pace of steps and the
skill.
"""

from __future__ import annotations

import math
from dataclasses import replace

from shoestring.core.receipt import AdaptationChange, Cause
from shoestring.routing.question_parts import sample_range
from shoestring.runtime.supervisor.attempt import Attempt
from shoestring.simulation.attempt.work_progress import WorkProgress
from shoestring.simulation.simulated_world import PipelineRun
from shoestring.training.changes import PlanChange
from shoestring.training.contracts import RunPosition, Signals, TrainingSetup, Window
from shoestring.training.control.controller import Controller
from shoestring.training.control.drift import DRIFT_WINDOWS, WINDOW_STEPS, WINDOWS_BETWEEN_CHANGES
from shoestring.training.control.schedule import DECAY_EPOCHS

QUIET_WINDOWS = WINDOWS_BETWEEN_CHANGES + DRIFT_WINDOWS
"""After this many windows without a change, nothing changes until a price or the pace does."""

MIN_WINDOW_S = 0.5

PRIOR_LOSS = 1.0
"""The loss of a constant prediction. A skill is 1 minus a loss over it."""

NO_EARLY_STOPPING = 1 << 62
"""A patience that never ends: the request says when the metric stops improving."""


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
        self._model = self._request.kind.training
        self._started_s = attempt.world.clock.monotonic_s()
        self._s_per_row = work.full_s / max(1, work.samples)
        _, self._all_samples = sample_range(attempt.decision.question.needs[0], self._request.rows)
        self._controller = self._first_controller(may_ask_for_pool)
        self._quiet, self._window_s = 0, self._started_s + self._window_length_s()
        self._validation_number = self._resumed // self._setup.validation_every_rows + 1
        self.changes: tuple[AdaptationChange, ...] = ()

    def _first_controller(self, may_ask_for_pool: bool) -> Controller:
        policy = self._attempt.world.policy
        limits = policy.adaptation_limits
        setup = TrainingSetup(
            epoch_rows=self._request.rows,
            max_samples=self._all_samples,
            batch_rows=self._model.batch_rows,
            patience=NO_EARLY_STOPPING,
            prior_loss=PRIOR_LOSS,
            adaptation=limits.model_copy(update={"pool": limits.pool and may_ask_for_pool}),
            guardrails=policy.guardrails,
        )
        controller = Controller.start(setup, self._attempt.choice.samples)
        return replace(controller, rollbacks=self._pipeline.rollbacks)

    @property
    def _setup(self) -> TrainingSetup:
        return self._controller.setup

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
        self._decay_at_plateau(now_s)
        if now_s >= self._validation_s():
            self._validation_number += 1
            self._validate(now_s)
        if now_s >= self._window_s:
            self._end_window(now_s)

    def phase(self, now_s: float) -> str:
        """Return the phase of the learning rate schedule."""
        self._decay_at_plateau(now_s)
        return self._controller.phase(self._position(now_s))

    def _decay_at_plateau(self, now_s: float) -> None:
        """Let the learning rate decay an epoch before the metric stops improving, as early stopping does."""
        at, end_samples = self._position(now_s), self._resumed + self._work.samples
        begins = end_samples - DECAY_EPOCHS * self._request.rows
        if (
            end_samples < self._all_samples
            and at.samples >= begins
            and not self._controller.schedule.decaying
        ):
            self._controller = self._controller.start_decay(at)

    def _end_window(self, now_s: float) -> None:
        at, signals = self._position(now_s), self._signals(now_s)
        rows = WINDOW_STEPS * self._controller.batch_rows
        window = Window(rows, rows * self._steps_s_per_row(), WINDOW_STEPS)
        self._controller, change = self._controller.after_window(window, at, signals)
        if not self._controller.schedule.follows_budget:
            self._work.end_at(max(1, self._controller.schedule.end_samples - self._resumed))
        if change is not None:
            self._record(now_s, change)
        self._quiet = 0 if change else self._quiet + 1
        settled = self._quiet >= QUIET_WINDOWS or self._controller.is_settled(at, signals)
        self._window_s = math.inf if settled else now_s + self._window_length_s()

    def _validate(self, now_s: float) -> None:
        """Make a validation, and do what the controller then asks for."""
        if self._attempt.stop_reason:
            return
        at = self._position(now_s)
        loss = PRIOR_LOSS * (1 - self._skill(at.samples))
        self._controller, todo = self._controller.after_validation(loss, at, self._signals(now_s))
        self._pipeline.rollbacks = self._controller.rollbacks
        for change in todo.changes:
            self._record(now_s, change)
        if any(change.lever != "guardrail" for change in todo.changes):
            self.disturb(now_s)
        if todo.stop is not None:
            self._record(now_s, todo.stop.change)
            cause: Cause = "stop-requested" if todo.stop.action == "pause" else "guardrail"
            self._attempt.stop(todo.stop.reason, cause)

    def _skill(self, samples: int) -> float:
        """Return the skill after `samples` samples. A training that went back does not collapse again."""
        share = samples / max(1.0, self._request.plateau_share * self._all_samples)
        collapsed = share >= self._request.collapse_share and not self._pipeline.rollbacks
        return 0.0 if collapsed else self._request.skill * (1 - math.exp(-3 * share))

    def _record(self, now_s: float, change: PlanChange) -> None:
        """Record a change, and go on at the pace that it leads to."""
        validation_share = self._model.validation_share * self._controller.validation_share
        self._work.set_pace(now_s, self._work.cores_pace / (self._steps_share() + validation_share))
        self.changes += (
            AdaptationChange(
                at=self._attempt.world.clock.now(),
                samples=self.samples(now_s),
                lever=change.lever,
                before=change.before,
                after=change.after,
                reason=change.reason,
            ),
        )

    def _steps_share(self) -> float:
        """Return the seconds of the steps of a row, over all first seconds of a row."""
        doublings = math.log2(self._controller.batch_rows / self._setup.first_batch_rows)
        return (1 - self._model.validation_share) * math.pow(1 - self._model.batch_gain, doublings)

    def _steps_s_per_row(self) -> float:
        return self._s_per_row * self._steps_share() / self._work.cores_pace

    def _window_length_s(self) -> float:
        return max(MIN_WINDOW_S, WINDOW_STEPS * self._controller.batch_rows * self._steps_s_per_row())

    def _validation_s(self) -> float:
        """Return the time of the next validation; infinity if no guardrail asks for one."""
        guardrails = self._setup.guardrails
        if guardrails.usd_per_epoch is None and guardrails.skill is None:
            return math.inf
        due = self._validation_number * self._setup.validation_every_rows - self._resumed
        return self._work.reaches_s(due * self._s_per_row) if due < self._work.samples else math.inf

    def _position(self, now_s: float) -> RunPosition:
        """Return where the training is. What earlier attempts spent is not counted."""
        meter, checkpoint_s = self._attempt.meter(), self._attempt.decision.question.needs[0].checkpoint_s
        by_deadline = not meter.current_usd_per_hour or meter.ends_s == meter.deadline_s
        return RunPosition(
            samples=self.samples(now_s),
            spent_s=(
                now_s - self._started_s
                if by_deadline
                else meter.seconds_at_current_price(self._started_s, now_s)
            ),
            left_s=max(0.0, meter.seconds_left(now_s) - checkpoint_s),
            rows_per_s=1 / max(1e-12, self._s_per_row),
        )

    def _signals(self, now_s: float) -> Signals:
        meter = self._attempt.meter()
        share = self._model.validation_share * self._controller.validation_share
        row_s = self._s_per_row * share / self._work.cores_pace
        return Signals(
            usd_per_hour=meter.current_usd_per_hour,
            spent_usd=meter.spent_usd(now_s),
            validation_s=row_s * self._setup.validation_every_rows,
        )
