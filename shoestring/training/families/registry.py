"""The model families, loaded late. One is added by a folder and a line of `shoestring.data.families`."""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

from shoestring.core.types import Need
from shoestring.data.families import FAMILIES, FamilySettings
from shoestring.training.contracts import Learner, Predictor
from shoestring.training.families.data_shape import DataShape

if TYPE_CHECKING:
    from shoestring.core.datasets import Encoding
    from shoestring.training.task import TrainedModel, TrainingTask


MANY_ROWS = 1 << 60


class Family(Protocol):
    """A model family with the settings of a recipe.

    Its module imports no framework: routers read what it costs. Learner and predictor import theirs.
    """

    settings_type: ClassVar[type[FamilySettings]]

    onnx_converter: ClassVar[str]
    """What adds a predictor to a graph of ONNX: "module:function", called as `Converter`. It is a name, as
    its code is none that a stage runs. Empty: there is none."""

    def train_need(self, need: Need, shape: DataShape) -> Need:
        """Return the need of a training, by formula. `need`: the compiled one."""
        ...

    def evaluate_need(self, need: Need, shape: DataShape) -> Need:
        """Return the need of an evaluation, or of new predictions, with this model."""
        ...

    def learner(self, task: TrainingTask) -> Learner: ...

    def predictor(self, encoding: Encoding, weights: bytes, device: str = "cpu") -> Predictor:
        """Return what predicts with a model. `device`: of a network, as PyTorch names it. A family whose
        needs have no GPU gets none but cpu."""
        ...

    def files(self, weights: bytes) -> Mapping[str, bytes]:
        """Return the weights as the files of a model's folder, by name, each in a format that other programs
        read. None of them is a pickle."""
        ...

    def from_files(self, files: Mapping[str, bytes]) -> bytes:
        """Return the weights that `files` took apart. Raises KeyError for a file that is missing."""
        ...


OwnSettings = TypeVar("OwnSettings", bound=FamilySettings)


class OneFile(Generic[OwnSettings]):
    """What a family need not write whose weights are one file."""

    weights_file: ClassVar[str]
    onnx_converter: ClassVar[str] = ""

    def __init__(self, settings: OwnSettings) -> None:
        self.settings = settings

    def files(self, weights: bytes) -> Mapping[str, bytes]:
        return {self.weights_file: weights}

    def from_files(self, files: Mapping[str, bytes]) -> bytes:
        return files[self.weights_file]


class Ensemble(Family, Protocol):
    """A family without a learner of its own, whose members are trained by theirs."""

    def train(self, task: TrainingTask) -> TrainedModel: ...


def family_of(settings: FamilySettings) -> Family:
    """Return the family that settings belong to."""
    found: Family = resolve_name(FAMILIES[settings.family])(settings)
    return found


def whole_training(settings: FamilySettings, shape: DataShape) -> tuple[float, float]:
    """Return the seconds of a reference core before the first sample of a training that ends by itself, and
    the microseconds of the rest for each row."""
    need = family_of(settings).train_need(Need(stage="train"), shape)
    return need.setup_s, need.cpu_us_per_row * settings.expected_epochs


def family_modules(settings: FamilySettings) -> tuple[str, ...]:
    """Return the modules whose imports reach all code of a family, and of each that may be a member of it."""
    members = {each.family for rows in (0, MANY_ROWS) for each in settings.members_for(rows)}
    return tuple(FAMILIES[name].partition(":")[0] for name in (settings.family, *sorted(members)))
