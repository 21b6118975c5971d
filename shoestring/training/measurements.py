"""The measurements of one start of a training: its position in the budget, and what its steps, validations
and checkpoints take."""

from __future__ import annotations

import math
from decimal import Decimal

from shoestring.core.receipt import TimeShares
from shoestring.data.loading.gathering import NO_SECONDS, LoaderTimes
from shoestring.spending.guard import Guard
from shoestring.training.contracts import NO_STEPS, RunPosition, Signals, Window
from shoestring.training.control.step_costs import StepCosts
from shoestring.training.task import TrainingTask
from shoestring.training.training_state import TrainingState

# A first step on a warm machine took 0.05-0.2 s. One on many rows takes this many times a validation of
# as many rows.
FIRST_STEP_S, STEP_PER_VALIDATION = 0.2, 6.0
# The times for which the bottleneck is named.
TIMES_WINDOW_S = 5.0
NO_TIMES = LoaderTimes(0, 0, NO_SECONDS)


def first_step_s(validation_row_s: float, batch_rows: int) -> float:
    """Return the seconds that a first step is expected to take at most."""
    return max(FIRST_STEP_S, STEP_PER_VALIDATION * validation_row_s * batch_rows)


class Measurements:
    """The measurements of one start so far. Moments are those of the task's clock."""

    def __init__(
        self,
        task: TrainingTask,
        state: TrainingState,
        costs: StepCosts,
        step_s: float,
        queues_steps: bool,
    ) -> None:
        """`step_s`: the expected seconds of the first step. `queues_steps`: of the learner."""
        self._task, self._state, self.costs, self._queues_steps = task, state, costs, queues_steps
        self.guard = Guard(task.meter, step_s=step_s, exit_s=costs.reserved_s)
        self.started_s = self.saved_s = task.clock.monotonic_s()
        self.steps = NO_STEPS
        # The loader's times now, and where the time of the last seconds went.
        self.times = self._times_began = NO_TIMES
        self.time_shares: TimeShares | None = None

    def now_s(self) -> float:
        return self._task.clock.monotonic_s()

    def elapsed_s(self) -> float:
        """Return the seconds of this start."""
        return self.now_s() - self.started_s

    def training_s(self) -> float:
        """Return the seconds of training so far, in all starts."""
        return self._state.training_s + self.elapsed_s()

    def spent_usd(self) -> Decimal:
        """Return the dollars spent by the stage so far, in all starts."""
        return self._state.spent_usd + self._task.meter.spent_usd(self.now_s())

    def position(self) -> RunPosition:
        now_s, ends_s, steps = self.now_s(), self._task.meter.ends_s, self.steps
        left_s = max(0.0, ends_s - now_s - self.guard.exit_s)
        pace = steps.rows / steps.seconds if steps.seconds else 0.0
        return RunPosition(self._state.samples, self._spent_s(now_s, ends_s), left_s, pace)

    def signals(self) -> Signals:
        meter, now_s = self._task.meter, self.now_s()
        return Signals(
            usd_per_hour=meter.current_usd_per_hour,
            spent_usd=meter.spent_usd(now_s),
            validation_s=self.costs.validation_s,
            may_validate=self.may_validate(),
        )

    def may_validate(self) -> bool:
        """Return True if a validation is affordable before the last one."""
        return self.guard.may_step(self.now_s() + self.costs.validation_reserve_s)

    def may_step(self) -> bool:
        return self.guard.may_step(self.now_s())

    def step_end_s(self, began_s: float, before_s: float, steps: int, batches: int) -> float:
        """Return the moment at which the last of some steps ends, and record its time.

        A device ends the queued ones later than now. They are expected at the pace of earlier windows; before
        the first, a step has no end that is known: infinity.

        Args:
            began_s: the begin of the first of them.
            before_s: the begin of the last one.
            steps: their number.
            batches: of the last one. The guard expects steps of one batch.
        """
        now_s = self.now_s()
        if self._queues_steps:
            return max(now_s, began_s + steps * (_mean_step_s(self.steps) or math.inf))
        self.guard.record_step((now_s - before_s) / batches)
        return now_s

    def record_window(self, window: Window, times: LoaderTimes) -> None:
        """Record the steps of a window, and the loader's times after it."""
        self.steps, self.times = self.steps.joined(window), times
        if self._queues_steps:
            self.guard.record_step(_mean_step_s(window))
        if times.elapsed_s - self._times_began.elapsed_s >= TIMES_WINDOW_S:
            self.time_shares, self._times_began = times.shares_since(self._times_began), times

    def record_validation(self, seconds: float) -> None:
        self.costs.record_validation(seconds)
        self.guard.exit_s = self.costs.reserved_s

    def record_checkpoint(self, seconds: float) -> None:
        self.costs.record_checkpoint(seconds)
        self.guard.exit_s = self.costs.reserved_s

    def _spent_s(self, now_s: float, ends_s: float) -> float:
        """Return the seconds of the budget that all starts used: where the money ends this one, the seconds
        that their dollars buy at the current price.
        """
        meter, state = self._task.meter, self._state
        price = meter.current_usd_per_hour
        if not price or ends_s == meter.deadline_s:
            return state.training_s + now_s - self.started_s
        own_s = meter.seconds_at_current_price(self.started_s, now_s)
        before_usd = max(Decimal(0), state.spent_usd - self._task.earlier.spent_usd_at_end)
        return float(before_usd / price) * 3600 + own_s


def _mean_step_s(window: Window) -> float:
    return window.seconds / window.steps if window.steps else 0.0
