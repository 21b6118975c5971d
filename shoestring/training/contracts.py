"""The types that the parts of a training share.

The controller decides by plain numbers, a learner alone knows the model and its framework, and the loop
passes these values between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from shoestring.config.adaptation import AdaptationLimits
from shoestring.config.guardrails import Guardrails
from shoestring.core.receipt import AdaptationChange, SpendForecast, TimeShares
from shoestring.training.changes import PlanChange
from shoestring.training.curve import StepReadings

if TYPE_CHECKING:
    from shoestring.data.loading.gathering import GatheredSamples
    from shoestring.data.loading.loader import Batch
    from shoestring.data.loading.samples import Array, Positions, SampleReader, Samples

VALIDATIONS_PER_EPOCH = 2
MIN_RELATIVE_GAIN = 0.0005
"""The relative improvement that counts as one, where validation has many independent units."""
MIN_STEPS_PER_EPOCH, MIN_BATCH_ROWS = 32, 16
"""A small table gets smaller batches, so that an epoch has at least this many steps, where the family does
not name another number, but no smaller than this."""


class BatchRange(NamedTuple):
    """The rows that a batch may have.

    `half_rows`: those of a step that takes twice its fixed time. `noise_share`: the largest batch to grow to,
    as a multiple of the noise scale. `is_free`: the recipe names no batch, so the first one may be larger.
    """

    half_rows: int
    min_rows: int
    max_rows: int
    noise_share: float
    is_free: bool = False


@dataclass(frozen=True, slots=True)
class TrainingSetup:
    """The numbers of a training that never change.

    `batch_rows`, `patience` and `max_samples` are the recipe's; `prior_loss` is the loss of a constant
    prediction. `by_rounds`: a step is a round over all rows, and is validated. `min_steps`: of an epoch.
    `min_gain`: the share by which a validation has to improve. `measures_noise`: some steps have two batches,
    whose gradients are compared. `batch_range`: of the batch, which follows that noise; None: it stays the
    recipe's.
    """

    epoch_rows: int
    max_samples: int
    batch_rows: int
    patience: int
    prior_loss: float
    adaptation: AdaptationLimits
    guardrails: Guardrails
    by_rounds: bool = False
    min_steps: int = MIN_STEPS_PER_EPOCH
    min_gain: float = MIN_RELATIVE_GAIN
    measures_noise: bool = False
    batch_range: BatchRange | None = None

    @property
    def validation_every_rows(self) -> int:
        """Rows between two validations: those of half an epoch, and of a small table of `min_steps` steps."""
        if self.by_rounds:
            return self.epoch_rows
        return max(1, self.epoch_rows // VALIDATIONS_PER_EPOCH, self.min_steps * self.first_batch_rows)

    @property
    def first_batch_rows(self) -> int:
        """The recipe's batch, or a smaller one for a small table; all rows, where a step is a round."""
        if self.by_rounds:
            return self.epoch_rows
        return min(self.batch_rows, max(MIN_BATCH_ROWS, self.epoch_rows // self.min_steps), self.epoch_rows)


class RunPosition(NamedTuple):
    """How far a training is, over all its attempts.

    `spent_s`: seconds of the budget that are gone; if the money ends the training, those that its dollars buy
    at the current price. `left_s`: seconds until the money or the deadline ends, without the exit.
    `rows_per_s`: the throughput of this attempt's steps so far; 0 before the first.
    """

    samples: int
    spent_s: float
    left_s: float
    rows_per_s: float

    @property
    def share(self) -> float:
        """The share of the budget that is gone, in [0, 1]."""
        return self.spent_s / (self.spent_s + self.left_s) if self.spent_s else 0.0

    def after(self, rows: int) -> RunPosition:
        """Return the position after more rows, at the throughput so far.

        Within a window of steps no clock is read, so that a recorded window replays.
        """
        seconds = rows / self.rows_per_s if self.rows_per_s else 0.0
        return RunPosition(
            self.samples + rows, self.spent_s + seconds, max(0.0, self.left_s - seconds), self.rows_per_s
        )


class Signals(NamedTuple):
    """The measurements that are needed between steps only.

    `spent_usd`: by this attempt. `validation_s`: the seconds of a validation. `may_validate`: one more
    validation is affordable now.
    """

    usd_per_hour: Decimal
    spent_usd: Decimal
    validation_s: float
    may_validate: bool = True


class Window(NamedTuple):
    """Consecutive steps: their rows, their seconds with the loading of these rows, and their number."""

    rows: int
    seconds: float
    steps: int

    def joined(self, later: Window) -> Window:
        """Return the two windows as one."""
        return Window(self.rows + later.rows, self.seconds + later.seconds, self.steps + later.steps)


NO_STEPS = Window(0, 0.0, 0)


class StepPlan(NamedTuple):
    """The next step.

    `rate`: the learning rate of a step with one batch, as a multiple of the recipe's peak for its batch.
    `is_shaped_by_budget`: more money or time would give the step a higher rate, or measure it. `is_measured`:
    it has two batches, whose gradients are compared. `size`: its batch as a multiple of the first one.
    """

    rows: int
    rate: float
    is_shaped_by_budget: bool = False
    is_measured: bool = False
    size: float = 1.0

    @property
    def step_rate(self) -> float:
        """The rate of the step. For Adam it grows with the square root of the batch (arXiv 2205.10287)."""
        return self.rate * math.sqrt(1 + self.is_measured)


class Progress(NamedTuple):
    """One step as it was made: its samples, and their mean loss, which `Learner.metric` converts.

    `loss`: a number, or one that a device still computes: it can be added to others, and `float` waits for
    it, which the loop calls once a window. None: it is not computed. `changes`: of its device."""

    samples: int
    loss: Any
    changes: tuple[PlanChange, ...] = ()


class Feed(Protocol):
    """Gives a learner the samples of an epoch in the order of the training, from `Learner.gather`."""

    def next_batch(self, max_rows: int) -> Batch:
        """Return the next samples, fewer than `max_rows` at the end of an epoch."""
        ...

    def pass_over(self, rows: int) -> None:
        """Move the position behind the next samples, for a learner that holds all of them."""
        ...


class ValidationRows(Protocol):
    """The rows of a validation. Equal ones hold the same rows, in the same order."""

    def batches(self, batch_rows: int) -> Iterator[Samples]:
        """Yield the rows, at most `batch_rows` at a time."""
        ...

    def __hash__(self) -> int: ...


class Deferred:
    """Bytes that are made when they are first asked for.

    What they are made of does not change any more: a copy, or the beginning of something that only grows.
    """

    def __init__(self, make: Callable[[], bytes]) -> None:
        self._make = make

    @cached_property
    def data(self) -> bytes:
        return self._make()


Weights = Literal["last", "averaged"]
"""The weights after the last step, and their average over recent ones, which is validated on the plateau."""


class Learner(Protocol):
    """A model that learns. The only part of a training that knows the model and its framework.

    `batch_rows`: the rows of a step, until the controller changes them. `by_rounds`: each step is one round
    over all rows. `queues_steps`: a device computes steps after `advance` has returned. `measures_noise`: it
    has a gradient, whose noise can be measured.
    """

    batch_rows: int
    by_rounds: bool
    queues_steps: bool
    measures_noise: bool

    def gather(self, rows: SampleReader, samples: Positions) -> GatheredSamples:
        """Return samples of train as `advance` reads them. The threads that load them call it."""
        ...

    def advance(self, plan: StepPlan, feed: Feed) -> Progress:
        """Make one step."""
        ...

    def readings(self) -> StepReadings:
        """Return the measurements of the steps since the mark, for which it waits."""
        ...

    def validate(self, rows: ValidationRows, weights: Weights | bytes) -> float:
        """Return the loss over all rows, in the run's metric. Bytes are exported weights."""
        ...

    def metric(self, loss: float) -> float:
        """Return a mean of step losses in the run's metric."""
        ...

    def state(self) -> Deferred:
        """Return everything that steps change. Later steps do not change it. It is in
        memory until its bytes are asked for."""
        ...

    def restore(self, state: Deferred) -> None:
        """Return to a state, which can be done again: one that `state` returned, or its bytes."""
        ...

    def mark(self) -> None:
        """Mark the state before the steps of a window."""
        ...

    def go_back(self) -> None:
        """Return to the marked state. Only a learner whose steps have a loss is asked to."""
        ...

    def export(self, weights: Weights) -> Deferred:
        """Return the weights of a model."""
        ...


class Predictor(Protocol):
    """A trained model. `rows_at_once`: the most samples that it may be given at once."""

    rows_at_once: int

    def predict(self, samples: Samples) -> Array:
        """Return probabilities float64[n, classes]; for regression values float64[n], in the unit of y; of
        texts the nats of each row, float64[n]."""
        ...


class TrainingProgress(NamedTuple):
    """The progress of a training. `phase`: of the learning rate, or a sentence about its checkpoints.

    `resumed_samples`: those of earlier attempts. `best_loss`: None before the first validation.
    """

    phase: str
    samples: int
    resumed_samples: int
    best_loss: float | None = None
    changes: tuple[AdaptationChange, ...] = ()
    forecast: SpendForecast | None = None
    time_shares: TimeShares | None = None
