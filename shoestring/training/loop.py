"""The training loop: train inside a budget, validate, adapt, checkpoint, decay and finish. Reads from top
to bottom."""

from __future__ import annotations

import math
from typing import NoReturn

from shoestring.core.errors import StageStopped
from shoestring.core.receipt import Cause
from shoestring.data.loading.loader import Loader
from shoestring.pricing.checkpoint_interval import checkpoint_interval_s
from shoestring.training.changes import GuardrailStop
from shoestring.training.contracts import Window
from shoestring.training.control.batch_size import first_changes
from shoestring.training.control.drift import WINDOW_STEPS
from shoestring.training.session import OpenWindow, Session
from shoestring.training.task import TrainedModel
from shoestring.training.training_state import depends_on_limits, stop_reason
from shoestring.training.window_log import Reading

# A window takes at least this long, and this share of the time so far, so that the log of a long training
# stays small.
WINDOW_S, WINDOW_SHARE = 0.1, 0.004


class Training(Session):
    """The training loop of one start."""

    def run(self) -> TrainedModel:
        """Train until the budget, the deadline or the useful samples end.

        Raises:
            StageStopped: a stop was requested, or a guardrail stops it; the checkpoint is written.
            StageFailed: the loss is not a finite number, also at lower learning rates.
        """
        self.report_note()
        measured, state = self.measured, self.state
        with self._loader() as loader:
            while measured.may_step() and not state.controller.is_finished(measured.position()):
                window = self._make_steps(loader)
                self._forecast(window)
                stop = self._validate_if_due(window)
                self.close(window)
                if stop is not None:
                    self._stop(stop)
                if self.is_stopping:
                    if not measured.may_step():
                        # The budget ended earlier than expected: a model is worth more than a checkpoint that
                        # nothing can resume.
                        break
                    self.save()
                    raise StageStopped(f"at {state.samples} samples; the checkpoint is written")
                self._save_if_due()
            return self._finish(loader.wait_share)

    def _loader(self) -> Loader:
        task = self.task
        return Loader(task.train, self.state.cursor, gather=self.learner.gather, threads=task.cores)

    def _make_steps(self, loader: Loader) -> OpenWindow:
        """Make the steps of a window. The first windows are short: until then the throughput is a guess.

        The time of a step includes loading its rows.
        """
        measured, state, controller = self.measured, self.state, self.state.controller
        at, every = measured.position(), controller.setup.validation_every_rows
        window = self.open_window(at)
        if not at.samples:
            window.changes += map(self.adaptation, first_changes(controller.setup, controller.batch_rows))
        min_steps = min(WINDOW_STEPS, max(1, measured.steps.steps))
        began_s = now_s = measured.now_s()
        ends_s = began_s + max(WINDOW_S, WINDOW_SHARE * measured.training_s())
        losses, steps = None, 0
        self.learner.mark()
        while True:
            plan = controller.plan(at)
            done = self.learner.advance(plan, loader)
            losses = done.loss if losses is None or done.loss is None else losses + done.loss
            at, steps = at.after(done.samples), steps + 1
            now_s = measured.step_end_s(began_s, now_s, steps, 1 + plan.is_measured)
            state.samples = at.samples
            window.changes += map(self.adaptation, done.changes)
            state.is_shaped_by_budget = state.is_shaped_by_budget or plan.is_shaped_by_budget
            if self.should_stop() or not measured.guard.may_step(now_s) or controller.is_finished(at):
                break
            # The batch may follow each measurement, wherever windows end.
            if at.samples % every == 0 or plan.is_measured or (steps >= min_steps and now_s >= ends_s):
                break
        # Reading the losses waits for the steps that a device still computes.
        loss = None if losses is None else float(losses) / steps
        window.steps = Window(at.samples - window.began_samples, measured.now_s() - began_s, steps)
        window.rate = plan.rate
        if loss is not None and math.isfinite(loss):
            window.train_loss = self.learner.metric(loss)
            window.readings = self.learner.readings()
        elif loss is not None:
            self._go_back(window, loss)
        self.trained(loader.cursor)
        measured.record_window(window.steps, loader.times)
        return window

    def _go_back(self, window: OpenWindow, loss: float) -> None:
        """Return to the state before a window whose loss is not a finite number, at a lower learning rate.
        The data does not go back: the next window reads other rows. Raises StageFailed after too many."""
        found = self.state.controller.after_divergence(window.began_samples, self.state.samples, loss)
        if found is None:
            self.finite(loss)
        else:
            self.state.controller, change = found
            self.learner.go_back()
            window.diverged_loss = str(loss)
            window.changes.append(self.adaptation(change))

    def _forecast(self, window: OpenWindow) -> None:
        """Compare the forecast with the budget, and the batch with the noise, and apply the changes."""
        at, signals, before = self.measured.position(), self.measured.signals(), self.state.controller
        window.ended = Reading.of(at, signals)
        now, change = before.after_window(window.steps, at, signals)
        self.state.controller, moved = now.after_readings(window.readings, at)
        self.forecast = self.state.controller.forecast(at, signals) or self.forecast
        self.apply_changes(window, before, tuple(each for each in (change, moved) if each is not None))

    def _validate_if_due(self, window: OpenWindow) -> GuardrailStop | None:
        """Validate the averaged weights, and follow the controller's instructions. A validation close to the
        end is skipped: its time is reserved for the last one, which follows soon."""
        measured, state = self.measured, self.state
        if state.samples % state.controller.setup.validation_every_rows:
            return None
        if measured.may_validate():
            window.val_loss = self.validate("averaged")
        else:
            state.is_shaped_by_budget = True
        at, signals, before = measured.position(), measured.signals(), state.controller
        window.validated = Reading.of(at, signals)
        state.controller, todo = before.after_validation(window.val_loss, at, signals)
        self.follow(todo)
        self.apply_changes(window, before, todo.changes)
        if todo.stop is not None:
            window.changes.append(self.adaptation(todo.stop.change))
        return todo.stop

    def _stop(self, stop: GuardrailStop) -> NoReturn:
        """Write a checkpoint and raise StageStopped. After `pause`, the next attempt resumes."""
        self.save()
        cause: Cause = "stop-requested" if stop.action == "pause" else "guardrail"
        raise StageStopped(f"{stop.reason}; the checkpoint is written", cause)

    def _save_if_due(self) -> None:
        measured, costs = self.measured, self.measured.costs
        now_s = measured.now_s()
        every_s = checkpoint_interval_s(costs.checkpoint_s, self.task.sudden_ends_per_hour)
        if now_s - measured.saved_s >= every_s and measured.guard.may_step(
            now_s + costs.checkpoint_reserve_s
        ):
            self.save()

    def _finish(self, data_wait_share: float) -> TrainedModel:
        """Return the annealed weights or the best average of the plateau, whichever has the lower
        validation loss."""
        state = self.state
        steps = [each for each in state.windows if each.steps]
        if steps and all(each.diverged_loss for each in steps):
            self.finite(float(steps[-1].diverged_loss))
        reason = stop_reason(state)
        weights, loss = self.learner.export("last"), self._last_validation()
        of_last, of_best = (
            ("last round", "best round") if self.learner.by_rounds else ("annealed", "averaged")
        )
        source = of_last if state.samples else "prior"
        best, best_loss = state.snapshots.get("best"), state.controller.best_loss
        if best is not None and (loss is None or best_loss < loss):
            weights, loss, source = best, best_loss, of_best
        self.write_log()
        state.training_s = self.measured.training_s()
        return TrainedModel(
            weights=weights.data,
            val_loss=loss,
            weights_source=source,
            stop_reason="; ".join(filter(None, (reason, self.note))),
            state=state,
            data_wait_share=data_wait_share,
            depends_on_limits=depends_on_limits(state),
        )

    def _last_validation(self) -> float | None:
        """Return the validation loss of the final weights; None when there is no time left for it."""
        measured = self.measured
        if self.task.meter.seconds_left(measured.now_s()) < measured.costs.exit_s:
            return None
        window = self.open_window(measured.position())
        window.val_loss = self.validate("last")
        self.close(window)
        return window.val_loss
