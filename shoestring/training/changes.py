"""The changes that a controller makes, and what the loop has to do for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from shoestring.config.guardrails import GuardrailAction
from shoestring.core.receipt import Lever


@dataclass(frozen=True, slots=True)
class PlanChange:
    """A change that the controller made, with its reason as a sentence with numbers.

    `value`: the samples at the planned end, the share of the validation split, or the rows of a batch, as
    the lever has it.
    """

    lever: Lever
    before: str
    after: str
    reason: str
    value: float = 0.0


Snapshot = Literal["best", "plateau", "rollback"]
"""The states that a loop keeps: the best validated weights, the learner at the best validation of the
plateau, and the learner at the last validation above the skill floor."""


class GuardrailStop(NamedTuple):
    """A guardrail ends the training at a checkpoint."""

    action: GuardrailAction
    reason: str

    @property
    def change(self) -> PlanChange:
        return PlanChange("guardrail", "running", "stopped", self.reason)


class Instructions(NamedTuple):
    """The loop's work after a validation: the states to keep, the one to continue from, and the changes to
    record. With `stop` the training ends."""

    keep: tuple[Snapshot, ...] = ()
    restore: Snapshot | None = None
    changes: tuple[PlanChange, ...] = ()
    stop: GuardrailStop | None = None
