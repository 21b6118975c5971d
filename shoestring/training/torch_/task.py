"""What a training is given, and what it hands back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shoestring.bounds import Bounds, Guardrails
from shoestring.data.formats import Rows
from shoestring.data.recipe import TrainSettings
from shoestring.model import Encoding
from shoestring.receipt import Change, Forecast
from shoestring.seams import Clock, Store
from shoestring.spending.meter import Meter
from shoestring.training.curve import Metric
from shoestring.training.torch_.course import Course

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
    tell: Callable[[str, int, int, dict[str, float], tuple[Change, ...], Forecast | None], None]
    stopping: Callable[[], bool]
    bounds: Bounds
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
