"""Caps on what a running stage uses other than money, and the action at each cap, as data."""

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
"""The actions that each cap allows.

throttle: the stage keeps half of its cores from 80% of the cap on, and is stopped at the cap.
rebalance: a training gets the moment at which it would reach the cap as its deadline, so that it ends
    annealed; another stage is stopped at the cap; one that needs more memory is routed again with more.
pause: the stage is stopped at its checkpoint, and resumes with the engine's next retry or with `--resume`.
stop: the stage is stopped and not retried.
"""

ACTIONS: dict[str, tuple[GuardrailAction, ...]] = CAPS | {
    "usd_per_epoch": ("rebalance", "pause", "stop"),
    "skill": ("roll-back", "pause", "stop"),
}
"""The actions of all guardrails; the last two apply to training only.

rebalance: the training reads less validation data, then grows the batch, then asks for another pool: one
    change at a time, within the adaptation limits. Without a change left it is stopped.
roll-back: the training returns to the weights and the batch of its last good validation and halves the
    learning rate. If no validation was good, or quality falls again at once, it is stopped.
"""

UNITS = {"joules": "J", "core_minutes": "core-minutes", "co2_g": "g of CO2", "memory_gb": "GB"}


class UsageCap(Record):
    """A cap on the usage of a stage over all its attempts in a run (memory: at any moment), and the action at
    the cap.
    """

    max: float = Field(gt=0)
    action: GuardrailAction = "stop"


class EpochCap(Record):
    """The maximum cost of one training epoch, measured as twice the cost of the last half epoch."""

    max_usd: Usd = Field(gt=0)
    action: GuardrailAction = "stop"


class SkillFloor(Record):
    """The minimum skill of a training from one moment on.

    Skill = 1 - loss on the validation split / loss of a constant prediction (McFadden's pseudo-R2 for log
    loss, 1974): 0 is no better than the constant, 1 is without error.
    """

    min: float = Field(gt=0, lt=1)
    after_epochs: float = Field(1.0, ge=0, description="checked from this epoch on")
    after_share: float = Field(
        1.0, gt=0, le=1, description="or from this share of its budget or deadline on, whichever is first"
    )
    action: GuardrailAction = "stop"


class Guardrails(Record):
    """Caps that are not in dollars. Caps in dollars are in `budgets`."""

    joules: UsageCap | None = Field(
        None,
        description="energy of the machine: core watts by utilisation, GPU energy from NVML or at full load",
    )
    core_minutes: UsageCap | None = Field(None, description="minutes of one busy core")
    co2_g: UsageCap | None = Field(
        None, description="grams of CO2: joules x the carbon intensity of the region"
    )
    memory_gb: UsageCap | None = Field(None, description="resident memory of the stage's process")
    usd_per_epoch: EpochCap | None = Field(None, description="maximum dollars of one training epoch")
    skill: SkillFloor | None = Field(
        None, description="minimum quality of a training, and when it is checked"
    )

    @model_validator(mode="after")
    def _action_fits_the_guardrail(self) -> Self:
        for name, actions in ACTIONS.items():
            guardrail = getattr(self, name)
            if guardrail and guardrail.action not in actions:
                raise ValueError(f"{guardrail.action} is no action for {name}: choose {', '.join(actions)}")
        return self

    def sentences(self, trains: bool) -> tuple[str, ...]:
        """Return the guardrails of a stage as sentences.

        `trains`: the stage trains, so the training guardrails apply.
        """
        caps = ((name, getattr(self, name)) for name in CAPS)
        sentences = [
            f"guardrail {name}: at most {cap.max:,.6g} {UNITS[name]}, else {cap.action}"
            for name, cap in caps
            if cap
        ]
        if trains and (epoch := self.usd_per_epoch):
            sentences.append(f"guardrail usd_per_epoch: at most ${epoch.max_usd}, else {epoch.action}")
        if trains and (floor := self.skill):
            when = f"{floor.after_epochs:g} epochs" + (
                f", or {floor.after_share:.0%} of the budget" if floor.after_share < 1 else ""
            )
            sentences.append(f"guardrail skill: at least {floor.min:g} after {when}, else {floor.action}")
        return tuple(sentences)


class CarbonGrid(Record):
    """The carbon intensity of a region's electricity."""

    g_per_kwh: float = Field(ge=0)
    source: str = Field(min_length=1)
