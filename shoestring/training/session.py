"""One start of a training: what the loop reads and writes around its steps."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from shoestring.core import store_layout
from shoestring.core.errors import StageFailed
from shoestring.core.receipt import AdaptationChange, SpendForecast
from shoestring.core.record import record_bytes
from shoestring.data.loading.selection import ValidationShare
from shoestring.data.loading.shuffle import SampleCursor
from shoestring.training.changes import Instructions, PlanChange
from shoestring.training.checkpoints import Checkpoint, Checkpoints, SavedTraining
from shoestring.training.contracts import (
    NO_STEPS,
    Deferred,
    Learner,
    RunPosition,
    TrainingProgress,
    Weights,
    Window,
)
from shoestring.training.control.controller import CONTROLLER_VERSION, Controller
from shoestring.training.control.memory import remember
from shoestring.training.control.step_costs import StepCosts
from shoestring.training.curve import NO_READINGS, StepReadings
from shoestring.training.losses.fitting import FIT_S
from shoestring.training.measurements import NO_TIMES, Measurements, first_step_s
from shoestring.training.model_record import add_sample_range
from shoestring.training.task import TrainingTask
from shoestring.training.training_state import LEARNER, restored_state
from shoestring.training.window_log import Reading, TrainingStart, WindowLog, WindowRecord

SIZING_ROWS = 4096
PREDICTING = 2.0
"""Times that the predictions for the temperature may take as long as a validation."""

MAX_FIT_SHARE = 0.05
"""The largest share of a training's time that is reserved for the temperature. A shorter training fits it
if time is left."""

REPORT_EVERY_S = 0.2


@dataclass(slots=True)
class OpenWindow:
    """A window before its record is written. `began`: its first step; `ended`: before its validation."""

    began: Reading
    began_samples: int
    ended: Reading
    steps: Window = NO_STEPS
    rate: float = 0.0
    train_loss: float | None = None
    diverged_loss: str = ""
    val_loss: float | None = None
    validated: Reading | None = None
    best_losses_again: list[float] = field(default_factory=list)
    changes: list[AdaptationChange] = field(default_factory=list)
    readings: StepReadings = NO_READINGS


class Session:
    """One start of a training: a new one, or one resumed from its last checkpoint."""

    def __init__(self, task: TrainingTask, learner: Learner) -> None:
        self.task, self.learner = task, learner
        costs = self._step_costs()
        row_s = costs.validation_s / len(task.validation)
        setup = task.setup(learner)
        rows_per_s = setup.first_batch_rows / first_step_s(row_s, setup.first_batch_rows)
        controller = Controller.start(setup, task.planned_samples, rows_per_s)
        self.checkpoints = Checkpoints(task.store, task.run_id, task.attempt)
        self._rows_sha256 = task.rows_sha256()
        saved, self.note = self._load()
        if saved is None:
            self.state = task.first_state(controller)
        else:
            self.state = restored_state(saved.checkpoint, saved.parts, controller)
            learner.restore(Deferred(partial(bytes, saved.parts[LEARNER])))
        self.state.starts.append(
            TrainingStart(
                attempt=task.attempt,
                first_window=len(self.state.windows),
                setup=setup,
                planned_samples=task.planned_samples,
                rows_per_s=rows_per_s,
                memory=saved.checkpoint.memory if saved else None,
                member=task.settings.family if task.is_member else "",
                learning_rate=task.learner_settings.learning_rate if task.is_member else None,
            )
        )
        self.start_samples = self.state.samples
        step_s = first_step_s(row_s, self.state.controller.batch_rows)
        self.measured = Measurements(task, self.state, costs, step_s, learner.queues_steps)
        self.forecast: SpendForecast | None = None
        self._reported_s = -math.inf
        self.is_stopping = False
        if task.earlier.members and saved is None:
            # From now on no start trains them again.
            self.save()

    def _step_costs(self) -> StepCosts:
        """Return the expected costs, with a reserve for the temperature if it is a small part."""
        task, validation_s = self.task, self._estimate_validation_s()
        left_s = task.meter.seconds_left(task.clock.monotonic_s())
        if task.fits_temperature and FIT_S + PREDICTING * validation_s <= MAX_FIT_SHARE * left_s:
            return StepCosts(validation_s, FIT_S, PREDICTING)
        return StepCosts(validation_s)

    def _load(self) -> tuple[SavedTraining | None, str]:
        """Return the checkpoint of this training, and a sentence about those that cannot be used."""
        saved, note = self.checkpoints.load(self._rows_sha256)
        is_before = saved is not None and len(saved.checkpoint.members) < len(self.task.earlier.members)
        # Of a blend, it may be that of the member before.
        return (None, "") if is_before else (saved, note)

    def _estimate_validation_s(self) -> float:
        """Return the estimated seconds of a validation of the whole split, measured on a part of it."""
        clock, rows = self.task.clock, self.task.validation
        if self.learner.queues_steps:
            # The first use of a device takes seconds, whatever it computes.
            self.learner.validate(ValidationShare(rows.subset(np.arange(1)), self.task.seed), "averaged")
        started_s = clock.monotonic_s()
        part = rows.subset(np.arange(min(SIZING_ROWS, len(rows))))
        self.learner.validate(ValidationShare(part, self.task.seed), "averaged")
        return (clock.monotonic_s() - started_s) * len(rows) / len(part)

    def validate(self, weights: Weights | bytes) -> float:
        """Return the validation loss of weights, and update the estimate of what a validation takes."""
        started_s = self.measured.now_s()
        rows, share = self.task.validation, self.state.controller.validation_share
        loss = self.finite(self.learner.validate(ValidationShare(rows, self.task.seed, share), weights))
        self.measured.record_validation(self.measured.now_s() - started_s)
        return loss

    def finite(self, loss: float) -> float:
        """Return the loss. Raises StageFailed when it is not a finite number."""
        if not math.isfinite(loss):
            rate, factor = self.task.learner_settings.learning_rate, self.state.controller.rate_factor
            lowered = f", also at a learning rate {1 / factor:g} times lower" if factor < 1 else ""
            raise StageFailed(
                f"training diverged at {self.state.samples} samples: the loss is {loss}{lowered}. "
                f"Lower train.learning_rate in the recipe (it is {rate:g}), "
                "or look for infinite values in the numeric columns"
            )
        return loss

    def should_stop(self) -> bool:
        """Return True from the moment on at which a stop was requested."""
        self.is_stopping = self.is_stopping or self.task.should_stop()
        return self.is_stopping

    def trained(self, cursor: SampleCursor) -> None:
        """Record that the samples up to `cursor` were trained."""
        state, before = self.state, self.state.cursor
        start, rows = before.position, len(self.task.train)
        for epoch in range(before.epoch, cursor.epoch):
            state.sample_ranges = add_sample_range(state.sample_ranges, epoch, start, rows)
            start = 0
        state.sample_ranges = add_sample_range(state.sample_ranges, cursor.epoch, start, cursor.position)
        state.cursor = cursor

    def open_window(self, at: RunPosition) -> OpenWindow:
        reading = Reading.of(at, self.measured.signals())
        return OpenWindow(reading, at.samples, reading)

    def close(self, window: OpenWindow) -> None:
        """Add the record of a window to the log, and report the progress."""
        state, measured = self.state, self.measured
        record = WindowRecord(
            at=self.task.clock.now(),
            samples=state.samples,
            rows=window.steps.rows,
            steps=window.steps.steps,
            seconds=window.steps.seconds,
            training_s=round(self.task.earlier.training_s + measured.training_s(), 3),
            spent_usd=measured.spent_usd(),
            rate=window.rate,
            phase=state.controller.phase(measured.position()),
            train_loss=window.train_loss,
            diverged_loss=window.diverged_loss,
            val_loss=window.val_loss,
            best_losses_again=tuple(window.best_losses_again),
            began=window.began,
            ended=window.ended,
            validated=window.validated,
            changes=tuple(window.changes),
            forecast=self.forecast,
            gradient_norm=window.readings.gradient_norm,
            clipped=window.readings.clipped,
            halves=window.readings.halves,
            noise=state.controller.noise.scale if window.readings.halves else None,
        )
        state.windows.append(record)
        self.report(at_once=bool(window.changes) or window.val_loss is not None)

    def follow(self, todo: Instructions) -> None:
        """Keep the states that the controller wants kept, and return to the one that it names."""
        snapshots = self.state.snapshots
        for name in todo.keep:
            snapshots[name] = self.learner.export("averaged") if name == "best" else self.learner.state()
        if todo.restore == "rollback":
            self.learner.restore(snapshots["rollback"])
        elif todo.restore == "plateau" and (plateau := snapshots.pop("plateau", None)):
            self.learner.restore(plateau)

    def apply_changes(self, window: OpenWindow, before: Controller, changes: tuple[PlanChange, ...]) -> None:
        """Record changes, and expect what they make of steps and validations. The best weights are validated
        again when other rows are."""
        now, measured = self.state.controller, self.measured
        window.changes += map(self.adaptation, changes)
        if now.batch_rows > before.batch_rows:
            measured.guard.scale_steps(now.batch_rows / before.batch_rows)
        if now.validation_share == before.validation_share:
            return
        measured.costs.scale_validation(now.validation_share / before.validation_share)
        if (best := self.state.snapshots.get("best")) is not None:
            window.best_losses_again.append(self.validate(best.data))
            self.state.controller = now.with_best_loss(window.best_losses_again[-1])

    def adaptation(self, change: PlanChange) -> AdaptationChange:
        """Return a change as the window log and the heartbeat hold it."""
        return AdaptationChange(
            at=self.task.clock.now(),
            samples=self.state.samples,
            lever=change.lever,
            before=change.before,
            after=change.after,
            reason=change.reason,
        )

    def report(self, *, at_once: bool = False) -> None:
        """Report the progress, at most once in `REPORT_EVERY_S` unless `at_once`."""
        now_s, state = self.measured.now_s(), self.state
        if now_s - self._reported_s < REPORT_EVERY_S and not at_once:
            return
        self._reported_s = now_s
        best = state.controller.best_loss
        self.task.report_progress(
            TrainingProgress(
                state.controller.phase(self.measured.position()),
                state.samples,
                self.start_samples,
                best if math.isfinite(best) else None,
                tuple(state.changes),
                self.forecast,
                self.measured.time_shares,
            )
        )

    def report_note(self) -> None:
        """Report the sentence about the checkpoints that the start found."""
        if self.note:
            state = self.state
            progress = TrainingProgress(
                self.note, state.samples, self.start_samples, changes=tuple(state.changes)
            )
            self.task.report_progress(progress)

    def save(self) -> None:
        """Write a checkpoint and the log. Raises StoreFull; StageStopped if a newer attempt saved one."""
        measured, state, started_s = self.measured, self.state, self.measured.now_s()
        checkpoint = Checkpoint(
            rows_sha256=self._rows_sha256,
            samples=state.samples,
            cursor=state.cursor,
            memory=remember(state.controller, state.controller.throughput(measured.position())),
            training_s=measured.training_s(),
            spent_usd=measured.spent_usd(),
            sample_ranges=state.sample_ranges,
            starts=tuple(state.starts),
            windows=tuple(state.windows),
            is_shaped_by_budget=state.is_shaped_by_budget,
            members=self.task.earlier.members,
        )
        self.checkpoints.save(checkpoint, state.parts(self.learner.state()) | self.task.earlier.parts())
        self.write_log()
        measured.saved_s = measured.now_s()
        measured.record_checkpoint(measured.saved_s - started_s)

    def write_log(self) -> None:
        task, times = self.task, self.measured.times
        log = WindowLog(
            run_id=task.run_id,
            controller=CONTROLLER_VERSION,
            metric=task.encoding.loss_metric,
            learning_rate=task.learner_settings.learning_rate,
            starts=tuple(self.state.starts),
            windows=tuple(self.state.windows),
            time_shares=times.shares_since(NO_TIMES) if times.elapsed_s else None,
        )
        task.store.put(store_layout.curve(task.run_id), record_bytes(log))
