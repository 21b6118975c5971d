"""Train a model of any family."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from shoestring.training.families.registry import Ensemble, family_of
from shoestring.training.loop import Training
from shoestring.training.losses.combination import combine, mean_loss
from shoestring.training.losses.fitting import FIT_S, fit_weights
from shoestring.training.session import PREDICTING
from shoestring.training.task import TrainedModel, TrainingTask


def train_family(task: TrainingTask) -> TrainedModel:
    """Train a model; of a blend, one member after the other. Raises what `Training.run` raises."""
    family = family_of(task.settings)
    if task.settings.members_for(len(task.train)):
        return cast(Ensemble, family).train(task)
    training = Training(task, family.learner(task))
    trained = training.run()
    if not task.fits_temperature or not trained.state.samples:
        return trained
    costs = training.measured.costs
    needed_s = FIT_S + PREDICTING * costs.whole_validation_s + costs.writing_s
    if task.meter.seconds_left(task.clock.monotonic_s()) < needed_s:
        return replace(trained, depends_on_limits=True)
    return with_temperature(task, trained)


def with_temperature(task: TrainingTask, trained: TrainedModel) -> TrainedModel:
    """Return the model with the temperature of its probabilities, fitted on validation."""
    predictor = family_of(task.settings).predictor(task.encoding, trained.weights, task.device)
    rows = task.validation.scan(predictor.rows_at_once)
    predicted = np.concatenate([predictor.predict(each) for each in rows])
    target_B, weight_B = task.validation.targets()
    weights = fit_weights([predicted], target_B, task.encoding, task.validation.unit_count, weight_B)
    loss = mean_loss(combine(weights, [predicted], task.encoding), target_B, task.encoding, weight_B)
    return replace(trained, val_loss=loss, inverse_temperature=float(weights[0]), uses_all_validation=True)
