"""One start of a training: its state, its measurements and its records."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal

import torch

from shoestring.core import store_layout
from shoestring.core.errors import StageFailed
from shoestring.core.receipt import AdaptationChange, SpendForecast, TimeShares
from shoestring.core.record import digest, record_bytes
from shoestring.data.loading.loader import LoaderTimes
from shoestring.data.loading.shuffle import SampleCursor
from shoestring.spending.guard import Guard
from shoestring.training.contracts import PlanChange, RunPosition, Signals, TrainingSetup, Window
from shoestring.training.control.controller import Controller
from shoestring.training.control.guardrails import prior_loss
from shoestring.training.control.step_costs import StepCosts
from shoestring.training.curve import CurvePoint, TrainingCurve
from shoestring.training.torch_ import checkpoint
from shoestring.training.torch_.learner import Learner, Net, validation_batches
from shoestring.training.torch_.task import TrainingTask
from shoestring.training.torch_.training_state import TrainingState, from_checkpoint, to_checkpoint

POINTS_PER_EPOCH = 20
EDGE_SAMPLE_ROWS = 50_000
# A first step on a warm machine took 0.05-0.2 s. One on many rows takes this many times a validation of
# as many rows.
FIRST_STEP_S, STEP_PER_VALIDATION = 0.2, 6.0
SIZING_ROWS = 4096
# A window for which the bottleneck is named.
TIMES_WINDOW_S = 5.0
NO_STEPS = Window(0, 0.0)


class TrainingSession:
    """One start of a training: a new one, or one resumed from its last checkpoint."""

    def __init__(self, task: TrainingTask) -> None:
        self.task, self.rows = task, len(task.train)
        torch.set_num_threads(task.cores)
        torch.manual_seed(task.seed)
        sample_rows = EDGE_SAMPLE_ROWS if task.encoding.features else 1
        begin = SampleCursor(seed=task.seed, selection=task.selection, order=task.train.order)
        sample = task.train.positions(begin, 0, 0, min(self.rows, sample_rows))
        self.learner = Learner(task.encoding, task.settings, task.train.take(sample), self.rows)
        self.costs = StepCosts(self._estimate_validation_s())
        setup = self._setup()
        step_s = self._first_step_s(setup.first_batch_rows)
        controller = Controller.start(setup, task.planned_samples, setup.first_batch_rows / step_s)
        saved, self.checkpoint_note = checkpoint.load(task.store, task.run_id, self.rows_sha256())
        self.state = (
            from_checkpoint(saved, self.learner, controller) if saved else TrainingState(begin, controller)
        )
        self.started_s = self.saved_s = task.clock.monotonic_s()
        self.start_samples = self.state.samples
        step_s = self._first_step_s(self.state.controller.batch_rows)
        self.guard = Guard(task.meter, step_s=step_s, exit_s=self.costs.exit_s)
        # The steps of this start, and of the window that has begun.
        self.steps, self.window, self.window_steps = NO_STEPS, NO_STEPS, 0
        self.forecast: SpendForecast | None = None
        # The loader's times now and when the window began, and where the time of the last window went.
        self.times = self.window_began = LoaderTimes(0, 0, 0, 0)
        self.window_shares: TimeShares | None = None

    def _setup(self) -> TrainingSetup:
        task, settings = self.task, self.task.settings
        return TrainingSetup(
            epoch_rows=self.rows,
            max_samples=settings.max_epochs * self.rows,
            batch_rows=settings.batch_rows,
            patience=settings.patience,
            prior_loss=prior_loss(task.encoding),
            adaptation=task.adaptation_limits,
            guardrails=task.guardrails,
        )

    def _first_step_s(self, batch_rows: int) -> float:
        row_s = self.costs.validation_s / len(self.task.validation)
        return max(FIRST_STEP_S, STEP_PER_VALIDATION * row_s * batch_rows)

    def rows_sha256(self) -> str:
        """Return a digest that tells these rows from those of another split, in any format whose rows have
        the same order."""
        counts = f" {self.rows} {len(self.task.validation)}" + " in blocks" * (self.task.train.order == 3)
        return digest(record_bytes(self.task.encoding) + f"{counts}{self.task.selection}".encode())

    def now_s(self) -> float:
        return self.task.clock.monotonic_s()

    def position(self) -> RunPosition:
        meter, now_s, steps = self.task.meter, self.now_s(), self.steps
        ends_s = meter.ends_s
        left_s = max(0.0, ends_s - now_s - self.guard.exit_s)
        pace = steps.rows / steps.seconds if steps.seconds else 0.0
        return RunPosition(self.state.samples, self._spent_s(now_s, ends_s), left_s, pace)

    def signals(self) -> Signals:
        meter, now_s = self.task.meter, self.now_s()
        return Signals(
            usd_per_hour=meter.current_usd_per_hour,
            spent_usd=meter.spent_usd(now_s),
            validation_s=self.costs.validation_s,
            may_validate=self.may_validate(),
        )

    def may_validate(self) -> bool:
        """Return True if a validation is affordable before the last one."""
        return self.guard.may_step(self.now_s() + self.costs.validation_reserve_s)

    def elapsed_s(self) -> float:
        """Return the seconds of this start."""
        return self.now_s() - self.started_s

    def _spent_s(self, now_s: float, ends_s: float) -> float:
        """Return the seconds of the budget that all starts used: where the money ends this one, the seconds
        that their dollars buy at the current price.
        """
        meter, state = self.task.meter, self.state
        price = meter.current_usd_per_hour
        if not price or ends_s == meter.deadline_s:
            return state.training_s + now_s - self.started_s
        own_s = meter.seconds_at_current_price(self.started_s, now_s)
        return float(state.spent_usd / price) * 3600 + own_s

    def spent_usd(self) -> Decimal:
        """Return the dollars spent by the stage so far, in all starts."""
        return self.state.spent_usd + self.task.meter.spent_usd(self.now_s())

    def validate(self, net: Net) -> float:
        """Return the validation loss of a net, and update the estimate of what a validation takes."""
        started_s = self.now_s()
        batches = validation_batches(
            self.task.validation,
            self.task.seed,
            self.state.controller.validation_share,
            self.learner.evaluation_rows,
        )
        loss = self.require_finite(self.learner.loss(batches, net))
        self.costs.record_validation(self.now_s() - started_s)
        self.guard.exit_s = self.costs.exit_s
        return loss

    def record_times(self, times: LoaderTimes) -> None:
        """Record the loader's times after a step. Where they went is known for each window."""
        self.times = times
        if times.elapsed_s - self.window_began.elapsed_s >= TIMES_WINDOW_S:
            self.window_shares, self.window_began = times.shares_since(self.window_began), times

    def require_finite(self, loss: float) -> float:
        """Return the loss. Raises StageFailed when it is not a finite number."""
        if not math.isfinite(loss):
            rate = self.task.settings.learning_rate
            raise StageFailed(
                f"training diverged at {self.state.samples} samples: the loss is {loss}. "
                f"Lower train.learning_rate in the recipe (it is {rate:g}), "
                "or look for infinite values in the numeric columns"
            )
        return loss

    def record_train_loss(self, loss: float, rate: float) -> None:
        """Record the loss of a step; `POINTS_PER_EPOCH` times an epoch, add their mean to the curve."""
        state = self.state
        state.recent_losses.append(loss)
        if state.samples - state.last_point_samples >= self.rows / POINTS_PER_EPOCH:
            state.last_point_samples = state.samples
            mean = self.learner.to_metric(sum(state.recent_losses) / len(state.recent_losses))
            state.recent_losses.clear()
            self._add_point(rate, train_loss=mean)

    def record_val_loss(self, loss: float, rate: float) -> None:
        """Add a validation to the curve."""
        self._add_point(rate, val_loss=loss)

    def record_change(self, change: PlanChange) -> None:
        """Record and report a change that the training made to itself."""
        self.state.changes.append(
            AdaptationChange(
                at=self.task.clock.now(),
                samples=self.state.samples,
                lever=change.lever,
                before=change.before,
                after=change.after,
                reason=change.reason,
            )
        )
        self.report_progress()

    def report_progress(self) -> None:
        state = self.state
        quality: dict[str, float] = {}
        if state.controller.best_loss < float("inf"):
            quality[self.task.metric] = state.controller.best_loss
        self.task.report_progress(
            state.controller.phase(self.position()),
            state.samples,
            self.start_samples,
            quality,
            tuple(state.changes),
            self.forecast,
            self.window_shares,
        )

    def save(self) -> None:
        """Write a checkpoint and the curve. Raises StoreFull; StageStopped if a newer attempt saved one."""
        started_s = self.now_s()
        training_s = self.state.training_s + self.elapsed_s()
        controller = self.state.controller
        rows_per_s = controller.throughput(self.position())
        self.state.controller = replace(controller, rows_per_s=rows_per_s)
        saved = to_checkpoint(self.state, self.learner, training_s, self.spent_usd())
        saved["rows_sha256"] = self.rows_sha256()
        task, state = self.task, self.state
        checkpoint.save(task.store, task.run_id, saved, state.samples, task.attempt, state.cursor.selection)
        self.write_curve()
        self.saved_s = self.now_s()
        self.costs.record_checkpoint(self.saved_s - started_s)
        self.guard.exit_s = self.costs.exit_s

    def write_curve(self) -> None:
        task = self.task
        curve = TrainingCurve(
            run_id=task.run_id,
            metric=task.metric,
            points=tuple(self.state.points),
            time_shares=self.times.shares_since(LoaderTimes(0, 0, 0, 0)) if self.times.elapsed_s else None,
        )
        task.store.put(store_layout.curve(task.run_id), record_bytes(curve))

    def _add_point(self, rate: float, train_loss: float | None = None, val_loss: float | None = None) -> None:
        state, at = self.state, self.position()
        state.points.append(
            CurvePoint(
                samples=state.samples,
                epoch=state.samples / self.rows,
                spent_usd=self.spent_usd(),
                training_s=round(state.training_s + self.elapsed_s(), 3),
                train_loss=train_loss,
                val_loss=val_loss,
                learning_rate=rate,
                phase=state.controller.phase(at),
            )
        )
        self.report_progress()

    def _estimate_validation_s(self) -> float:
        """Return the estimated seconds of a validation of the whole split, measured on a part of it."""
        started_s = self.now_s()
        part = next(self.task.validation.scan(min(SIZING_ROWS, self.learner.evaluation_rows)))
        self.learner.loss([part], self.learner.average)
        return (self.now_s() - started_s) * len(self.task.validation) / len(part)
