"""The family of blends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoestring.core.types import Need
from shoestring.training.contracts import Learner, Predictor
from shoestring.training.families.blend.settings import BlendSettings
from shoestring.training.families.data_shape import DataShape
from shoestring.training.families.registry import family_of, whole_training

if TYPE_CHECKING:
    from shoestring.core.datasets import Encoding
    from shoestring.training.task import TrainedModel, TrainingTask


class BlendFamily:
    """The weighted predictions of several families. A `Family` whose members are trained one after the
    other."""

    settings_type = BlendSettings

    def __init__(self, settings: BlendSettings) -> None:
        self.settings = settings

    def train_need(self, need: Need, shape: DataShape) -> Need:
        """Return the need of the last member, which the money ends, after those before it are trained."""
        *earlier, last = self.settings.members_for(shape.rows)
        needs = [family_of(each).train_need(need, shape) for each in (*earlier, last)]
        setup_s = needs[-1].setup_s
        for settings in earlier:
            begins_s, us_per_row = whole_training(settings, shape)
            setup_s += begins_s + 1e-6 * us_per_row * shape.rows * self.settings.rows_share
        reads = "shuffled" if any(each.reads == "shuffled" for each in needs) else needs[-1].reads
        memory = max(each.memory_bytes_per_row for each in needs)
        return needs[-1].model_copy(
            update={"setup_s": round(setup_s, 3), "reads": reads, "memory_bytes_per_row": memory}
        )

    def evaluate_need(self, need: Need, shape: DataShape) -> Need:
        for each in self.settings.members_for(shape.rows):
            need = family_of(each).evaluate_need(need, shape)
        return need

    def learner(self, task: TrainingTask) -> Learner:
        raise TypeError("a blend has no learner: each of its members has one")

    def train(self, task: TrainingTask) -> TrainedModel:
        """Train the members that are not trained yet, and fit their weights."""
        from shoestring.training.families.blend.training import BlendTraining

        return BlendTraining(task, self.settings.members_for(len(task.train))).run()

    def predictor(self, encoding: Encoding, weights: bytes) -> Predictor:
        from shoestring.training.families.blend.predictor import BlendPredictor

        return BlendPredictor(encoding, weights)
