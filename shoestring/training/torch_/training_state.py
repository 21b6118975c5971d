"""Where a training is, and how that is put down and taken up again."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any

import torch

from shoestring.core.receipt import AdaptationChange
from shoestring.data.loading.shuffle import Cursor
from shoestring.data.recipe import TrainSettings
from shoestring.training.control.schedule import Schedule, Stall
from shoestring.training.curve import Point
from shoestring.training.model_record import Window
from shoestring.training.torch_.learner import Learner


@dataclass(slots=True)
class Course:
    """All that changes while a training goes on, but the learner itself. `seconds` and `spent_usd` are of earlier starts.

    `batch_rows` 0: as the recipe says. `safe`: where it was good enough last (`training/torch_/remedies.py`), to go back to; how often it
    has gone back, and what share of the learning rate that left it.
    """

    cursor: Cursor
    schedule: Schedule
    stall: Stall
    samples: int = 0
    seconds: float = 0.0
    spent_usd: Decimal = Decimal(0)
    windows: tuple[Window, ...] = ()
    points: list[Point] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    pointed: int = 0
    best_loss: float = float("inf")
    best_weights: dict[str, Any] | None = None
    plateau: dict[str, Any] | None = None
    batch_rows: int = 0
    look_share: float = 1.0
    changes: list[AdaptationChange] = field(default_factory=list)
    safe: dict[str, Any] | None = None
    rolled_back: int = 0
    rate_share: float = 1.0


def fresh(seed: int, settings: TrainSettings, rows: int) -> Course:
    return Course(
        Cursor(seed=seed), Schedule(end_samples=settings.max_epochs * rows), Stall(settings.patience)
    )


def put_down(course: Course, learner: Learner, seconds: float, spent_usd: Decimal) -> dict[str, Any]:
    """The state as tensors and plain values; seconds and dollars with those of this start."""
    return {
        "learner": learner.state(),
        "random": torch.get_rng_state(),
        "cursor": course.cursor.model_dump(),
        "schedule": asdict(course.schedule),
        "stall": asdict(course.stall),
        "samples": course.samples,
        "seconds": seconds,
        "spent_usd": str(spent_usd),
        "windows": [window.model_dump() for window in course.windows],
        "points": [point.model_dump(mode="json") for point in course.points],
        "losses": course.losses,
        "pointed": course.pointed,
        "best_loss": course.best_loss,
        "best_weights": course.best_weights,
        "plateau": course.plateau,
        "batch_rows": course.batch_rows,
        "look_share": course.look_share,
        "changes": [change.model_dump(mode="json") for change in course.changes],
        "safe": course.safe,
        "rolled_back": course.rolled_back,
        "rate_share": course.rate_share,
    }


def resumed(state: dict[str, Any], learner: Learner) -> Course:
    """Take a state up again, into `learner` and a course."""
    learner.restore(state["learner"])
    torch.set_rng_state(state["random"])
    return Course(
        cursor=Cursor(**state["cursor"]),
        schedule=Schedule(**state["schedule"]),
        stall=Stall(**state["stall"]),
        samples=state["samples"],
        seconds=state["seconds"],
        spent_usd=Decimal(state["spent_usd"]),
        windows=tuple(Window(**window) for window in state["windows"]),
        points=[Point(**point) for point in state["points"]],
        losses=state["losses"],
        pointed=state["pointed"],
        best_loss=state["best_loss"],
        best_weights=state["best_weights"],
        plateau=state["plateau"],
        batch_rows=state.get("batch_rows", 0),
        look_share=state.get("look_share", 1.0),
        changes=[AdaptationChange(**change) for change in state.get("changes", [])],
        safe=state.get("safe"),
        rolled_back=state.get("rolled_back", 0),
        rate_share=state.get("rate_share", 1.0),
    )


def why_it_stopped(course: Course, settings: TrainSettings) -> str:
    if course.schedule.decaying and course.samples >= course.schedule.end_samples:
        return "signal validation stalled; the rest of the money is handed back"
    if course.samples >= course.schedule.end_samples:
        return f"all {settings.max_epochs} epochs are done"
    return (
        "the budget, or the deadline, is spent"
        if course.samples
        else "the budget, or the deadline, left no time for a first step"
    )
