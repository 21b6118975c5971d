"""Replay a training from its log: of the same numbers the controller makes the same plans and changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import get_args

from shoestring.core.receipt import DeviceLever
from shoestring.training.changes import PlanChange
from shoestring.training.contracts import RunPosition, Window
from shoestring.training.control.batch_size import first_changes
from shoestring.training.control.controller import Controller
from shoestring.training.control.memory import recall
from shoestring.training.curve import StepReadings
from shoestring.training.window_log import TrainingStart, WindowLog, WindowRecord


def replay_differences(log: WindowLog) -> Iterator[str]:
    """Yield a sentence for each window whose plans or changes are not those that the controller makes of its
    recorded numbers."""
    ends = [each.first_window for each in log.starts[1:]] + [len(log.windows)]
    for start, end in zip(log.starts, ends, strict=True):
        controller = first_controller(start)
        for number in range(start.first_window, end):
            controller, found = _replayed(controller, log.windows[number])
            if found:
                yield f"window {number} of attempt {start.attempt}: {found}"


def first_controller(start: TrainingStart) -> Controller:
    """Return the controller that a start began with."""
    controller = Controller.start(start.setup, start.planned_samples, start.rows_per_s)
    return controller if start.memory is None else recall(controller, start.memory)


def _replayed(controller: Controller, record: WindowRecord) -> tuple[Controller, str]:
    """Return the controller after a window, and how the window differs from a replay."""
    if not record.steps:
        return controller, ""
    at = record.began.position(record.samples - record.rows)
    at, rate = _steps(controller, at, record.steps)
    differences = []
    if at.samples != record.samples:
        differences.append(f"it ends at {at.samples:,} samples, not {record.samples:,}")
    elif rate != record.rate:
        differences.append(f"its last learning rate is {rate}, not {record.rate}")
    now, changes = _decided(controller, record)
    # A device decides by its clock and its memory.
    planned = [each for each in record.changes if each.lever not in get_args(DeviceLever)]
    recorded = [(each.lever, each.before, each.after, each.reason) for each in planned]
    if (again := [(each.lever, each.before, each.after, each.reason) for each in changes]) != recorded:
        differences.append(f"its changes are {again}, not {recorded}")
    return now, "; ".join(differences)


def _steps(controller: Controller, at: RunPosition, steps: int) -> tuple[RunPosition, float]:
    """Return the position after the steps of a window, and the rate of the last one."""
    rate = 0.0
    for _ in range(steps):
        plan = controller.plan(at)
        at, rate = at.after(plan.rows), plan.rate
    return at, rate


def _decided(controller: Controller, record: WindowRecord) -> tuple[Controller, tuple[PlanChange, ...]]:
    """Return the controller after the decisions that follow a window, and its changes."""
    window, ended, again = Window(record.rows, record.seconds, record.steps), record.ended, _again(record)
    now, taken_back = _taken_back(controller, record)
    now, change = now.after_window(window, ended.position(record.samples), ended.signals)
    now, moved = now.after_readings(StepReadings(halves=record.halves), ended.position(record.samples))
    first = () if record.samples > record.rows else first_changes(controller.setup, controller.batch_rows)
    changes = (*first, *taken_back, *(each for each in (change, moved) if each is not None))
    now = again(now, changes)
    if record.validated is None:
        return now, changes
    at = record.validated.position(record.samples)
    now, todo = now.after_validation(record.val_loss, at, record.validated.signals)
    if todo.stop is not None:
        return now, (*changes, *todo.changes, todo.stop.change)
    return again(now, todo.changes), (*changes, *todo.changes)


def _taken_back(controller: Controller, record: WindowRecord) -> tuple[Controller, tuple[PlanChange, ...]]:
    """Return the controller after the steps of a window were taken back, if they were, and the change."""
    began, loss = record.samples - record.rows, float(record.diverged_loss or 0.0)
    found = controller.after_divergence(began, record.samples, loss) if record.diverged_loss else None
    return (controller, ()) if found is None else (found[0], (found[1],))


def _again(record: WindowRecord) -> Callable[[Controller, tuple[PlanChange, ...]], Controller]:
    """Return a function that gives a controller the loss of its best weights on other rows, if a change of
    them made the training validate these again."""
    losses = iter(record.best_losses_again)

    def after(controller: Controller, changes: tuple[PlanChange, ...]) -> Controller:
        if any(each.lever == "validation" for each in changes) and (loss := next(losses, None)) is not None:
            return controller.with_best_loss(loss)
        return controller

    return after
