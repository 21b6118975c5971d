"""The input and the result of a training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from shoestring.config.adaptation import AdaptationLimits
from shoestring.config.guardrails import Guardrails
from shoestring.core.datasets import Encoding
from shoestring.core.interfaces import Clock, Store
from shoestring.core.record import digest, record_bytes
from shoestring.data.families import FamilySettings, LearnerSettings
from shoestring.data.loading.samples import SampleReader
from shoestring.data.loading.shuffle import SampleCursor
from shoestring.spending.meter import Meter, MeterShare
from shoestring.training.contracts import (
    MIN_BATCH_ROWS,
    MIN_RELATIVE_GAIN,
    BatchRange,
    Learner,
    TrainingProgress,
    TrainingSetup,
)
from shoestring.training.control.controller import Controller
from shoestring.training.control.guardrails import prior_loss
from shoestring.training.control.schedule import min_relative_gain
from shoestring.training.losses.scores import mean_metric, sum_of_losses, total_weight, weighted_quantile
from shoestring.training.training_state import NO_MEMBERS, EarlierMembers, TrainingState

NO_GUARDRAILS = Guardrails()


@dataclass(frozen=True, slots=True)
class TrainingTask:
    """The data, the settings, the limits and the callbacks of one training.

    `half_rows`: by family, the rows of a step that takes twice its fixed time; without them the batch stays.
    `planned_samples` are those that the decision expects its money and time to buy; None: no limit is known.
    `sudden_ends_per_hour`: how often its pod is expected to end without notice.
    `attempt` is the number of the attempt, and `selection` the digest of the rows of `train` if they are not
    all of the split; its checkpoints name both. `device`: that of its network, as PyTorch names it.
    `is_member`: of a blend; `earlier`: its members that are trained already.
    """

    run_id: str
    seed: int
    encoding: Encoding
    settings: FamilySettings
    train: SampleReader
    validation: SampleReader
    store: Store
    meter: Meter | MeterShare
    clock: Clock
    cores: int
    report_progress: Callable[[TrainingProgress], None]
    should_stop: Callable[[], bool]
    adaptation_limits: AdaptationLimits
    guardrails: Guardrails = NO_GUARDRAILS
    half_rows: Mapping[str, int] = field(default_factory=dict)
    planned_samples: int | None = None
    sudden_ends_per_hour: float = 0.0
    attempt: int = 1
    selection: str = ""
    device: str = "cpu"
    is_member: bool = False
    earlier: EarlierMembers = NO_MEMBERS

    @property
    def fits_temperature(self) -> bool:
        """True if the probabilities get a temperature after the training; of a blend its weights have it."""
        return bool(self.encoding.classes) and not self.is_member

    @property
    def learner_settings(self) -> LearnerSettings:
        """The settings of its one learner. Raises TypeError for a family that has several."""
        if not isinstance(self.settings, LearnerSettings):
            raise TypeError(f"{self.settings.family} has no learner of its own")
        return self.settings

    def setup(self, learner: Learner) -> TrainingSetup:
        """Return the numbers of the training that never change. Rounds have a number that no adaptation
        changes."""
        rows, settings, limits = len(self.train), self.learner_settings, self.adaptation_limits
        if learner.by_rounds:
            limits = limits.model_copy(update={"max_batch_factor": 1.0})
        min_gain = MIN_RELATIVE_GAIN if learner.by_rounds else min_relative_gain(self.validation.unit_count)
        return TrainingSetup(
            epoch_rows=rows,
            max_samples=settings.max_epochs * rows,
            batch_rows=learner.batch_rows,
            patience=settings.patience,
            prior_loss=self._prior_loss(),
            adaptation=limits,
            guardrails=self.guardrails,
            by_rounds=learner.by_rounds,
            min_steps=settings.min_steps_per_epoch,
            min_gain=min_gain,
            measures_noise=learner.measures_noise,
            batch_range=self._batch_range(learner) if learner.measures_noise else None,
        )

    def _batch_range(self, learner: Learner) -> BatchRange | None:
        """Return the rows that a batch may have; None: it stays the recipe's."""
        settings, bounds = self.learner_settings, self.adaptation_limits.batch
        half_rows = self.half_rows.get(settings.family, 0)
        if bounds is None or not half_rows:
            return None
        rows, usual = len(self.train), type(settings).model_fields["batch_rows"].default
        most = max(MIN_BATCH_ROWS, rows // settings.min_steps_per_epoch)
        return BatchRange(
            half_rows,
            bounds.min_rows,
            min(bounds.max_rows or most, most),
            # A row of a batch B learns 1 / (1 + B / phi) of what it does in a small one. A training has to be
            # longer by that, within the recipe's epochs.
            noise_share=max(0.0, settings.max_epochs / settings.expected_epochs - 1),
            is_free=learner.batch_rows == usual,
        )

    def _prior_loss(self) -> float:
        """Return the loss of a constant prediction, in the run's metric."""
        quantile = self.encoding.loss.quantile
        if quantile is None or self.encoding.task != "regression":
            return prior_loss(self.encoding)
        y_B, weight_B = self.train.targets()
        scores_B1 = np.full((len(y_B), 1), weighted_quantile(y_B, quantile, weight_B))
        loss = sum_of_losses(scores_B1, y_B.astype(np.float64), self.encoding, weight_B)
        return mean_metric(loss / total_weight(len(y_B), weight_B), self.encoding)

    def first_cursor(self) -> SampleCursor:
        """Return the cursor of a training from the beginning."""
        return SampleCursor(seed=self.seed, selection=self.selection, order=self.train.order)

    def first_state(self, controller: Controller) -> TrainingState:
        """Return the state before the first step. Its log begins with that of the members before."""
        earlier = self.earlier
        return TrainingState(
            self.first_cursor(),
            controller,
            spent_usd=earlier.spent_usd,
            starts=[*earlier.starts],
            windows=[*earlier.windows],
        )

    def rows_sha256(self) -> str:
        """Return a digest that identifies these rows, in any format in which they have the same order."""
        counts = f" {len(self.train)} {len(self.validation)}" + " in blocks" * (self.train.order == 3)
        return digest(record_bytes(self.encoding) + f"{counts}{self.selection}".encode())


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """The final weights, and how training went. `uses_all_validation`: `val_loss` is over all rows of the
    validation split, whatever share of it the loop read."""

    weights: bytes
    val_loss: float | None
    weights_source: str
    stop_reason: str
    state: TrainingState
    data_wait_share: float
    depends_on_limits: bool
    inverse_temperature: float = 1.0
    uses_all_validation: bool = False
