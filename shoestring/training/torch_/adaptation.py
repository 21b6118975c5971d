"""Adapt a training when its spend drifts from the plan: decide at the end of a window of steps, and apply
the change."""

from __future__ import annotations

import copy
from dataclasses import replace

from shoestring.spending.spend_forecast import PlanChange, TrainingPosition
from shoestring.training.torch_.session import TrainingSession


def adapt(session: TrainingSession) -> None:
    """Compare the forecast with the budget at the end of a window, and apply the resulting change, if any."""
    if not session.controller.window_is_full:
        return
    spent_usd = session.task.meter.spent_usd(session.now_s())
    change = session.controller.end_window(position(session), spent_usd)
    _fix_length(session)
    if change is not None and apply_change(session, change):
        session.record_change(change.lever, change.before, change.after, change.reason)


def position(session: TrainingSession) -> TrainingPosition:
    """Return where the training is, as the spend forecast needs it."""
    meter, progress, now_s = session.task.meter, session.progress(), session.now_s()
    price = meter.current_usd_per_hour
    ends_by_deadline = meter.ends_s == meter.deadline_s
    return TrainingPosition(
        samples=session.state.samples,
        max_samples=session.state.schedule.end_samples,
        spent_s=(
            session.elapsed_s()
            if ends_by_deadline or not price
            else float(meter.spent_usd(now_s) / price) * 3600
        ),
        left_s=progress.left_s,
        usd_per_hour=price,
        validation_s=session.costs.validation_s,
        validation_every_rows=session.validation_every_rows,
        validation_share=session.state.validation_share,
        batch_rows=session.batch_rows,
        recipe_batch_rows=session.recipe_rows,
        annealing=session.state.schedule.phase(progress) == "decay",
    )


def apply_change(session: TrainingSession, change: PlanChange) -> bool:
    """Apply a change. Returns False when it was not possible."""
    if change.lever == "batch":
        session.guard.scale_steps(max(1.0, change.value / session.batch_rows))
        session.batch_rows = session.state.batch_rows = int(change.value)
    if change.lever == "validation":
        return _set_validation_share(session, change.value)
    return True


def _fix_length(session: TrainingSession) -> None:
    """Make the schedule follow the first plan if the policy forbids changing the length."""
    schedule, planned = session.state.schedule, session.controller.tracker.planned_samples
    if not session.task.adaptation_limits.length and schedule.follows_budget and planned:
        session.state.schedule = replace(
            schedule, end_samples=min(schedule.end_samples, planned), follows_budget=False
        )


def _set_validation_share(session: TrainingSession, share: float) -> bool:
    """Validate on a share of the rows. The best weights are validated again: losses on different rows do
    not compare."""
    state = session.state
    if not session.guard.may_step(session.now_s() + session.costs.validation_reserve_s):
        return False
    session.costs.scale_validation(share / state.validation_share)
    state.validation_share = share
    if state.best_weights is not None:
        net = copy.deepcopy(session.learner.average)
        net.load_state_dict(state.best_weights)
        state.best_loss = session.validate(net)
        state.early_stopping = replace(state.early_stopping, best_loss=state.best_loss)
    return True
