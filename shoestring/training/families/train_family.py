"""Train a model of any family."""

from __future__ import annotations

from typing import cast

from shoestring.training.families.registry import Ensemble, family_of
from shoestring.training.loop import Training
from shoestring.training.task import TrainedModel, TrainingTask


def train_family(task: TrainingTask) -> TrainedModel:
    """Train a model; of a blend, one member after the other. Raises what `Training.run` raises."""
    family = family_of(task.settings)
    if task.settings.members_for(len(task.train)):
        return cast(Ensemble, family).train(task)
    return Training(task, family.learner(task)).run()
