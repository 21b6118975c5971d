"""What a training does about its own guardrails, after each look: it changes itself, goes back to where it was good, or leaves."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, NoReturn

from shoestring.config.guardrails import GuardrailAction
from shoestring.core.errors import StageStopped
from shoestring.training.control.guardrails import (
    MAX_ROLLBACKS,
    ROLLBACK_RATE_FACTOR,
    epoch_cost_violation,
    prior_loss,
    skill_score,
    skill_violation,
)
from shoestring.training.torch_.learner import copy_state

if TYPE_CHECKING:
    from shoestring.training.torch_.loop import Training


def enforce_skill_floor(training: Training, loss: float) -> bool:
    """After a look at signal validation. True: it went back to where it was good enough. Raises StageStopped."""
    course, floor = training.state, training.task.guardrails.skill
    if floor is None:
        return False
    at, skill = training.progress(), skill_score(loss, prior_loss(training.task.encoding))
    share = at.spent_s / (at.spent_s + at.left_s) if at.spent_s else 0.0
    why = skill_violation(floor, skill, course.samples / training.rows, share)
    if why is None:
        if floor.action == "roll-back" and skill >= floor.min:
            course.rollback_point = {
                "learner": copy_state(training.learner.state()),
                "batch_rows": training.batch_rows,
                "samples": course.samples,
            }
        return False
    if floor.action != "roll-back" or course.rollback_point is None or course.rollbacks >= MAX_ROLLBACKS:
        stop_training(training, floor.action, why)
    roll_back(training, course.rollback_point, why)
    return True


def roll_back(training: Training, safe: dict[str, object], why: str) -> None:
    """The weights, the optimiser and the batch of then, at a lower rate. The data goes on: no row is met again before its turn."""
    course = training.state
    training.learner.restore(copy_state(safe["learner"]))  # type: ignore[arg-type]
    training.batch_rows = course.batch_rows = int(safe["batch_rows"])  # type: ignore[call-overload]
    course.rollbacks, course.rate_factor = course.rollbacks + 1, course.rate_factor * ROLLBACK_RATE_FACTOR
    # A batch that was on trial is not what it is judged by any more.
    training.controller.drift = replace(
        training.controller.drift, trial_from_s_per_row=0.0, larger_batch_rejected=True, recent_s_per_row=()
    )
    training.record_change(
        "guardrail",
        f"at {course.samples:,} samples",
        f"at {safe['samples']:,}, {course.rate_factor:g} of the learning rate",
        why,
    )


def enforce_epoch_cap(training: Training) -> None:
    """Where signal validation is looked at, also when the look itself was not affordable. Raises StageStopped."""
    course, cap = training.state, training.task.guardrails.usd_per_epoch
    here: tuple[int, Decimal] = (course.samples, training.spent_usd())
    before, training.cost_mark = training.cost_mark, here
    # What comes before the first mark, or is just being changed, says nothing of what an epoch costs.
    if cap is None or before is None or here[0] <= before[0]:
        return
    why = epoch_cost_violation(cap, here[1] - before[1], (here[0] - before[0]) / training.rows)
    if why is None:
        return
    if cap.action == "rebalance":
        if (
            course.schedule.phase(training.progress()) == "decay"
            or not training.controller.drift.recent_s_per_row
        ):
            return
        if move := training.controller.reduce_cost(training.standing()):
            if training.apply(move):
                training.record_change(move.lever, move.before, move.after, why)
            training.cost_mark = None
            return
        why = f"{why}, with nothing left to change"
    stop_training(training, cap.action, why)


def stop_training(training: Training, action: GuardrailAction, why: str) -> NoReturn:
    """With a checkpoint. What is only paused is gone on with by the next try."""
    training.record_change("guardrail", "running", "stopped", why)
    training.save()
    raise StageStopped(
        f"{why}; the checkpoint is written", "stop-requested" if action == "pause" else "guardrail"
    )
