"""The training loop: train inside a budget, validate, adapt, checkpoint, decay and finish. Reads from top
to bottom."""

from __future__ import annotations

import math

from shoestring.core.errors import StageStopped
from shoestring.data.loading.loader import Loader
from shoestring.training.model_record import add_sample_range
from shoestring.training.torch_ import checkpoint
from shoestring.training.torch_.adaptation import adapt
from shoestring.training.torch_.guardrail_actions import enforce_epoch_cap, enforce_skill_floor
from shoestring.training.torch_.learner import copy_state, copy_weights
from shoestring.training.torch_.session import TrainingSession
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
            StageStopped: a stop was requested; the checkpoint is written.
            StageFailed: the loss is not a finite number.
        """
        task, state = self.task, self.state
        if self.checkpoint_note:
            task.report_progress(
                self.checkpoint_note, state.samples, self.start_samples, {}, tuple(state.changes), None, None
            )
        with Loader(task.train, state.cursor, threads=task.cores) as loader:
            while self.guard.may_step(self.now_s()) and not state.schedule.is_finished(self.progress()):
                loss, rate = self._step(loader)
                self.record_times(loader.times)
                self.record_train_loss(loss, rate)
                adapt(self)
                if state.samples % self.validation_every_rows == 0:
                    self._validate_if_affordable(rate)
                    enforce_epoch_cap(self)
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
        started_s, state = self.now_s(), self.state
        every = self.validation_every_rows
        batch = loader.next_batch(min(self.batch_rows, every - state.samples % every))
        rows = len(batch.samples)
        # A short batch, before a validation or at the end of an epoch, is noisier: its rate is lower in
        # proportion.
        share = rows / self.batch_rows
        # For Adam the rate grows with the square root of the batch size (arXiv 2205.10287).
        share *= math.sqrt(self.batch_rows / self.recipe_rows)
        peak = self.task.settings.learning_rate
        at = self.progress()
        max_samples = self.task.settings.max_epochs * self.rows
        state.is_shaped_by_budget |= state.schedule.is_shaped_by_budget(at, max_samples)
        rate = peak * state.rate_factor * state.schedule.factor(at) * share
        loss = self.require_finite(self.learner.step(batch.samples, rate))
        state.cursor, state.samples = loader.cursor, state.samples + rows
        state.sample_ranges = add_sample_range(state.sample_ranges, batch.epoch, batch.start, batch.stop)
        elapsed_s = self.now_s() - started_s
        self.guard.record_step(elapsed_s)
        self.controller.record_step(rows, elapsed_s)
        return loss, rate

    def _validate_if_affordable(self, rate: float) -> None:
        """Skip the validation close to the end: its time is reserved for the last one, which follows soon."""
        if self.guard.may_step(self.now_s() + self.costs.validation_reserve_s):
            self._validate_average(rate)
        else:
            self.state.is_shaped_by_budget = True

    def _validate_average(self, rate: float) -> None:
        """Validate the averaged weights. When early stopping triggers on the plateau, decay from the best
        state."""
        state, phase = self.state, self.state.schedule.phase(self.progress())
        loss = self.validate(self.learner.average)
        self.record_val_loss(loss, rate)
        if enforce_skill_floor(self, loss):
            return
        if loss < state.best_loss:
            state.best_loss, state.best_weights = loss, copy_weights(self.learner.average)
        if phase == "decay":
            return
        state.early_stopping = state.early_stopping.update(loss)
        if state.early_stopping.evaluations_without_gain == 0:
            state.plateau_learner = copy_state(self.learner.state())
        if state.early_stopping.triggered:
            if state.plateau_learner is not None:
                self.learner.restore(state.plateau_learner)
                state.plateau_learner = None
            state.schedule = state.schedule.start_decay(self.progress())

    def _save_if_due(self) -> None:
        now_s = self.now_s()
        due = now_s - self.saved_s >= max(CHECKPOINT_EVERY_S, self.costs.checkpoint_s / CHECKPOINT_SHARE)
        if due and self.guard.may_step(now_s + self.costs.checkpoint_reserve_s):
            self.save()

    def _finish(self, data_wait_share: float) -> TrainedModel:
        """Return the annealed weights or the best average of the plateau, whichever has the lower
        validation loss."""
        state = self.state
        reason = stop_reason(state, self.task.settings)
        weights, loss = copy_weights(self.learner.net), self._last_validation()
        source = "annealed" if state.samples else "prior"
        if state.best_weights is not None and (loss is None or state.best_loss < loss):
            weights, loss, source = state.best_weights, state.best_loss, "averaged"
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
