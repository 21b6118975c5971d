"""A training's own guardrails: what an epoch may cost, and how good it has to be by when. Plain numbers in, a sentence or nothing out."""

from __future__ import annotations

import math
from decimal import Decimal

from shoestring.config.guardrails import EpochCap, SkillFloor
from shoestring.core.datasets import Encoding
from shoestring.core.money import usd

# How often a training goes back to where it was good enough, each time at this share of the learning rate that it had.
MAX_ROLLBACKS, ROLLBACK_RATE_FACTOR = 2, 0.5


def prior_loss(encoding: Encoding) -> float:
    """The loss of a model that knows only what train's targets are like: the entropy of its classes in nats, or its standard deviation."""
    if encoding.task == "regression":
        return encoding.train_prior[1]
    return -sum(share * math.log(share) for share in encoding.train_prior if share > 0)


def skill_score(loss: float, nothing: float) -> float:
    """1 less the loss over that of a model that has learned nothing; where that has no loss, nothing can be learned."""
    return 1 - loss / nothing if nothing > 0 else 0.0


def skill_violation(floor: SkillFloor, skill: float, epochs: float, share: float) -> str | None:
    """Why a training is not good enough; None: it is, or need not be yet. `share`: of its money or time that is gone."""
    if skill >= floor.min or (epochs < floor.after_epochs and share < floor.after_share):
        return None
    return (
        f"guardrail skill: {skill:.3f} after {epochs:,.2f} epochs and {share:.0%} of the budget, "
        f"at least {floor.min:g} is asked for, and its action is {floor.action}"
    )


def epoch_cost_violation(cap: EpochCap, spent_usd: Decimal, epochs: float) -> str | None:
    """Why an epoch costs too much, by what some of it did cost; None: it does not."""
    whole_usd = usd(spent_usd / Decimal(str(epochs)))
    if whole_usd <= cap.max_usd:
        return None
    return f"guardrail usd_per_epoch: an epoch costs ${whole_usd}, at most ${cap.max_usd} is allowed, and its action is {cap.action}"
