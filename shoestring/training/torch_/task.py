"""The input and the result of a training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shoestring.config.adaptation import AdaptationLimits
from shoestring.config.guardrails import Guardrails
from shoestring.core.datasets import Encoding
from shoestring.core.interfaces import Clock, Store
from shoestring.core.receipt import AdaptationChange, SpendForecast, TimeShares
from shoestring.data.loading.samples import SampleReader
from shoestring.data.recipe import TrainSettings
from shoestring.spending.meter import Meter
from shoestring.training.curve import LossMetric
from shoestring.training.torch_.training_state import TrainingState

NO_GUARDRAILS = Guardrails()


@dataclass(frozen=True, slots=True)
class TrainingTask:
    """The data, the settings, the limits and the callbacks of one training.

    `planned_samples` are those that the decision expects its money and time to buy; None: no limit is known.
    `attempt` is the number of the attempt, and `selection` the digest of the rows of `train` if they are not
    all of the split; its checkpoints name both.
    """

    run_id: str
    seed: int
    encoding: Encoding
    settings: TrainSettings
    train: SampleReader
    validation: SampleReader
    metric: LossMetric
    store: Store
    meter: Meter
    clock: Clock
    cores: int
    report_progress: Callable[
        [
            str,
            int,
            int,
            dict[str, float],
            tuple[AdaptationChange, ...],
            SpendForecast | None,
            TimeShares | None,
        ],
        None,
    ]
    should_stop: Callable[[], bool]
    adaptation_limits: AdaptationLimits
    guardrails: Guardrails = NO_GUARDRAILS
    planned_samples: int | None = None
    attempt: int = 1
    selection: str = ""


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """The final weights, readable by `torch.load(weights_only=True)`, and how training went."""

    weights: bytes
    val_loss: float | None
    weights_source: str
    stop_reason: str
    state: TrainingState
    data_wait_share: float
