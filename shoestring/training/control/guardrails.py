"""The guardrails of a training: the cost of an epoch, and the skill it must reach. Pure: numbers in, a
sentence or None out."""

from __future__ import annotations

import math
from decimal import Decimal

from shoestring.config.guardrails import EpochCap, SkillFloor
from shoestring.core.datasets import Encoding
from shoestring.core.money import usd

# A training rolls back at most this often, and each time continues at this share of its learning rate.
MAX_ROLLBACKS, ROLLBACK_RATE_FACTOR = 2, 0.5
# The same where the loss of a window is not a finite number.
MAX_DIVERGENCES, DIVERGENCE_RATE_FACTOR = 3, 0.5


def prior_loss(encoding: Encoding) -> float:
    """Return the loss of predicting train's prior: the entropy of its classes in nats; its standard
    deviation; of texts the entropy of their tokens in bits per byte."""
    if encoding.task == "regression":
        return encoding.train_prior[1]
    if encoding.loss.balanced:
        return math.log(sum(share > 0 for share in encoding.train_prior))
    nats = -sum(share * math.log(share) for share in encoding.train_prior if share > 0)
    if encoding.vocabulary is not None:
        return nats / math.log(2) / encoding.vocabulary.bytes_per_token
    return nats


def skill_score(loss: float, prior_loss: float) -> float:
    """Return 1 - loss / prior loss. When the prior has no loss, nothing can be learned and the score is 0."""
    return 1 - loss / prior_loss if prior_loss > 0 else 0.0


def skill_violation(floor: SkillFloor, skill: float, epochs: float, share: float) -> str | None:
    """Return a sentence when the skill is below the floor and the floor applies already, else None.

    `share` is the used share of the training's budget or time.
    """
    if skill >= floor.min or (epochs < floor.after_epochs and share < floor.after_share):
        return None
    return (
        f"guardrail skill: {skill:.3f} after {epochs:,.2f} epochs and {share:.0%} of the budget, "
        f"below the minimum of {floor.min:g}; action: {floor.action}"
    )


def epoch_cost_violation(cap: EpochCap, spent_usd: Decimal, epochs: float) -> str | None:
    """Return a sentence when an epoch costs more than the cap, else None. `spent_usd` is the cost of
    `epochs` epochs."""
    epoch_usd = usd(spent_usd / Decimal(str(epochs)))
    if epoch_usd <= cap.max_usd:
        return None
    return (
        f"guardrail usd_per_epoch: an epoch costs ${epoch_usd}, "
        f"above the maximum of ${cap.max_usd}; action: {cap.action}"
    )
