"""Enforce a training's guardrails after each validation: change a setting, roll back, or stop."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any, NoReturn

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
from shoestring.training.torch_.adaptation import apply_change, position
from shoestring.training.torch_.learner import copy_state
from shoestring.training.torch_.session import TrainingSession


def enforce_skill_floor(session: TrainingSession, loss: float) -> bool:
    """Check the skill guardrail after a validation with this loss.

    Returns True when the training rolled back. Raises StageStopped.
    """
    state, floor = session.state, session.task.guardrails.skill
    if floor is None:
        return False
    at, skill = session.progress(), skill_score(loss, prior_loss(session.task.encoding))
    share = at.spent_s / (at.spent_s + at.left_s) if at.spent_s else 0.0
    reason = skill_violation(floor, skill, state.samples / session.rows, share)
    if reason is None:
        if floor.action == "roll-back" and skill >= floor.min:
            state.rollback_point = {
                "learner": copy_state(session.learner.state()),
                "batch_rows": session.batch_rows,
                "samples": state.samples,
            }
        return False
    if floor.action != "roll-back" or state.rollback_point is None or state.rollbacks >= MAX_ROLLBACKS:
        stop_training(session, floor.action, reason)
    roll_back(session, state.rollback_point, reason)
    return True


def roll_back(session: TrainingSession, point: dict[str, Any], reason: str) -> None:
    """Restore the weights, the optimizer and the batch size of a rollback point, at a lower learning rate.

    The data does not go back: every row is still trained on once an epoch.
    """
    state = session.state
    session.learner.restore(copy_state(point["learner"]))
    session.batch_rows = state.batch_rows = int(point["batch_rows"])
    state.rollbacks, state.rate_factor = state.rollbacks + 1, state.rate_factor * ROLLBACK_RATE_FACTOR
    # A trial of a larger batch ends here: its measurements no longer apply.
    session.controller.tracker = replace(
        session.controller.tracker, trial_from_s_per_row=0.0, larger_batch_rejected=True, recent_s_per_row=()
    )
    session.record_change(
        "guardrail",
        f"weights at {state.samples:,} samples",
        f"weights at {point['samples']:,} samples, learning rate times {state.rate_factor:g}",
        reason,
    )


def enforce_epoch_cap(session: TrainingSession) -> None:
    """Check the cost of an epoch at every validation point, also when the validation was skipped. Raises
    StageStopped."""
    state, cap = session.state, session.task.guardrails.usd_per_epoch
    mark: tuple[int, Decimal] = (state.samples, session.spent_usd())
    before, session.cost_mark = session.cost_mark, mark
    # Without an earlier mark, or right after a change, the cost of an epoch is unknown.
    if cap is None or before is None or mark[0] <= before[0]:
        return
    reason = epoch_cost_violation(cap, mark[1] - before[1], (mark[0] - before[0]) / session.rows)
    if reason is None:
        return
    if cap.action == "rebalance":
        decaying = state.schedule.phase(session.progress()) == "decay"
        if decaying or not session.controller.tracker.recent_s_per_row:
            return
        if change := session.controller.reduce_cost(position(session)):
            if apply_change(session, change):
                session.record_change(change.lever, change.before, change.after, reason)
            session.cost_mark = None
            return
        reason = f"{reason}; no further saving is possible"
    stop_training(session, cap.action, reason)


def stop_training(session: TrainingSession, action: GuardrailAction, reason: str) -> NoReturn:
    """Write a checkpoint and raise StageStopped. After `pause`, the next attempt resumes."""
    session.record_change("guardrail", "running", "stopped", reason)
    session.save()
    raise StageStopped(
        f"{reason}; the checkpoint is written", "stop-requested" if action == "pause" else "guardrail"
    )
