"""The model families, loaded late. One is added by a folder and a line of `shoestring.data.families`."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, ClassVar, Protocol

from shoestring.core.types import Need
from shoestring.data.families import FAMILIES, FamilySettings
from shoestring.training.contracts import Learner, Predictor
from shoestring.training.families.data_shape import DataShape

if TYPE_CHECKING:
    from shoestring.core.datasets import Encoding
    from shoestring.training.task import TrainingTask


class Family(Protocol):
    """A model family with the settings of a recipe.

    Its module imports no framework: routers read what it costs. Learner and predictor import theirs.
    """

    settings_type: ClassVar[type[FamilySettings]]

    def train_need(self, need: Need, shape: DataShape) -> Need:
        """Return the need of a training, by formula. `need`: the compiled one."""
        ...

    def evaluate_need(self, need: Need, shape: DataShape) -> Need:
        """Return the need of an evaluation that predicts with this model."""
        ...

    def learner(self, task: TrainingTask) -> Learner: ...

    def predictor(self, encoding: Encoding, weights: bytes) -> Predictor: ...


def family_of(settings: FamilySettings) -> Family:
    """Return the family that settings belong to."""
    found: Family = resolve_name(FAMILIES[settings.family])(settings)
    return found


def family_module(settings: FamilySettings) -> str:
    """Return the module whose imports reach all code of a family."""
    return FAMILIES[settings.family].partition(":")[0]
