"""What a running stage may change of itself, and what it may not use more of, as data."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from shoestring.core.money import Usd
from shoestring.core.record import Record

GuardrailAction = Literal["throttle", "rebalance", "roll-back", "pause", "stop"]

CAP_ACTIONS: tuple[GuardrailAction, ...] = ("throttle", "rebalance", "pause", "stop")
CAPS: dict[str, tuple[GuardrailAction, ...]] = {
    "joules": CAP_ACTIONS,
    "core_minutes": CAP_ACTIONS,
    "co2_g": CAP_ACTIONS,
    "memory_gb": ("rebalance", "pause", "stop"),
}
"""throttle: the stage keeps half of its cores from four fifths of the cap on, and is stopped at it. rebalance: a training is given the
moment at which the cap will be reached for its deadline, and ends annealed before; other stages are stopped at it; one that needs more
memory is placed anew with more. pause: it is stopped at its checkpoint, and an engine's next try, or `--resume`, goes on. stop: it is
stopped, and not tried again."""

ACTIONS: dict[str, tuple[GuardrailAction, ...]] = CAPS | {
    "usd_per_epoch": ("rebalance", "pause", "stop"),
    "skill": ("roll-back", "pause", "stop"),
}
"""Of a training alone. rebalance: looks read less, then the batch gets larger, then another place is asked for, one at a time and inside
the bounds; with nothing left to change it is stopped. roll-back: it goes back to where it was good enough last, with the batch of then and
half the learning rate; where it never was, or not for long, it is stopped."""

UNITS = {"joules": "J", "core_minutes": "core-minutes", "co2_g": "g of CO2", "memory_gb": "GB"}


class UsageCap(Record):
    """A cap on what a stage uses, all its attempts in a run together (memory: at any moment), and what is done about it."""

    max: float = Field(gt=0)
    action: GuardrailAction = "stop"


class EpochCap(Record):
    """What an epoch of a training may cost: twice what half an epoch cost, from one look at signal validation to the next."""

    max_usd: Usd = Field(gt=0)
    action: GuardrailAction = "stop"


class SkillFloor(Record):
    """How good a training has to be, from some moment on: 1 less its loss on signal validation over that of a model that has learned
    nothing (of a log loss McFadden's pseudo-R2, 1974). 0 is no better than nothing, 1 is without error."""

    min: float = Field(gt=0, lt=1)
    after_epochs: float = Field(1.0, ge=0, description="looked at from then on")
    after_share: float = Field(
        1.0, gt=0, le=1, description="or from when so much of its money, or of its time, is gone"
    )
    action: GuardrailAction = "stop"


class Guardrails(Record):
    """Caps beside those in dollars. A month's cap is in the budgets and refuses runs; `queue_delay_s` has a stage routed again."""

    joules: UsageCap | None = Field(
        None, description="of the machine: watts by its cores' use, GPUs by their own count, or as if busy"
    )
    core_minutes: UsageCap | None = Field(None, description="minutes of one core at work")
    co2_g: UsageCap | None = Field(None, description="grams of CO2: the joules by the region's grid")
    memory_gb: UsageCap | None = Field(None, description="resident, of the stage's process")
    usd_per_epoch: EpochCap | None = Field(None, description="dollars that a training's epoch may cost")
    skill: SkillFloor | None = Field(None, description="how good a training has to be, and by when")

    @model_validator(mode="after")
    def _make_sense(self) -> Self:
        for name, remedies in ACTIONS.items():
            guardrail = getattr(self, name)
            if guardrail and guardrail.action not in remedies:
                raise ValueError(
                    f"{guardrail.action} is no action for {name}, which it does not mend: choose {', '.join(remedies)}"
                )
        return self

    def sentences(self, trains: bool) -> tuple[str, ...]:
        """What is guarded of a stage, for people. `trains`: is it one that looks at its own quality?"""
        caps = ((name, getattr(self, name)) for name in CAPS)
        said = [
            f"guardrail {name}: at most {cap.most:,.6g} {UNITS[name]}, else {cap.action}"
            for name, cap in caps
            if cap
        ]
        if trains and (dear := self.usd_per_epoch):
            said.append(f"guardrail usd_per_epoch: at most ${dear.max_usd}, else {dear.action}")
        if trains and (floor := self.skill):
            when = f"{floor.after_epochs:g} epochs" + (
                f", or {floor.after_share:.0%} of the budget" if floor.after_share < 1 else ""
            )
            said.append(f"guardrail skill: at least {floor.min:g} after {when}, else {floor.action}")
        return tuple(said)


class CarbonGrid(Record):
    """What a region's electricity is made of."""

    g_per_kwh: float = Field(ge=0)
    source: str = Field(min_length=1)
