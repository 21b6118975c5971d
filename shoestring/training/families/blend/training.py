"""The training of a blend: its members one after the other, by the same loop, then the weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from shoestring.data.families import LearnerSettings
from shoestring.spending.meter import MeterShare
from shoestring.training.checkpoints import Checkpoints, TrainedMember
from shoestring.training.contracts import Learner, TrainingProgress
from shoestring.training.families.blend.stored import blend_bytes
from shoestring.training.families.registry import family_of
from shoestring.training.loop import Training
from shoestring.training.losses.combination import combine, equal_weights, mean_loss
from shoestring.training.losses.fitting import FIT_S, fit_weights
from shoestring.training.losses.scores import Array
from shoestring.training.task import TrainedModel, TrainingTask
from shoestring.training.training_state import NO_MEMBERS, EarlierMembers, saved_members

EARLIER_SHARE = 0.5
"""The share of the time left that each member but the last may use."""

SLOWER = 2.0
"""How many times as long as the first time predictions may take."""


class BlendTraining:
    """One start of the training of a blend."""

    def __init__(self, task: TrainingTask, settings: Sequence[LearnerSettings]) -> None:
        self._task, self._settings = task, settings
        self._predictions = list[Array]()
        self._predicting_s = 0.0
        self._resumed, self._resumed_s = 0, 0.0

    def run(self) -> TrainedModel:
        """Train the members that are not trained yet, and fit the weights. Raises what `Training.run`
        raises."""
        earlier = self._saved()
        for number, weights in enumerate(earlier.weights):
            self._predict(number, weights)
        for number in range(len(earlier.members), len(self._settings) - 1):
            training = Training(*self._start(number, earlier))
            trained = training.run()
            state = training.state
            member = TrainedMember(
                family=self._settings[number].family,
                training_s=state.training_s,
                spent_usd=training.measured.spent_usd(),
                depends_on_limits=trained.depends_on_limits,
            )
            earlier = EarlierMembers(
                members=(*earlier.members, member),
                weights=(*earlier.weights, trained.weights),
                starts=tuple(state.starts),
                windows=tuple(state.windows),
                spent_usd=state.spent_usd,
            )
            self._predict(number, trained.weights)
        last = Training(*self._start(len(self._settings) - 1, earlier))
        return self._combined(earlier, last.run())

    def _saved(self) -> EarlierMembers:
        task = self._task
        saved, _ = Checkpoints(task.store, task.run_id, task.attempt).load(task.rows_sha256())
        if saved is None:
            return NO_MEMBERS
        checkpoint = saved.checkpoint
        self._resumed, self._resumed_s = len(checkpoint.members), checkpoint.training_s
        return saved_members(checkpoint, saved.parts)

    def _start(self, number: int, earlier: EarlierMembers) -> tuple[TrainingTask, Learner]:
        """Return the training of a member, and its learner. The seconds of a member that earlier starts used
        count: otherwise each start would give it half of the rest again."""
        task, settings, began_s = self._task, self._settings[number], self._task.clock.monotonic_s()
        is_last = number == len(self._settings) - 1
        share = 1.0 if is_last else EARLIER_SHARE
        if number == self._resumed and not is_last:
            began_s -= self._resumed_s
        own = replace(
            task,
            settings=settings,
            meter=MeterShare(task.meter, began_s, share, self._fit_s()),
            planned_samples=task.planned_samples if is_last else None,
            report_progress=task.report_progress if is_last else partial(self._report, settings.family),
            is_member=True,
            earlier=earlier,
        )
        return own, family_of(settings).learner(own)

    def _report(self, family: str, progress: TrainingProgress) -> None:
        """Report the progress of a member before the last: no sample of the last one is trained yet."""
        phase = f"{family}, {progress.phase}"
        self._task.report_progress(TrainingProgress(phase, 0, 0, progress.best_loss, progress.changes))

    def _fit_s(self) -> float:
        """Return the seconds to reserve for the predictions of the last member, and for the fit."""
        return FIT_S + SLOWER * self._predicting_s

    def _predict(self, number: int, weights: bytes) -> None:
        """Add a member's predictions of the validation rows."""
        task, began_s = self._task, self._task.clock.monotonic_s()
        predictor = family_of(self._settings[number]).predictor(task.encoding, weights)
        batches = task.validation.scan(predictor.rows_at_once)
        self._predictions.append(np.concatenate([predictor.predict(samples) for samples in batches]))
        self._predicting_s = max(self._predicting_s, task.clock.monotonic_s() - began_s)

    def _combined(self, earlier: EarlierMembers, last: TrainedModel) -> TrainedModel:
        """Return the blend. Without time for its weights they are equal, and it is not validated. A last
        member without a step has none then: it predicts the same for all rows."""
        task, names = self._task, [each.family for each in self._settings]
        without_a_step = 0 if last.state.samples else 1
        weights, loss = np.pad(equal_weights(len(names) - without_a_step), (0, without_a_step)), None
        if task.meter.seconds_left(task.clock.monotonic_s()) >= self._fit_s():
            self._predict(len(names) - 1, last.weights)
            (target, rows), units = task.validation.targets(), task.validation.unit_count
            weights = fit_weights(self._predictions, target, task.encoding, units, rows)
            loss = mean_loss(combine(weights, self._predictions, task.encoding), target, task.encoding, rows)
        last.state.training_s += earlier.training_s
        shares = ", ".join(f"{name} {weight:.2f}" for name, weight in zip(names, weights, strict=True))
        return replace(
            last,
            weights=blend_bytes(self._settings, (*earlier.weights, last.weights), weights.tolist()),
            val_loss=loss,
            uses_all_validation=loss is not None,
            weights_source=f"blend of {shares}",
            depends_on_limits=last.depends_on_limits
            or any(each.depends_on_limits for each in earlier.members),
        )
