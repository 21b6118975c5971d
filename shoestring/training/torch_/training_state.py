"""Where a training is, and how that is put down and taken up again."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any

import torch

from shoestring.core.receipt import AdaptationChange
from shoestring.data.loading.shuffle import SampleCursor
from shoestring.data.recipe import TrainSettings
from shoestring.training.control.schedule import EarlyStopping, LearningRateSchedule
from shoestring.training.curve import CurvePoint
from shoestring.training.model_record import SampleRange
from shoestring.training.torch_.learner import Learner


@dataclass(slots=True)
class TrainingState:
    """All that changes while a training goes on, but the learner itself. `seconds` and `spent_usd` are of earlier starts.

    `batch_rows` 0: as the recipe says. `safe`: where it was good enough last (`training/torch_/remedies.py`), to go back to; how often it
    has gone back, and what share of the learning rate that left it.
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


def new_state(seed: int, settings: TrainSettings, rows: int) -> TrainingState:
    return TrainingState(
        SampleCursor(seed=seed),
        LearningRateSchedule(end_samples=settings.max_epochs * rows),
        EarlyStopping(settings.patience),
    )


def to_checkpoint(
    course: TrainingState, learner: Learner, seconds: float, spent_usd: Decimal
) -> dict[str, Any]:
    """The state as tensors and plain values; seconds and dollars with those of this start."""
    return {
        "learner": learner.state(),
        "random": torch.get_rng_state(),
        "cursor": course.cursor.model_dump(),
        "schedule": asdict(course.schedule),
        "stall": asdict(course.early_stopping),
        "samples": course.samples,
        "seconds": seconds,
        "spent_usd": str(spent_usd),
        "windows": [window.model_dump() for window in course.sample_ranges],
        "points": [point.model_dump(mode="json") for point in course.points],
        "losses": course.recent_losses,
        "pointed": course.last_point_samples,
        "best_loss": course.best_loss,
        "best_weights": course.best_weights,
        "plateau": course.plateau_learner,
        "batch_rows": course.batch_rows,
        "look_share": course.validation_share,
        "changes": [change.model_dump(mode="json") for change in course.changes],
        "safe": course.rollback_point,
        "rolled_back": course.rollbacks,
        "rate_share": course.rate_factor,
    }


def from_checkpoint(state: dict[str, Any], learner: Learner) -> TrainingState:
    """Take a state up again, into `learner` and a course."""
    learner.restore(state["learner"])
    torch.set_rng_state(state["random"])
    return TrainingState(
        cursor=SampleCursor(**state["cursor"]),
        schedule=LearningRateSchedule(**state["schedule"]),
        early_stopping=EarlyStopping(**state["stall"]),
        samples=state["samples"],
        training_s=state["seconds"],
        spent_usd=Decimal(state["spent_usd"]),
        sample_ranges=tuple(SampleRange(**window) for window in state["windows"]),
        points=[CurvePoint(**point) for point in state["points"]],
        recent_losses=state["losses"],
        last_point_samples=state["pointed"],
        best_loss=state["best_loss"],
        best_weights=state["best_weights"],
        plateau_learner=state["plateau"],
        batch_rows=state.get("batch_rows", 0),
        validation_share=state.get("look_share", 1.0),
        changes=[AdaptationChange(**change) for change in state.get("changes", [])],
        rollback_point=state.get("safe"),
        rollbacks=state.get("rolled_back", 0),
        rate_factor=state.get("rate_share", 1.0),
    )


def stop_reason(course: TrainingState, settings: TrainSettings) -> str:
    if course.schedule.decaying and course.samples >= course.schedule.end_samples:
        return "signal validation stalled; the rest of the money is handed back"
    if course.samples >= course.schedule.end_samples:
        return f"all {settings.max_epochs} epochs are done"
    return (
        "the budget, or the deadline, is spent"
        if course.samples
        else "the budget, or the deadline, left no time for a first step"
    )
