"""The training loop: train inside a budget, validate, adapt, checkpoint, decay and finish. Reads from top
to bottom."""

from __future__ import annotations

import copy
from typing import NoReturn

from shoestring.core.errors import StageStopped
from shoestring.data.loading.loader import Loader
from shoestring.training.contracts import GuardrailStop, PlanChange, Window
from shoestring.training.control.controller import Controller
from shoestring.training.control.drift import WINDOW_STEPS
from shoestring.training.model_record import add_sample_range
from shoestring.training.torch_ import checkpoint
from shoestring.training.torch_.learner import copy_state, copy_weights
from shoestring.training.torch_.session import NO_STEPS, TrainingSession
from shoestring.training.torch_.task import TrainedModel
from shoestring.training.torch_.training_state import stop_reason

CHECKPOINT_EVERY_S = 5.0
# Checkpoints take at most this share of the time: on a slow store they are further apart.
CHECKPOINT_SHARE = 0.02


class Training(TrainingSession):
    """The training loop of one start."""

    def run(self) -> TrainedModel:
        """Train until the budget, the deadline or the useful samples end.

        Raises:
            StageStopped: a stop was requested, or a guardrail stops it; the checkpoint is written.
            StageFailed: the loss is not a finite number.
        """
        task, state = self.task, self.state
        every = state.controller.setup.validation_every_rows
        if self.checkpoint_note:
            task.report_progress(
                self.checkpoint_note, state.samples, self.start_samples, {}, tuple(state.changes), None, None
            )
        with Loader(task.train, state.cursor, threads=task.cores) as loader:
            while self.guard.may_step(self.now_s()) and not state.controller.is_finished(self.position()):
                loss, rate = self._step(loader)
                self.record_times(loader.times)
                self.record_train_loss(loss, rate)
                if self.window_steps >= WINDOW_STEPS:
                    self._end_window()
                if state.samples % every == 0:
                    self._validate_if_affordable(rate)
                if task.should_stop():
                    if not self.guard.may_step(self.now_s()):
                        # The budget ended earlier than expected: a model is worth more than a checkpoint that
                        # nothing can resume.
                        break
                    self.save()
                    raise StageStopped(f"at {state.samples} samples; the checkpoint is written")
                self._save_if_due()
            return self._finish(loader.wait_share)

    def _step(self, loader: Loader) -> tuple[float, float]:
        """Train on the next batch. Returns its loss and its learning rate. The time of a step includes
        loading its rows."""
        started_s, state, at = self.now_s(), self.state, self.position()
        plan = state.controller.plan(at)
        state.is_shaped_by_budget = state.is_shaped_by_budget or state.controller.is_shaped_by_budget(at)
        batch = loader.next_batch(plan.rows)
        rate = self.task.settings.learning_rate * plan.rate
        loss = self.require_finite(self.learner.step(batch.samples, rate))
        rows = len(batch.samples)
        state.cursor, state.samples = loader.cursor, state.samples + rows
        state.sample_ranges = add_sample_range(state.sample_ranges, batch.epoch, batch.start, batch.stop)
        elapsed_s = self.now_s() - started_s
        self.guard.record_step(elapsed_s)
        self.steps = Window(self.steps.rows + rows, self.steps.seconds + elapsed_s)
        self.window = Window(self.window.rows + rows, self.window.seconds + elapsed_s)
        self.window_steps += 1
        return loss, rate

    def _end_window(self) -> None:
        """Compare the forecast with the budget, and apply the resulting change, if any."""
        state, window, at, signals = self.state, self.window, self.position(), self.signals()
        self.window, self.window_steps = NO_STEPS, 0
        before = state.controller
        state.controller, change = before.after_window(window, at, signals)
        self.forecast = state.controller.forecast(at, signals) or self.forecast
        self._apply(before, () if change is None else (change,))

    def _apply(self, before: Controller, changes: tuple[PlanChange, ...]) -> None:
        """Expect what the changes since the controller `before` make of steps and validations, and record
        them."""
        now = self.state.controller
        if now.batch_rows > before.batch_rows:
            self.guard.scale_steps(now.batch_rows / before.batch_rows)
        if now.validation_share != before.validation_share:
            self._validate_on_a_share(now.validation_share / before.validation_share)
        for change in changes:
            self.record_change(change)

    def _validate_on_a_share(self, factor: float) -> None:
        """Expect validations on `factor` times as many rows, and validate the best weights on them."""
        self.costs.scale_validation(factor)
        if (best := self.state.snapshots.get("best")) is not None:
            net = copy.deepcopy(self.learner.average)
            net.load_state_dict(best)
            self.state.controller = self.state.controller.with_best_loss(self.validate(net))

    def _validate_if_affordable(self, rate: float) -> None:
        """Validate the averaged weights, and follow the controller's instructions. A validation close to the
        end is skipped: its time is reserved for the last one, which follows soon."""
        state, loss = self.state, None
        if self.may_validate():
            loss = self.validate(self.learner.average)
            self.record_val_loss(loss, rate)
        else:
            state.is_shaped_by_budget = True
        before = state.controller
        state.controller, todo = before.after_validation(loss, self.position(), self.signals())
        for name in todo.keep:
            best = name == "best"
            state.snapshots[name] = (
                copy_weights(self.learner.average) if best else copy_state(self.learner.state())
            )
        if todo.restore == "rollback":
            self.learner.restore(copy_state(state.snapshots["rollback"]))
        elif todo.restore == "plateau" and (plateau := state.snapshots.pop("plateau", None)):
            self.learner.restore(plateau)
        self._apply(before, todo.changes)
        if todo.stop is not None:
            self._stop(todo.stop)

    def _stop(self, stop: GuardrailStop) -> NoReturn:
        """Write a checkpoint and raise StageStopped. After `pause`, the next attempt resumes."""
        self.record_change(PlanChange("guardrail", "running", "stopped", stop.reason))
        self.save()
        raise StageStopped(
            f"{stop.reason}; the checkpoint is written",
            "stop-requested" if stop.action == "pause" else "guardrail",
        )

    def _save_if_due(self) -> None:
        now_s = self.now_s()
        due = now_s - self.saved_s >= max(CHECKPOINT_EVERY_S, self.costs.checkpoint_s / CHECKPOINT_SHARE)
        if due and self.guard.may_step(now_s + self.costs.checkpoint_reserve_s):
            self.save()

    def _finish(self, data_wait_share: float) -> TrainedModel:
        """Return the annealed weights or the best average of the plateau, whichever has the lower
        validation loss."""
        state = self.state
        reason = stop_reason(state)
        weights, loss = copy_weights(self.learner.net), self._last_validation()
        source = "annealed" if state.samples else "prior"
        best, best_loss = state.snapshots.get("best"), state.controller.best_loss
        if best is not None and (loss is None or best_loss < loss):
            weights, loss, source = best, best_loss, "averaged"
        self.write_curve()
        state.training_s += self.elapsed_s()
        return TrainedModel(
            weights=checkpoint.to_bytes(weights),
            val_loss=loss,
            weights_source=source,
            stop_reason="; ".join(filter(None, (reason, self.checkpoint_note))),
            state=state,
            data_wait_share=data_wait_share,
        )

    def _last_validation(self) -> float | None:
        """Return the validation loss of the final weights; None when there is no time left for it."""
        if self.task.meter.seconds_left(self.now_s()) < self.costs.exit_s:
            return None
        loss = self.validate(self.learner.net)
        self.record_val_loss(loss, 0.0)
        return loss
