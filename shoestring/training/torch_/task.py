"""What a training is given, and what it hands back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shoestring.config.adaptation import AdaptationLimits
from shoestring.config.guardrails import Guardrails
from shoestring.core.datasets import Encoding
from shoestring.core.interfaces import Clock, Store
from shoestring.core.receipt import AdaptationChange, SpendForecast
from shoestring.data.formats.readers import Rows
from shoestring.data.recipe import TrainSettings
from shoestring.spending.meter import Meter
from shoestring.training.curve import Metric
from shoestring.training.torch_.training_state import Course

NOTHING_GUARDED = Guardrails()


@dataclass(frozen=True, slots=True)
class Task:
    """What to train on, within what, and whom to tell."""

    run_id: str
    seed: int
    encoding: Encoding
    settings: TrainSettings
    train: Rows
    signal: Rows
    metric: Metric
    store: Store
    meter: Meter
    clock: Clock
    cores: int
    tell: Callable[[str, int, int, dict[str, float], tuple[AdaptationChange, ...], SpendForecast | None], None]
    stopping: Callable[[], bool]
    bounds: AdaptationLimits
    guardrails: Guardrails = NOTHING_GUARDED


@dataclass(frozen=True, slots=True)
class Trained:
    """The weights that were kept, as `torch.load(weights_only=True)` reads them, and how it went."""

    weights: bytes
    val_loss: float | None
    kept: str
    stopped: str
    course: Course
    stall_share: float
