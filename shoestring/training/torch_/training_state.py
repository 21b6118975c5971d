"""The state of a training, and its conversion to and from a checkpoint."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any

import torch

from shoestring.core.receipt import AdaptationChange
from shoestring.data.loading.shuffle import SampleCursor
from shoestring.data.recipe import TrainSettings
from shoestring.training.control.schedule import EarlyStopping, LearningRateSchedule, planned_warmup_samples
from shoestring.training.curve import CurvePoint
from shoestring.training.model_record import SampleRange
from shoestring.training.torch_.learner import Learner


@dataclass(slots=True)
class TrainingState:
    """Everything that changes during a training, except the learner.

    `training_s` and `spent_usd` are those of earlier starts. `batch_rows` 0 means the recipe's batch
    size. `rollback_point` is the last state that passed the skill guardrail
    (`torch_/guardrail_actions.py`), `rollbacks` the number of times training went back to it, and
    `rate_factor` the share of the learning rate that is left after them. `rows_per_s` is the throughput that
    the schedule assumed at the last checkpoint; 0: there was none. `is_shaped_by_budget`: money or time
    changed a learning rate or left out a validation.
    """

    cursor: SampleCursor
    schedule: LearningRateSchedule
    early_stopping: EarlyStopping
    samples: int = 0
    training_s: float = 0.0
    spent_usd: Decimal = Decimal(0)
    sample_ranges: tuple[SampleRange, ...] = ()
    points: list[CurvePoint] = field(default_factory=list)
    recent_losses: list[float] = field(default_factory=list)
    last_point_samples: int = 0
    best_loss: float = float("inf")
    best_weights: dict[str, Any] | None = None
    plateau_learner: dict[str, Any] | None = None
    batch_rows: int = 0
    validation_share: float = 1.0
    changes: list[AdaptationChange] = field(default_factory=list)
    rollback_point: dict[str, Any] | None = None
    rollbacks: int = 0
    rate_factor: float = 1.0
    rows_per_s: float = 0.0
    is_shaped_by_budget: bool = False


PLAIN_FIELDS = (
    "samples",
    "recent_losses",
    "last_point_samples",
    "best_loss",
    "best_weights",
    "plateau_learner",
    "batch_rows",
    "validation_share",
    "rollback_point",
    "rollbacks",
    "rate_factor",
    "rows_per_s",
    "is_shaped_by_budget",
)
"""Fields that a checkpoint holds as they are: numbers, tensors, and lists and dictionaries of them."""


def new_state(
    cursor: SampleCursor, settings: TrainSettings, rows: int, planned_samples: int | None
) -> TrainingState:
    """Return the state before the first step. `planned_samples` None: no budget limits the samples."""
    end_samples = settings.max_epochs * rows
    warmup_samples = planned_warmup_samples(rows, planned_samples or end_samples)
    return TrainingState(
        cursor,
        LearningRateSchedule(end_samples=end_samples, warmup_samples=warmup_samples),
        EarlyStopping(settings.patience),
    )


def to_checkpoint(
    state: TrainingState, learner: Learner, training_s: float, spent_usd: Decimal
) -> dict[str, Any]:
    """Return the state as tensors and plain values. `training_s` and `spent_usd` include this start."""
    return {
        "learner": learner.state(),
        "random_state": torch.get_rng_state(),
        "cursor": state.cursor.model_dump(),
        "schedule": asdict(state.schedule),
        "early_stopping": asdict(state.early_stopping),
        "training_s": training_s,
        "spent_usd": str(spent_usd),
        "sample_ranges": [each.model_dump() for each in state.sample_ranges],
        "points": [point.model_dump(mode="json") for point in state.points],
        "changes": [change.model_dump(mode="json") for change in state.changes],
        **{name: getattr(state, name) for name in PLAIN_FIELDS},
    }


def from_checkpoint(saved: dict[str, Any], learner: Learner) -> TrainingState:
    """Restore a checkpoint: the learner and the random state in place, the rest as the returned state."""
    learner.restore(saved["learner"])
    torch.set_rng_state(saved["random_state"])
    return TrainingState(
        # A checkpoint that names no order is of version 0.3 or earlier.
        cursor=SampleCursor(**{"order": 1} | saved["cursor"]),
        schedule=LearningRateSchedule(**saved["schedule"]),
        early_stopping=EarlyStopping(**saved["early_stopping"]),
        training_s=saved["training_s"],
        spent_usd=Decimal(saved["spent_usd"]),
        sample_ranges=tuple(SampleRange(**each) for each in saved["sample_ranges"]),
        points=[CurvePoint(**point) for point in saved["points"]],
        changes=[AdaptationChange(**change) for change in saved["changes"]],
        # A checkpoint of schema version 3 has neither rows_per_s nor is_shaped_by_budget.
        **{name: saved[name] for name in PLAIN_FIELDS if name in saved},
    )


def depends_on_limits(state: TrainingState) -> bool:
    """Return True if more money or time, or no guardrail, would have let the training go on or learn faster.

    Levers that only save time (a larger batch inside its flat range, validation on a share of the rows) do
    not count: the training ended by itself all the same.
    """
    is_cut_short = state.samples < state.schedule.end_samples
    is_guarded = any(change.lever == "guardrail" for change in state.changes)
    return is_cut_short or is_guarded or state.is_shaped_by_budget


def stop_reason(state: TrainingState, settings: TrainSettings) -> str:
    if state.schedule.decaying and state.samples >= state.schedule.end_samples:
        return "the validation loss stopped improving; the rest of the budget is not used"
    if state.samples >= state.schedule.end_samples:
        return f"all {settings.max_epochs} epochs are done"
    return (
        "the budget or the deadline was reached"
        if state.samples
        else "the budget or the deadline left no time for a first step"
    )
