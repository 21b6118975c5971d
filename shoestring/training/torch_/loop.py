"""Train inside a budget: batch, step, guard, checkpoint, look, wind down. Reads from top to bottom."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from decimal import Decimal

import torch

from shoestring.core.errors import StageFailed, StageStopped
from shoestring.core.receipt import AdaptationChange, Lever
from shoestring.core.record import record_bytes
from shoestring.data.loading.loader import Loader
from shoestring.data.loading.shuffle import sample_indices
from shoestring.spending.guard import Guard
from shoestring.spending.spend_forecast import PlanChange, SpendTracker, TrainingPosition
from shoestring.training.control.controller import TrainingController
from shoestring.training.control.schedule import ScheduleProgress
from shoestring.training.control.step_costs import StepCosts
from shoestring.training.curve import CurvePoint, TrainingCurve
from shoestring.training.model_record import add_sample_range
from shoestring.training.torch_ import checkpoint
from shoestring.training.torch_.guardrail_actions import enforce_epoch_cap, enforce_skill_floor
from shoestring.training.torch_.learner import Learner, copy_state, copy_weights, validation_batches
from shoestring.training.torch_.net import TableNet
from shoestring.training.torch_.task import TrainedModel, TrainingTask
from shoestring.training.torch_.training_state import from_checkpoint, new_state, stop_reason, to_checkpoint

VALIDATIONS_PER_EPOCH = 2
POINTS_PER_EPOCH = 20
# A small table gets smaller batches, so that an epoch has this many steps; but none is smaller than this for that reason.
MIN_STEPS_PER_EPOCH, MIN_BATCH_ROWS = 32, 16
EDGE_SAMPLE_ROWS = 50_000
CHECKPOINT_EVERY_S = 5.0
# A checkpoint may take this share of the time: on a slow store they are further apart.
CHECKPOINT_SHARE = 0.02
# A first step on a warm machine took 0.05-0.2 s; one on many rows takes this many times a look at as many.
FIRST_STEP_S, STEP_PER_VALIDATION = 0.2, 6.0
SIZING_ROWS = 4096


class Training:
    """One start of a training: fresh, or from its last checkpoint."""

    def __init__(self, task: TrainingTask) -> None:
        self.task, self.rows = task, len(task.train)
        torch.set_num_threads(task.cores)
        torch.manual_seed(task.seed)
        sample = sample_indices(self.rows, task.seed, 0, 0, min(self.rows, EDGE_SAMPLE_ROWS))
        self.learner = Learner(task.encoding, task.settings, task.train.take(sample), self.rows)
        state, self.checkpoint_note = checkpoint.load(task.store, task.run_id)
        self.state = (
            from_checkpoint(state, self.learner) if state else new_state(task.seed, task.settings, self.rows)
        )
        self.started_s = self.saved_s = task.clock.monotonic_s()
        self.start_samples = self.state.samples
        self.costs = StepCosts(self._time_a_look())
        self.recipe_rows = min(
            task.settings.batch_rows,
            max(MIN_BATCH_ROWS, self.rows // MIN_STEPS_PER_EPOCH),
            self._look_every(),
        )
        self.batch_rows = self.state.batch_rows or self.recipe_rows
        step_s = max(
            FIRST_STEP_S,
            STEP_PER_VALIDATION * self.costs.validation_s / len(task.validation) * self.batch_rows,
        )
        self.guard = Guard(task.meter, step_s=step_s, exit_s=self.costs.exit_s)
        self.controller = TrainingController(SpendTracker(task.adaptation_limits), self.batch_rows / step_s)
        # Samples and dollars where signal validation was last looked at.
        self.cost_mark: tuple[int, Decimal] | None = None

    def run(self) -> TrainedModel:
        """Until the money, the time or what is worth learning ends.

        Raises:
            StageStopped: told to stop; the checkpoint is written.
            StageFailed: the loss is not a number any more.
        """
        task, course = self.task, self.state
        if self.checkpoint_note:
            task.report_progress(
                self.checkpoint_note, course.samples, self.start_samples, {}, tuple(course.changes), None
            )
        with Loader(task.train, course.cursor) as loader:
            while self.guard.may_step(task.clock.monotonic_s()) and not course.schedule.is_finished(
                self.progress()
            ):
                loss, rate = self._step(loader)
                self._point(loss, rate)
                self._steer()
                if course.samples % self._look_every() == 0:
                    self._look_if_affordable(rate)
                    enforce_epoch_cap(self)
                if task.should_stop():
                    if not self.guard.may_step(task.clock.monotonic_s()):
                        # The money went faster than it was counted on: a model is worth more than a checkpoint that nothing goes on from.
                        break
                    self.save()
                    raise StageStopped(f"at {course.samples} samples; the checkpoint is written")
                self._save_if_due()
            return self._end(loader.wait_share)

    def progress(self) -> ScheduleProgress:
        now_s = self.task.clock.monotonic_s()
        left_s = max(0.0, self.task.meter.seconds_left(now_s) - self.guard.exit_s)
        return ScheduleProgress(
            self.state.samples, self.rows, now_s - self.started_s, left_s, self.controller.rows_per_s
        )

    def _step(self, loader: Loader) -> tuple[float, float]:
        """The loss of the next batch, and the rate that it was learned at. The time of a step is that of its rows, too."""
        began_s, course = self.task.clock.monotonic_s(), self.state
        batch = loader.next_batch(self._rows_to_the_next_look())
        # A short batch, before a look or at the end of an epoch, is noisier: it moves the weights in proportion.
        share = len(batch.records) / self.batch_rows
        # A batch of other than the recipe's rows: by the root of how many more, as Adam wants it (arXiv 2205.10287).
        share *= math.sqrt(self.batch_rows / self.recipe_rows)
        rate = (
            self.task.settings.learning_rate
            * course.rate_factor
            * course.schedule.factor(self.progress())
            * share
        )
        loss = self._finite(self.learner.step(batch.records, rate))
        course.cursor, course.samples = loader.cursor, course.samples + len(batch.records)
        course.sample_ranges = add_sample_range(
            course.sample_ranges, batch.epoch, batch.first, batch.first + len(batch.records)
        )
        took_s = self.task.clock.monotonic_s() - began_s
        self.guard.record_step(took_s)
        self.controller.record_step(len(batch.records), took_s)
        return loss, rate

    def _steer(self) -> None:
        """At the end of a window: will the money reach to the planned end?"""
        course = self.state
        if not self.controller.window_is_full:
            return
        move = self.controller.end_window(
            self.standing(), self.task.meter.spent_usd(self.task.clock.monotonic_s())
        )
        if (
            not self.task.adaptation_limits.length
            and course.schedule.follows_budget
            and (planned := self.controller.drift.planned_samples)
        ):
            course.schedule = replace(
                course.schedule, end_samples=min(course.schedule.end_samples, planned), follows_budget=False
            )
        if move is not None and self.apply(move):
            self.record_change(move.lever, move.before, move.after, move.reason)

    def record_change(self, lever: Lever, before: str, after: str, why: str) -> None:
        """Put a change on record, and say it."""
        at = self.task.clock.now()
        self.state.changes.append(
            AdaptationChange(
                at=at, samples=self.state.samples, lever=lever, before=before, after=after, reason=why
            )
        )
        self._tell()

    def standing(self) -> TrainingPosition:
        meter, progress, now_s = self.task.meter, self.progress(), self.task.clock.monotonic_s()
        price, due = meter.current_usd_per_hour, meter.ends_s == meter.deadline_s
        return TrainingPosition(
            samples=self.state.samples,
            max_samples=self.state.schedule.end_samples,
            spent_s=progress.spent_s if due or not price else float(meter.spent_usd(now_s) / price) * 3600,
            left_s=progress.left_s,
            usd_per_hour=price,
            validation_s=self.costs.validation_s,
            validation_every_rows=self._look_every(),
            validation_share=self.state.validation_share,
            batch_rows=self.batch_rows,
            recipe_batch_rows=self.recipe_rows,
            annealing=self.state.schedule.phase(progress) == "decay",
        )

    def apply(self, move: PlanChange) -> bool:
        """Do it; false where it could not be done."""
        if move.lever == "batch":
            self.guard.scale_steps(max(1.0, move.value / self.batch_rows))
            self.batch_rows = self.state.batch_rows = int(move.value)
        if move.lever == "looks":
            return self._thin_looks(move.value)
        return True

    def _thin_looks(self, share: float) -> bool:
        """Losses of different rows cannot be compared: what was best is looked at again."""
        course = self.state
        if not self.guard.may_step(self.task.clock.monotonic_s() + self.costs.validation_reserve_s):
            return False
        self.costs.scale_validation(share / course.validation_share)
        course.validation_share = share
        if course.best_weights is not None:
            net = copy.deepcopy(self.learner.average)
            net.load_state_dict(course.best_weights)
            course.best_loss = self._validate(net)
            course.early_stopping = replace(course.early_stopping, best_loss=course.best_loss)
        return True

    def _finite(self, loss: float) -> float:
        if not math.isfinite(loss):
            rate = self.task.settings.learning_rate
            raise StageFailed(
                f"training diverged at {self.state.samples} samples: the loss is {loss}. "
                f"Lower train.learning_rate in the recipe (it is {rate:g}), or look for infinities in the numeric columns"
            )
        return loss

    def _rows_to_the_next_look(self) -> int:
        """Looks are at positions that depend on the data's size alone, so that runs can be compared."""
        every = self._look_every()
        return min(self.batch_rows, every - self.state.samples % every)

    def _look_every(self) -> int:
        return max(1, self.rows // VALIDATIONS_PER_EPOCH)

    def _look_if_affordable(self, rate: float) -> None:
        """Close to the end the last look, which is kept money for, is the next one."""
        if self.guard.may_step(self.task.clock.monotonic_s() + self.costs.validation_reserve_s):
            self._look(rate)

    def _look(self, rate: float) -> None:
        """Signal validation of the averaged weights. On the plateau a stall begins the way down, from where it was best."""
        course, phase = self.state, self.state.schedule.phase(self.progress())
        loss = self._validate(self.learner.average)
        self._point(None, rate, loss)
        if enforce_skill_floor(self, loss):
            return
        if loss < course.best_loss:
            course.best_loss, course.best_weights = loss, copy_weights(self.learner.average)
        if phase == "decay":
            return
        course.early_stopping = course.early_stopping.update(loss)
        if course.early_stopping.evaluations_without_gain == 0:
            course.plateau_learner = copy_state(self.learner.state())
        if course.early_stopping.triggered:
            if course.plateau_learner is not None:
                self.learner.restore(course.plateau_learner)
                course.plateau_learner = None
            course.schedule = course.schedule.start_decay(self.progress())

    def _validate(self, net: TableNet) -> float:
        began_s = self.task.clock.monotonic_s()
        loss = self._finite(
            self.learner.loss(
                validation_batches(self.task.validation, self.task.seed, self.state.validation_share), net
            )
        )
        self.costs.record_validation(self.task.clock.monotonic_s() - began_s)
        self.guard.exit_s = self.costs.exit_s
        return loss

    def _point(self, train_loss: float | None, rate: float, val_loss: float | None = None) -> None:
        """Remember this moment: every validation, and some of the steps between."""
        course, at = self.state, self.progress()
        if train_loss is not None:
            course.recent_losses.append(train_loss)
            if course.samples - course.last_point_samples < self.rows / POINTS_PER_EPOCH:
                return
            course.last_point_samples, train_loss = (
                course.samples,
                self.learner.to_metric(sum(course.recent_losses) / len(course.recent_losses)),
            )
            course.recent_losses.clear()
        course.points.append(
            CurvePoint(
                samples=course.samples,
                epoch=course.samples / self.rows,
                spent_usd=self.spent_usd(),
                training_s=round(course.training_s + at.spent_s, 3),
                train_loss=train_loss,
                val_loss=val_loss,
                learning_rate=rate,
                phase=course.schedule.phase(at),
            )
        )
        self._tell()

    def _tell(self) -> None:
        course = self.state
        quality: dict[str, float] = (
            {} if course.best_loss == float("inf") else {self.task.metric: course.best_loss}
        )
        phase = course.schedule.phase(self.progress())
        self.task.report_progress(
            phase,
            course.samples,
            self.start_samples,
            quality,
            tuple(course.changes),
            self.controller.forecast,
        )

    def spent_usd(self) -> Decimal:
        return self.state.spent_usd + self.task.meter.spent_usd(self.task.clock.monotonic_s())

    def _save_if_due(self) -> None:
        now_s = self.task.clock.monotonic_s()
        due = now_s - self.saved_s >= max(CHECKPOINT_EVERY_S, self.costs.checkpoint_s / CHECKPOINT_SHARE)
        if due and self.guard.may_step(now_s + self.costs.checkpoint_reserve_s):
            self.save()

    def save(self) -> None:
        began_s = self.task.clock.monotonic_s()
        done = to_checkpoint(
            self.state, self.learner, self.state.training_s + began_s - self.started_s, self.spent_usd()
        )
        self._write_curve()
        checkpoint.save(self.task.store, self.task.run_id, done, self.state.samples)
        self.saved_s = self.task.clock.monotonic_s()
        self.costs.record_checkpoint(self.saved_s - began_s)
        self.guard.exit_s = self.costs.exit_s

    def _write_curve(self) -> None:
        task = self.task
        curve = TrainingCurve(run_id=task.run_id, metric=task.metric, points=tuple(self.state.points))
        task.store.put(f"runs/{task.run_id}/curve.json", record_bytes(curve))

    def _time_a_look(self) -> float:
        """Seconds that a look at the whole signal split takes, from a part of it."""
        began_s = self.task.clock.monotonic_s()
        part = next(self.task.validation.scan(SIZING_ROWS))
        self.learner.loss([part], self.learner.average)
        return (self.task.clock.monotonic_s() - began_s) * len(self.task.validation) / len(part)

    def _end(self, stall_share: float) -> TrainedModel:
        """Of the annealed weights and the best average of the plateau, those that validate better."""
        course = self.state
        stopped = stop_reason(course, self.task.settings)
        found, loss, kept = (
            copy_weights(self.learner.net),
            self._last_look(),
            "annealed" if course.samples else "prior",
        )
        if course.best_weights is not None and (loss is None or course.best_loss < loss):
            found, loss, kept = course.best_weights, course.best_loss, "averaged"
        self._write_curve()
        course.training_s += self.progress().spent_s
        return TrainedModel(
            checkpoint.to_bytes(found),
            loss,
            kept,
            "; ".join(filter(None, (stopped, self.checkpoint_note))),
            course,
            stall_share,
        )

    def _last_look(self) -> float | None:
        """Signal validation of the weights as they are; None when there is no time left even for that."""
        if self.task.meter.seconds_left(self.task.clock.monotonic_s()) < self.costs.exit_s:
            return None
        loss = self._validate(self.learner.net)
        self._point(None, 0.0, loss)
        return loss
