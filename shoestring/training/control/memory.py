"""The memory of a controller over a restart.

The forecast is not remembered: it is about the machine and the price of one start.
"""

from __future__ import annotations

import math
from dataclasses import replace

from pydantic import Field

from shoestring.core.record import Record
from shoestring.training.control.batch_size import BatchMoves
from shoestring.training.control.controller import Controller, Mark
from shoestring.training.control.noise import GradientNoise
from shoestring.training.control.schedule import LearningRateSchedule


class ControllerMemory(Record):
    """The decisions of a training that the next start continues with. Losses are null before the first
    validation."""

    schedule: LearningRateSchedule
    plateau_loss: float | None = Field(description="the best validation loss of the plateau")
    validations_without_gain: int
    best_loss: float | None
    batch_rows: int
    validation_share: float
    rate_factor: float
    rollbacks: int
    divergences: int = Field(0, exclude_if=lambda count: not count)
    rollback_to: Mark | None
    rows_per_s: float
    noise: GradientNoise | None = Field(None, description="null: an earlier version has measured none")
    moves: BatchMoves | None = Field(None, description="null: an earlier version has made none")


def remember(controller: Controller, rows_per_s: float) -> ControllerMemory:
    """Return what the next start continues with. `rows_per_s`: the throughput that its schedule assumes."""
    stopping = controller.early_stopping
    return ControllerMemory(
        schedule=controller.schedule,
        plateau_loss=_finite(stopping.best_loss),
        validations_without_gain=stopping.evaluations_without_gain,
        best_loss=_finite(controller.best_loss),
        batch_rows=controller.batch_rows,
        validation_share=controller.validation_share,
        rate_factor=controller.rate_factor,
        rollbacks=controller.rollbacks,
        divergences=controller.divergences,
        rollback_to=controller.rollback_to,
        rows_per_s=rows_per_s,
        noise=controller.noise,
        moves=controller.moves,
    )


def recall(controller: Controller, memory: ControllerMemory) -> Controller:
    """Return the controller of a new start with the memory of an earlier one."""
    best = math.inf if memory.plateau_loss is None else memory.plateau_loss
    return replace(
        controller,
        schedule=memory.schedule,
        early_stopping=replace(
            controller.early_stopping,
            best_loss=best,
            evaluations_without_gain=memory.validations_without_gain,
        ),
        best_loss=math.inf if memory.best_loss is None else memory.best_loss,
        batch_rows=memory.batch_rows,
        validation_share=memory.validation_share,
        rate_factor=memory.rate_factor,
        rollbacks=memory.rollbacks,
        divergences=memory.divergences,
        rollback_to=memory.rollback_to,
        rows_per_s=memory.rows_per_s,
        noise=memory.noise or controller.noise,
        moves=memory.moves or BatchMoves(memory.batch_rows),
    )


def _finite(loss: float) -> float | None:
    return loss if math.isfinite(loss) else None
