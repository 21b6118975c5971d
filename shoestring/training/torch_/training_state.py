"""The state of a training, and its conversion to and from a checkpoint."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from typing import Any

import torch

from shoestring.core.receipt import AdaptationChange
from shoestring.data.loading.shuffle import SampleCursor
from shoestring.training.contracts import Snapshot
from shoestring.training.control.controller import Controller, Mark
from shoestring.training.control.schedule import EarlyStopping, LearningRateSchedule
from shoestring.training.curve import CurvePoint
from shoestring.training.model_record import SampleRange
from shoestring.training.torch_.learner import Learner


@dataclass(slots=True)
class TrainingState:
    """Everything that changes during a training, except the learner.

    `training_s` and `spent_usd` are those of earlier starts. `snapshots` are the kept states, by name.
    `is_shaped_by_budget`: money or time changed a learning rate or left out a validation.
    """

    cursor: SampleCursor
    controller: Controller
    samples: int = 0
    training_s: float = 0.0
    spent_usd: Decimal = Decimal(0)
    sample_ranges: tuple[SampleRange, ...] = ()
    points: list[CurvePoint] = field(default_factory=list)
    recent_losses: list[float] = field(default_factory=list)
    last_point_samples: int = 0
    snapshots: dict[Snapshot, dict[str, Any]] = field(default_factory=dict)
    changes: list[AdaptationChange] = field(default_factory=list)
    is_shaped_by_budget: bool = False


PLAIN_FIELDS = ("samples", "recent_losses", "last_point_samples", "is_shaped_by_budget")
CONTROLLER_FIELDS = (
    "best_loss",
    "batch_rows",
    "validation_share",
    "rollbacks",
    "rate_factor",
    "rows_per_s",
)
"""Fields of the state and of its controller that a checkpoint holds as they are."""


def to_checkpoint(
    state: TrainingState, learner: Learner, training_s: float, spent_usd: Decimal
) -> dict[str, Any]:
    """Return the state as tensors and plain values. `training_s` and `spent_usd` include this start."""
    controller, back = state.controller, state.controller.rollback_to
    return {
        "learner": learner.state(),
        "random_state": torch.get_rng_state(),
        "cursor": state.cursor.model_dump(),
        "schedule": asdict(controller.schedule),
        "early_stopping": asdict(controller.early_stopping),
        "best_weights": state.snapshots.get("best"),
        "plateau_learner": state.snapshots.get("plateau"),
        "rollback_point": None
        if back is None
        else {
            "learner": state.snapshots["rollback"],
            "batch_rows": back.batch_rows,
            "samples": back.samples,
        },
        "training_s": training_s,
        "spent_usd": str(spent_usd),
        "sample_ranges": [each.model_dump() for each in state.sample_ranges],
        "points": [point.model_dump(mode="json") for point in state.points],
        "changes": [change.model_dump(mode="json") for change in state.changes],
        **{name: getattr(state, name) for name in PLAIN_FIELDS},
        **{name: getattr(controller, name) for name in CONTROLLER_FIELDS},
    }


def from_checkpoint(saved: dict[str, Any], learner: Learner, controller: Controller) -> TrainingState:
    """Restore a checkpoint: the learner and the random state in place, the rest as the returned state.

    `controller`: the controller of a new training.
    """
    learner.restore(saved["learner"])
    torch.set_rng_state(saved["random_state"])
    point = saved["rollback_point"]
    snapshots: dict[Snapshot, dict[str, Any] | None] = {
        "best": saved["best_weights"],
        "plateau": saved["plateau_learner"],
        "rollback": point and point["learner"],
    }
    # Zero, or a missing field of schema version 3: as a new training has it.
    known = {name: saved[name] for name in CONTROLLER_FIELDS if saved.get(name)}
    return TrainingState(
        # A checkpoint that names no order is of version 0.3 or earlier.
        cursor=SampleCursor(**{"order": 1} | saved["cursor"]),
        controller=replace(
            controller,
            schedule=LearningRateSchedule(**saved["schedule"]),
            early_stopping=EarlyStopping(**saved["early_stopping"]),
            rollback_to=Mark(point["samples"], point["batch_rows"]) if point else None,
            **known,
        ),
        training_s=saved["training_s"],
        spent_usd=Decimal(saved["spent_usd"]),
        sample_ranges=tuple(SampleRange(**each) for each in saved["sample_ranges"]),
        points=[CurvePoint(**point) for point in saved["points"]],
        changes=[AdaptationChange(**change) for change in saved["changes"]],
        snapshots={name: kept for name, kept in snapshots.items() if kept is not None},
        **{name: saved[name] for name in PLAIN_FIELDS if name in saved},
    )


def depends_on_limits(state: TrainingState) -> bool:
    """Return True if more money or time, or no guardrail, would have let the training go on or learn faster.

    Levers that only save time (a larger batch inside its flat range, validation on a share of the rows) do
    not count: the training ended by itself all the same.
    """
    is_cut_short = state.samples < state.controller.schedule.end_samples
    is_guarded = any(change.lever == "guardrail" for change in state.changes)
    return is_cut_short or is_guarded or state.is_shaped_by_budget


def stop_reason(state: TrainingState) -> str:
    setup, schedule = state.controller.setup, state.controller.schedule
    if schedule.decaying and state.samples >= schedule.end_samples:
        return "the validation loss stopped improving; the rest of the budget is not used"
    if state.samples >= schedule.end_samples:
        return f"all {setup.max_samples // setup.epoch_rows} epochs are done"
    return (
        "the budget or the deadline was reached"
        if state.samples
        else "the budget or the deadline left no time for a first step"
    )
