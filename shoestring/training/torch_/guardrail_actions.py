"""What a training does about its own guardrails, after each look: it changes itself, goes back to where it was good, or leaves."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, NoReturn

from shoestring.config.guardrails import GuardrailAction
from shoestring.core.errors import StageStopped
from shoestring.training.control.guardrails import (
    MOST_ROLLBACKS,
    RATE_SHARE,
    loss_of_nothing,
    skill_of,
    too_bad,
    too_dear,
)
from shoestring.training.torch_.learner import snapshot

if TYPE_CHECKING:
    from shoestring.training.torch_.loop import Training


def mend_skill(training: Training, loss: float) -> bool:
    """After a look at signal validation. True: it went back to where it was good enough. Raises StageStopped."""
    course, floor = training.course, training.task.guardrails.skill
    if floor is None:
        return False
    at, skill = training.progress(), skill_of(loss, loss_of_nothing(training.task.encoding))
    share = at.spent_s / (at.spent_s + at.left_s) if at.spent_s else 0.0
    why = too_bad(floor, skill, course.samples / training.rows, share)
    if why is None:
        if floor.action == "roll-back" and skill >= floor.min:
            course.safe = {
                "learner": snapshot(training.learner.state()),
                "batch_rows": training.batch_rows,
                "samples": course.samples,
            }
        return False
    if floor.action != "roll-back" or course.safe is None or course.rolled_back >= MOST_ROLLBACKS:
        leave(training, floor.action, why)
    go_back(training, course.safe, why)
    return True


def go_back(training: Training, safe: dict[str, object], why: str) -> None:
    """The weights, the optimiser and the batch of then, at a lower rate. The data goes on: no row is met again before its turn."""
    course = training.course
    training.learner.restore(snapshot(safe["learner"]))  # type: ignore[arg-type]
    training.batch_rows = course.batch_rows = int(safe["batch_rows"])  # type: ignore[call-overload]
    course.rolled_back, course.rate_share = course.rolled_back + 1, course.rate_share * RATE_SHARE
    # A batch that was on trial is not what it is judged by any more.
    training.steering.drift = replace(training.steering.drift, tried_s=0.0, refused=True, paces=())
    training.note(
        "guardrail",
        f"at {course.samples:,} samples",
        f"at {safe['samples']:,}, {course.rate_share:g} of the learning rate",
        why,
    )


def mend_spend(training: Training) -> None:
    """Where signal validation is looked at, also when the look itself was not affordable. Raises StageStopped."""
    course, cap = training.course, training.task.guardrails.usd_per_epoch
    here: tuple[int, Decimal] = (course.samples, training.spent_usd())
    before, training.mark = training.mark, here
    # What comes before the first mark, or is just being changed, says nothing of what an epoch costs.
    if cap is None or before is None or here[0] <= before[0]:
        return
    why = too_dear(cap, here[1] - before[1], (here[0] - before[0]) / training.rows)
    if why is None:
        return
    if cap.action == "rebalance":
        if course.schedule.phase(training.progress()) == "decay" or not training.steering.drift.paces:
            return
        if move := training.steering.ease(training.standing()):
            if training.change(move):
                training.note(move.lever, move.before, move.after, why)
            training.mark = None
            return
        why = f"{why}, with nothing left to change"
    leave(training, cap.action, why)


def leave(training: Training, action: GuardrailAction, why: str) -> NoReturn:
    """With a checkpoint. What is only paused is gone on with by the next try."""
    training.note("guardrail", "running", "stopped", why)
    training.save()
    raise StageStopped(
        f"{why}; the checkpoint is written", "told-to-stop" if action == "pause" else "guardrail"
    )
