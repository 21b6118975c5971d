"""Train inside a budget: batch, step, guard, checkpoint, look, wind down. Reads from top to bottom."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from decimal import Decimal

import torch

from shoestring.core.errors import StageFailed, StageStopped
from shoestring.core.receipt import AdaptationChange, Lever
from shoestring.core.types import record_bytes
from shoestring.data.loading.loader import Loader
from shoestring.data.loading.shuffle import samples_at
from shoestring.spending.guard import Guard
from shoestring.spending.spend_forecast import Drift, Move, Standing
from shoestring.training.control.controller import Steering
from shoestring.training.control.schedule import Progress
from shoestring.training.control.step_costs import Outlay
from shoestring.training.curve import Curve, Point
from shoestring.training.model_record import seen
from shoestring.training.torch_ import checkpoint
from shoestring.training.torch_.guardrail_actions import mend_skill, mend_spend
from shoestring.training.torch_.learner import Learner, part_of, snapshot, weights
from shoestring.training.torch_.net import TableNet
from shoestring.training.torch_.task import Task, Trained
from shoestring.training.torch_.training_state import fresh, put_down, resumed, why_it_stopped

LOOKS_PER_EPOCH = 2
POINTS_PER_EPOCH = 20
# A small table gets smaller batches, so that an epoch has this many steps; but none is smaller than this for that reason.
LEAST_STEPS_PER_EPOCH, SMALLEST_BATCH_ROWS = 32, 16
EDGE_SAMPLE_ROWS = 50_000
CHECKPOINT_EVERY_S = 5.0
# A checkpoint may take this share of the time: on a slow store they are further apart.
CHECKPOINT_SHARE = 0.02
# A first step on a warm machine took 0.05-0.2 s; one on many rows takes this many times a look at as many.
FIRST_STEP_S, STEP_LOOKS = 0.2, 6.0
SIZING_ROWS = 4096


class Training:
    """One start of a training: fresh, or from its last checkpoint."""

    def __init__(self, task: Task) -> None:
        self.task, self.rows = task, len(task.train)
        torch.set_num_threads(task.cores)
        torch.manual_seed(task.seed)
        sample = samples_at(self.rows, task.seed, 0, 0, min(self.rows, EDGE_SAMPLE_ROWS))
        self.learner = Learner(task.encoding, task.settings, task.train.take(sample), self.rows)
        state, self.said = checkpoint.load(task.store, task.run_id)
        self.course = resumed(state, self.learner) if state else fresh(task.seed, task.settings, self.rows)
        self.began_s = self.saved_s = task.clock.monotonic_s()
        self.began_at = self.course.samples
        self.outlay = Outlay(self._time_a_look())
        self.recipe_rows = min(
            task.settings.batch_rows,
            max(SMALLEST_BATCH_ROWS, self.rows // LEAST_STEPS_PER_EPOCH),
            self._look_every(),
        )
        self.batch_rows = self.course.batch_rows or self.recipe_rows
        step_s = max(FIRST_STEP_S, STEP_LOOKS * self.outlay.look_s / len(task.signal) * self.batch_rows)
        self.guard = Guard(task.meter, step_s=step_s, exit_s=self.outlay.exit_s)
        self.steering = Steering(Drift(task.bounds), self.batch_rows / step_s)
        # Samples and dollars where signal validation was last looked at.
        self.mark: tuple[int, Decimal] | None = None

    def run(self) -> Trained:
        """Until the money, the time or what is worth learning ends.

        Raises:
            StageStopped: told to stop; the checkpoint is written.
            StageFailed: the loss is not a number any more.
        """
        task, course = self.task, self.course
        if self.said:
            task.tell(self.said, course.samples, self.began_at, {}, tuple(course.changes), None)
        with Loader(task.train, course.cursor) as loader:
            while self.guard.may_step(task.clock.monotonic_s()) and not course.schedule.ends(self.progress()):
                loss, rate = self._step(loader)
                self._point(loss, rate)
                self._steer()
                if course.samples % self._look_every() == 0:
                    self._look_if_affordable(rate)
                    mend_spend(self)
                if task.stopping():
                    if not self.guard.may_step(task.clock.monotonic_s()):
                        # The money went faster than it was counted on: a model is worth more than a checkpoint that nothing goes on from.
                        break
                    self.save()
                    raise StageStopped(f"at {course.samples} samples; the checkpoint is written")
                self._save_if_due()
            return self._end(loader.stall_share)

    def progress(self) -> Progress:
        now_s = self.task.clock.monotonic_s()
        left_s = max(0.0, self.task.meter.seconds_left(now_s) - self.guard.exit_s)
        return Progress(
            self.course.samples, self.rows, now_s - self.began_s, left_s, self.steering.rows_per_s
        )

    def _step(self, loader: Loader) -> tuple[float, float]:
        """The loss of the next batch, and the rate that it was learned at. The time of a step is that of its rows, too."""
        began_s, course = self.task.clock.monotonic_s(), self.course
        batch = loader.take(self._rows_to_the_next_look())
        # A short batch, before a look or at the end of an epoch, is noisier: it moves the weights in proportion.
        share = len(batch.records) / self.batch_rows
        # A batch of other than the recipe's rows: by the root of how many more, as Adam wants it (arXiv 2205.10287).
        share *= math.sqrt(self.batch_rows / self.recipe_rows)
        rate = (
            self.task.settings.learning_rate
            * course.rate_share
            * course.schedule.factor(self.progress())
            * share
        )
        loss = self._finite(self.learner.step(batch.records, rate))
        course.cursor, course.samples = loader.cursor, course.samples + len(batch.records)
        course.windows = seen(course.windows, batch.epoch, batch.first, batch.first + len(batch.records))
        took_s = self.task.clock.monotonic_s() - began_s
        self.guard.took(took_s)
        self.steering.took(len(batch.records), took_s)
        return loss, rate

    def _steer(self) -> None:
        """At the end of a window: will the money reach to the planned end?"""
        course = self.course
        if not self.steering.is_due:
            return
        move = self.steering.look_ahead(
            self.standing(), self.task.meter.spent_usd(self.task.clock.monotonic_s())
        )
        if (
            not self.task.bounds.length
            and course.schedule.follows_money
            and (planned := self.steering.drift.planned)
        ):
            course.schedule = replace(
                course.schedule, end_samples=min(course.schedule.end_samples, planned), follows_money=False
            )
        if move is not None and self.change(move):
            self.note(move.lever, move.before, move.after, move.why)

    def note(self, lever: Lever, before: str, after: str, why: str) -> None:
        """Put a change on record, and say it."""
        at = self.task.clock.now()
        self.course.changes.append(
            AdaptationChange(at=at, samples=self.course.samples, lever=lever, before=before, after=after, reason=why)
        )
        self._tell()

    def standing(self) -> Standing:
        meter, progress, now_s = self.task.meter, self.progress(), self.task.clock.monotonic_s()
        price, due = meter.price_usd_per_hour, meter.ends_s == meter.deadline_s
        return Standing(
            samples=self.course.samples,
            most_samples=self.course.schedule.end_samples,
            gone_s=progress.spent_s if due or not price else float(meter.spent_usd(now_s) / price) * 3600,
            left_s=progress.left_s,
            usd_per_hour=price,
            look_s=self.outlay.look_s,
            look_rows=self._look_every(),
            look_share=self.course.look_share,
            batch_rows=self.batch_rows,
            recipe_batch_rows=self.recipe_rows,
            annealing=self.course.schedule.phase(progress) == "decay",
        )

    def change(self, move: Move) -> bool:
        """Do it; false where it could not be done."""
        if move.lever == "batch":
            self.guard.larger(max(1.0, move.to / self.batch_rows))
            self.batch_rows = self.course.batch_rows = int(move.to)
        if move.lever == "looks":
            return self._thin_looks(move.to)
        return True

    def _thin_looks(self, share: float) -> bool:
        """Losses of different rows cannot be compared: what was best is looked at again."""
        course = self.course
        if not self.guard.may_step(self.task.clock.monotonic_s() + self.outlay.look_more_s):
            return False
        self.outlay.thinned(share / course.look_share)
        course.look_share = share
        if course.best_weights is not None:
            net = copy.deepcopy(self.learner.average)
            net.load_state_dict(course.best_weights)
            course.best_loss = self._validate(net)
            course.stall = replace(course.stall, best=course.best_loss)
        return True

    def _finite(self, loss: float) -> float:
        if not math.isfinite(loss):
            rate = self.task.settings.learning_rate
            raise StageFailed(
                f"training diverged at {self.course.samples} samples: the loss is {loss}. "
                f"Lower train.learning_rate in the recipe (it is {rate:g}), or look for infinities in the numeric columns"
            )
        return loss

    def _rows_to_the_next_look(self) -> int:
        """Looks are at positions that depend on the data's size alone, so that runs can be compared."""
        every = self._look_every()
        return min(self.batch_rows, every - self.course.samples % every)

    def _look_every(self) -> int:
        return max(1, self.rows // LOOKS_PER_EPOCH)

    def _look_if_affordable(self, rate: float) -> None:
        """Close to the end the last look, which is kept money for, is the next one."""
        if self.guard.may_step(self.task.clock.monotonic_s() + self.outlay.look_more_s):
            self._look(rate)

    def _look(self, rate: float) -> None:
        """Signal validation of the averaged weights. On the plateau a stall begins the way down, from where it was best."""
        course, phase = self.course, self.course.schedule.phase(self.progress())
        loss = self._validate(self.learner.average)
        self._point(None, rate, loss)
        if mend_skill(self, loss):
            return
        if loss < course.best_loss:
            course.best_loss, course.best_weights = loss, weights(self.learner.average)
        if phase == "decay":
            return
        course.stall = course.stall.saw(loss)
        if course.stall.since == 0:
            course.plateau = snapshot(self.learner.state())
        if course.stall.stalled:
            if course.plateau is not None:
                self.learner.restore(course.plateau)
                course.plateau = None
            course.schedule = course.schedule.wind_down(self.progress())

    def _validate(self, net: TableNet) -> float:
        began_s = self.task.clock.monotonic_s()
        loss = self._finite(
            self.learner.loss(part_of(self.task.signal, self.task.seed, self.course.look_share), net)
        )
        self.outlay.looked(self.task.clock.monotonic_s() - began_s)
        self.guard.exit_s = self.outlay.exit_s
        return loss

    def _point(self, train_loss: float | None, rate: float, val_loss: float | None = None) -> None:
        """Remember this moment: every validation, and some of the steps between."""
        course, at = self.course, self.progress()
        if train_loss is not None:
            course.losses.append(train_loss)
            if course.samples - course.pointed < self.rows / POINTS_PER_EPOCH:
                return
            course.pointed, train_loss = (
                course.samples,
                self.learner.in_metric(sum(course.losses) / len(course.losses)),
            )
            course.losses.clear()
        course.points.append(
            Point(
                samples=course.samples,
                epoch=course.samples / self.rows,
                spent_usd=self.spent_usd(),
                seconds=round(course.seconds + at.spent_s, 3),
                train_loss=train_loss,
                val_loss=val_loss,
                learning_rate=rate,
                phase=course.schedule.phase(at),
            )
        )
        self._tell()

    def _tell(self) -> None:
        course = self.course
        quality: dict[str, float] = (
            {} if course.best_loss == float("inf") else {self.task.metric: course.best_loss}
        )
        phase = course.schedule.phase(self.progress())
        self.task.tell(
            phase, course.samples, self.began_at, quality, tuple(course.changes), self.steering.forecast
        )

    def spent_usd(self) -> Decimal:
        return self.course.spent_usd + self.task.meter.spent_usd(self.task.clock.monotonic_s())

    def _save_if_due(self) -> None:
        now_s = self.task.clock.monotonic_s()
        due = now_s - self.saved_s >= max(CHECKPOINT_EVERY_S, self.outlay.save_s / CHECKPOINT_SHARE)
        if due and self.guard.may_step(now_s + self.outlay.save_more_s):
            self.save()

    def save(self) -> None:
        began_s = self.task.clock.monotonic_s()
        done = put_down(
            self.course, self.learner, self.course.seconds + began_s - self.began_s, self.spent_usd()
        )
        self._write_curve()
        checkpoint.save(self.task.store, self.task.run_id, done, self.course.samples)
        self.saved_s = self.task.clock.monotonic_s()
        self.outlay.saved(self.saved_s - began_s)
        self.guard.exit_s = self.outlay.exit_s

    def _write_curve(self) -> None:
        task = self.task
        curve = Curve(run_id=task.run_id, metric=task.metric, points=tuple(self.course.points))
        task.store.put(f"runs/{task.run_id}/curve.json", record_bytes(curve))

    def _time_a_look(self) -> float:
        """Seconds that a look at the whole signal split takes, from a part of it."""
        began_s = self.task.clock.monotonic_s()
        part = next(self.task.signal.scan(SIZING_ROWS))
        self.learner.loss([part], self.learner.average)
        return (self.task.clock.monotonic_s() - began_s) * len(self.task.signal) / len(part)

    def _end(self, stall_share: float) -> Trained:
        """Of the annealed weights and the best average of the plateau, those that validate better."""
        course = self.course
        stopped = why_it_stopped(course, self.task.settings)
        found, loss, kept = (
            weights(self.learner.net),
            self._last_look(),
            "annealed" if course.samples else "prior",
        )
        if course.best_weights is not None and (loss is None or course.best_loss < loss):
            found, loss, kept = course.best_weights, course.best_loss, "averaged"
        self._write_curve()
        course.seconds += self.progress().spent_s
        return Trained(
            checkpoint.to_bytes(found),
            loss,
            kept,
            "; ".join(filter(None, (stopped, self.said))),
            course,
            stall_share,
        )

    def _last_look(self) -> float | None:
        """Signal validation of the weights as they are; None when there is no time left even for that."""
        if self.task.meter.seconds_left(self.task.clock.monotonic_s()) < self.outlay.exit_s:
            return None
        loss = self._validate(self.learner.net)
        self._point(None, 0.0, loss)
        return loss
