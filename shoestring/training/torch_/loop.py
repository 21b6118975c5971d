"""Train inside a budget: batch, step, guard, checkpoint, look, wind down. Reads from top to bottom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from shoestring.data.formats import Rows
from shoestring.data.loader import Batch, Loader
from shoestring.data.order import samples_at
from shoestring.data.recipe import TrainSettings
from shoestring.errors import StageStopped
from shoestring.model import Encoding
from shoestring.seams import Clock, Store
from shoestring.spending.guard import Guard
from shoestring.spending.meter import Meter
from shoestring.training.curve import Point
from shoestring.training.record import seen
from shoestring.training.schedule import Progress
from shoestring.training.torch_ import checkpoint
from shoestring.training.torch_.course import Course, fresh, put_down, resumed
from shoestring.training.torch_.learner import Learner, snapshot, weights

LOOKS_PER_EPOCH = 2
POINTS_PER_EPOCH = 20
EDGE_SAMPLE_ROWS = 50_000
CHECKPOINT_EVERY_S = 5.0
# A checkpoint may take this share of the time: on a slow store they are further apart.
CHECKPOINT_SHARE = 0.02
# What leaving takes beyond the last look at validation: writing the model, ending the process; measured 0.2-0.4 s.
LEAVING_S = 0.6
FIRST_STEP_S = 0.05
LOOK_MARGIN = 1.5
SIZING_ROWS = 4096


@dataclass(frozen=True, slots=True)
class Task:
    """What to train on, within what, and whom to tell."""

    run_id: str
    seed: int
    encoding: Encoding
    settings: TrainSettings
    train: Rows
    signal: Rows
    metric: Literal["log_loss", "rmse"]
    store: Store
    meter: Meter
    clock: Clock
    cores: int
    tell: Callable[[str, int, dict[str, float]], None]
    stopping: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Trained:
    """The weights that were kept, as `torch.load(weights_only=True)` reads them, and how it went."""

    weights: bytes
    val_loss: float | None
    kept: str
    stopped: str
    course: Course
    stall_share: float


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
        self.look_s = self._time_a_look()
        self.guard = Guard(task.meter, step_s=FIRST_STEP_S, exit_s=self.look_s * LOOK_MARGIN + LEAVING_S)
        self.save_s, self.stepping_s, self.stepped = 0.0, 0.0, 0

    def run(self) -> Trained:
        """Until the money, the time or what is worth learning ends.

        Raises:
            StageStopped: told to stop; the checkpoint is written.
        """
        task, course = self.task, self.course
        with Loader(task.train, course.cursor) as loader:
            while self.guard.may_step(task.clock.monotonic_s()) and not course.schedule.ends(self.progress()):
                batch = loader.take(self._rows_to_the_next_look())
                loss, rate = self._step(batch)
                course.cursor = loader.cursor
                self._point(loss, rate)
                if course.samples % self._look_every() == 0:
                    self._look(rate)
                if task.stopping():
                    self._save()
                    raise StageStopped(f"at {course.samples} samples; the checkpoint is written")
                self._save_if_due()
            return self._end(loader.stall_share)

    def progress(self) -> Progress:
        now_s = self.task.clock.monotonic_s()
        left_s = max(0.0, self.task.meter.seconds_left(now_s) - self.guard.exit_s)
        rate = self.stepped / self.stepping_s if self.stepping_s else 0.0
        return Progress(self.course.samples, self.rows, now_s - self.began_s, left_s, rate)

    def _step(self, batch: Batch) -> tuple[float, float]:
        began_s = self.task.clock.monotonic_s()
        at, course = self.progress(), self.course
        rate = self.task.settings.learning_rate * course.schedule.factor(at)
        loss = self.learner.step(batch.records, rate)
        took_s = self.task.clock.monotonic_s() - began_s
        self.guard.took(took_s)
        self.stepping_s, self.stepped = self.stepping_s + took_s, self.stepped + len(batch.records)
        course.samples += len(batch.records)
        course.windows = seen(course.windows, batch.epoch, batch.first, batch.first + len(batch.records))
        return loss, rate

    def _rows_to_the_next_look(self) -> int:
        """Looks are at positions that depend on the data's size alone, so that runs can be compared."""
        every = self._look_every()
        return min(self.task.settings.batch_rows, every - self.course.samples % every)

    def _look_every(self) -> int:
        return max(1, self.rows // LOOKS_PER_EPOCH)

    def _look(self, rate: float) -> None:
        """Signal validation of the averaged weights. On the plateau a stall begins the way down, from where it was best."""
        course, at = self.course, self.progress()
        phase = course.schedule.phase(at)
        loss = self.learner.loss(self.task.signal, self.learner.average)
        self._point(None, rate, loss)
        if loss < course.best_loss:
            course.best_loss, course.best_weights = loss, weights(self.learner.average)
        if phase == "decay":
            return
        course.stall = course.stall.saw(loss)
        if course.stall.since == 0:
            course.plateau = snapshot(self.learner.state())
        if course.stall.stalled:
            if course.plateau is not None:
                self.learner.restore(snapshot(course.plateau))
            course.schedule = course.schedule.wind_down(at)

    def _point(self, train_loss: float | None, rate: float, val_loss: float | None = None) -> None:
        """Remember this moment: every validation, and some of the steps between."""
        course, at = self.course, self.progress()
        if train_loss is not None:
            course.losses.append(train_loss)
            if course.samples - course.pointed < self.rows / POINTS_PER_EPOCH:
                return
            course.pointed, train_loss = course.samples, sum(course.losses) / len(course.losses)
            course.losses.clear()
        course.points.append(
            Point(
                samples=course.samples,
                epoch=course.samples / self.rows,
                spent_usd=self.task.meter.spent_usd(self.task.clock.monotonic_s()),
                seconds=round(course.seconds + at.spent_s, 3),
                train_loss=train_loss,
                val_loss=val_loss,
                learning_rate=rate,
                phase=course.schedule.phase(at),
            )
        )
        quality: dict[str, float] = {} if course.best_loss == float("inf") else {self.task.metric: course.best_loss}
        self.task.tell(course.points[-1].phase, course.samples, quality)

    def _save_if_due(self) -> None:
        since_s = self.task.clock.monotonic_s() - self.saved_s
        if since_s >= max(CHECKPOINT_EVERY_S, self.save_s / CHECKPOINT_SHARE):
            self._save()

    def _save(self) -> None:
        began_s = self.task.clock.monotonic_s()
        done = put_down(self.course, self.learner, self.course.seconds + began_s - self.began_s)
        checkpoint.save(self.task.store, self.task.run_id, done, self.course.samples)
        self.saved_s = self.task.clock.monotonic_s()
        self.save_s = self.saved_s - began_s

    def _time_a_look(self) -> float:
        """Seconds that a look at the whole signal split takes, from a part of it."""
        part = Rows([self.task.signal.take(np.arange(min(len(self.task.signal), SIZING_ROWS)))])
        began_s = self.task.clock.monotonic_s()
        self.learner.loss(part, self.learner.average)
        return (self.task.clock.monotonic_s() - began_s) * len(self.task.signal) / len(part)

    def _end(self, stall_share: float) -> Trained:
        """Of the annealed weights and the best average of the plateau, those that validate better."""
        course, at = self.course, self.progress()
        stopped = why_it_stopped(course, at, self.task.settings)
        found, loss, kept = weights(self.learner.net), self.learner.loss(self.task.signal, self.learner.net), "annealed"
        self._point(None, 0.0, loss)
        if course.best_weights is not None and course.best_loss < loss:
            found, loss, kept = course.best_weights, course.best_loss, "averaged"
        course.seconds += self.progress().spent_s
        return Trained(checkpoint.to_bytes(found), loss, kept, stopped, course, stall_share)


def why_it_stopped(course: Course, at: Progress, settings: TrainSettings) -> str:
    if course.schedule.decaying and at.samples >= course.schedule.end_samples:
        return "signal validation stalled; the rest of the money is handed back"
    if at.samples >= course.schedule.end_samples:
        return f"all {settings.max_epochs} epochs are done"
    return "the budget, or the deadline, is spent"
