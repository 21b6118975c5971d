"""The values that pass between the training loop and its controller: plain numbers and sentences."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, NamedTuple

from shoestring.config.adaptation import AdaptationLimits
from shoestring.config.guardrails import GuardrailAction, Guardrails
from shoestring.core.receipt import Lever

VALIDATIONS_PER_EPOCH = 2
MIN_STEPS_PER_EPOCH, MIN_BATCH_ROWS = 32, 16
"""A small table gets smaller batches, so that an epoch has at least this many steps, but no smaller than
this.
"""


@dataclass(frozen=True, slots=True)
class TrainingSetup:
    """The numbers of a training that never change.

    `batch_rows`, `patience` and `max_samples` are the recipe's; `prior_loss` is the loss of a constant
    prediction.
    """

    epoch_rows: int
    max_samples: int
    batch_rows: int
    patience: int
    prior_loss: float
    adaptation: AdaptationLimits
    guardrails: Guardrails

    @property
    def validation_every_rows(self) -> int:
        """Rows between two validations. They depend on the size of the data alone, so that runs can be
        compared."""
        return max(1, self.epoch_rows // VALIDATIONS_PER_EPOCH)

    @property
    def first_batch_rows(self) -> int:
        """The recipe's batch, or a smaller one for a small table."""
        most = max(MIN_BATCH_ROWS, self.epoch_rows // MIN_STEPS_PER_EPOCH)
        return min(self.batch_rows, most, self.validation_every_rows)


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
    """Consecutive steps: their rows, and their seconds with the loading of these rows."""

    rows: int
    seconds: float


class StepPlan(NamedTuple):
    """The next step. `rate`: the learning rate as a multiple of the recipe's peak for the recipe's batch."""

    rows: int
    rate: float


@dataclass(frozen=True, slots=True)
class PlanChange:
    """A change that the controller made, with its reason as a sentence with numbers.

    `value`: the samples at the planned end, the share of the validation split, or the rows of a batch, as
    the lever has it.
    """

    lever: Lever
    before: str
    after: str
    reason: str
    value: float = 0.0


Snapshot = Literal["best", "plateau", "rollback"]
"""The states that a loop keeps: the best validated weights, the learner at the best validation of the
plateau, and the learner at the last validation above the skill floor."""


class GuardrailStop(NamedTuple):
    """A guardrail ends the training at a checkpoint."""

    action: GuardrailAction
    reason: str


class Instructions(NamedTuple):
    """The loop's work after a validation: the states to keep, the one to continue from, and the changes to
    record. With `stop` the training ends."""

    keep: tuple[Snapshot, ...] = ()
    restore: Snapshot | None = None
    changes: tuple[PlanChange, ...] = ()
    stop: GuardrailStop | None = None
