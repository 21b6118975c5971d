"""The family of blends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from shoestring.core.types import Need
from shoestring.data.families import FamilySettings
from shoestring.training.contracts import Learner, Predictor
from shoestring.training.families.blend.settings import BlendSettings
from shoestring.training.families.blend.stored import put_together, taken_apart
from shoestring.training.families.data_shape import DataShape
from shoestring.training.families.gpu_needs import NO_GPU
from shoestring.training.families.registry import family_of, whole_training

if TYPE_CHECKING:
    from shoestring.core.datasets import Encoding
    from shoestring.training.task import TrainedModel, TrainingTask

BLEND_FILE = "blend.json"
"""In a model's folder: the settings and the weights of the members, whose own files are in folders."""


class BlendFamily:
    """The weighted predictions of several families. A `Family` whose members are trained one after the
    other."""

    settings_type = BlendSettings
    onnx_converter = "shoestring.training.families.blend.onnx_blend:add_blend"

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
            update={"setup_s": round(setup_s, 3), "reads": reads, "memory_bytes_per_row": memory, **NO_GPU}
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

    def predictor(self, encoding: Encoding, weights: bytes, device: str = "cpu") -> Predictor:
        from shoestring.training.families.blend.predictor import BlendPredictor

        return BlendPredictor(encoding, weights)

    def files(self, weights: bytes) -> Mapping[str, bytes]:
        blend, members = taken_apart(weights)
        return {
            BLEND_FILE: blend,
            **{
                f"{_folder(number, settings)}/{name}": data
                for number, (settings, own) in enumerate(members, 1)
                for name, data in family_of(settings).files(own).items()
            },
        }

    def from_files(self, files: Mapping[str, bytes]) -> bytes:
        def member(number: int, settings: FamilySettings) -> bytes:
            start = f"{_folder(number, settings)}/"
            own = {name.removeprefix(start): data for name, data in files.items() if name.startswith(start)}
            return family_of(settings).from_files(own)

        return put_together(files[BLEND_FILE], member)


def _folder(number: int, settings: FamilySettings) -> str:
    return f"{number}-{settings.family}"
