"""Engine time, measured: what an engine took from one stage to the next, by their receipts."""

from __future__ import annotations

from dataclasses import dataclass

from shoestring.core.receipt import Receipt
from shoestring.routing.dag import build_dag
from shoestring.routing.question import Question


@dataclass(frozen=True, slots=True)
class EngineStep:
    """The seconds from the end of one stage to the start of the next one.

    `place_s`: the part of them after the decision. `planned_s`: what the decision kept free for a step.
    """

    step_s: float
    place_s: float
    planned_s: float


def step_between(before: Receipt, after: Receipt, question: Question) -> EngineStep | None:
    """Return the step between two stages of a chain, the later of which was decided by `question`; None
    where something else than the engine came between them, or the route step waited for another run.
    """
    # A launcher that returns cached results itself has no engine.
    if before.cache_hit and after.cache_hit and before.pod == after.pod:
        return None
    if before.status != "done" or before.stage == after.stage or after.attempt > 1:
        return None
    if question.engine is None or question.waited_s or question.asked_at < before.finished_at:
        return None
    if not build_dag(question.needs, question.upstream).is_chain:
        return None
    step_s = (after.started_at - before.finished_at).total_seconds()
    place_s = (after.started_at - question.asked_at).total_seconds()
    return EngineStep(round(step_s, 3), round(max(0.0, place_s), 3), question.engine.step_s)
