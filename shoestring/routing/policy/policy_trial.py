"""Policy trials: which runs use the candidate policy, what the other policy would choose, when it is rolled
back. Pure.

A run uses the candidate with probability `share` (`CandidatePolicy.arm_of`). The decision records that
probability, so that the cost of the other policy can be estimated from the runs that were made
(routing/analysis/off_policy.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import NamedTuple

from pydantic import AwareDatetime

from shoestring.config.preferences import Arm, CandidatePolicy, Preferences
from shoestring.core.money import Usd, usd
from shoestring.core.receipt import Receipt
from shoestring.core.record import StoredRecord
from shoestring.routing.decision import Choice, Decision, ShadowChoice
from shoestring.routing.question import Question


def shadow_question(question: Question, candidate: CandidatePolicy) -> Question:
    """Return the same question for the policy that this run does not use."""
    other = question.preferences if question.arm == "candidate" else candidate.policy
    return question.model_copy(update={"preferences": other, "candidate_policy": None})


def make_shadow(other: Preferences, arm: Arm, choice: Choice | None, chosen: Choice | None) -> ShadowChoice:
    """Return the other policy's choice, compared with the choice that was made."""
    identity = {"name": other.name, "version": other.version, "sha256": other.sha256}
    if choice is None:
        return ShadowChoice.model_validate(
            identity | {"arm": arm, "same": chosen is None, "sentence": "nothing fits"}
        )
    placement = ("pool", "market", "format", "storage_class")
    same = chosen is not None and all(getattr(choice, name) == getattr(chosen, name) for name in placement)
    copied = {
        name: getattr(choice, name)
        for name in (*placement, "samples", "est_usd", "p95_usd", "est_s", "sentence")
    }
    return ShadowChoice.model_validate(identity | {"arm": arm, "same": same} | copied)


class TrialFields(NamedTuple):
    """The fields of a receipt that describe the policies of its decision."""

    policy_sha256: str = ""
    candidate_sha256: str = ""
    live_policy_est_usd: Decimal | None = None


def trial_fields(decision: Decision) -> TrialFields:
    """Return the receipt fields that describe the policies of a decision."""
    applied, other, choice = decision.applied_policy, decision.shadow, decision.choice
    candidate = decision.question.candidate_policy
    if applied is None:
        return TrialFields()
    if other is None or candidate is None or decision.question.rollback_reason or not candidate.share:
        return TrialFields(applied.sha256)
    if applied.arm == "live":
        return TrialFields(applied.sha256, other.sha256, choice.est_usd if choice else None)
    return TrialFields(applied.sha256, applied.sha256, other.est_usd if other.pool else None)


class Rollback(StoredRecord):
    """The reason why no run uses a candidate any more.

    Stored by the candidate's digest, so a new version is a new trial.
    """

    name: str
    version: int
    sha256: str
    at: AwareDatetime
    runs: int
    spent_usd: Usd
    expected_usd: Usd
    reason: str


def find_rollback(candidate: CandidatePolicy, receipts: Iterable[Receipt]) -> Rollback | None:
    """Return a rollback if the candidate's runs cost more than `max_overspend` allows; None if not, or with
    too few runs.

    The spending of the candidate's runs is compared with its own estimates, and with the live policy's
    estimates for the same stages (those that the live policy could place). If runs of the live policy also
    cost more than estimated, the limit is raised by that ratio, since then the estimates are wrong.
    """
    policy = candidate.policy
    trial = [each for each in receipts if each.candidate_sha256 == policy.sha256 and not each.cache_hit]
    candidate_receipts = [each for each in trial if each.policy_sha256 == policy.sha256]
    live_receipts = [each for each in trial if each.policy_sha256 != policy.sha256]
    runs = len({each.run_id for each in candidate_receipts})
    if runs < candidate.min_runs:
        return None
    live_ratio = Decimal(1)
    if len({each.run_id for each in live_receipts}) >= candidate.min_runs:
        live_ratio = max(live_ratio, _ratio(_spent(live_receipts), _expected(live_receipts)))
    limit = Decimal(str(candidate.max_overspend)) * live_ratio
    paired = [each for each in candidate_receipts if each.live_policy_est_usd is not None]
    live_usd = sum((each.live_policy_est_usd or Decimal(0) for each in paired), Decimal(0))
    comparisons = [
        (_spent(candidate_receipts), _expected(candidate_receipts), "that it estimated"),
        (_spent(paired), live_usd, "that the live policy estimated for the same stages"),
    ]
    for spent_usd, expected_usd, source in comparisons:
        if (factor := _ratio(spent_usd, expected_usd)) > limit:
            return Rollback(
                name=policy.name,
                version=policy.version,
                sha256=policy.sha256,
                at=max(each.finished_at for each in candidate_receipts),
                runs=runs,
                spent_usd=spent_usd,
                expected_usd=expected_usd,
                reason=f"{runs} runs with policy {policy.title} spent ${spent_usd}, {factor:.2f} times the "
                f"${expected_usd} {source}; the limit is {limit:.2f} times",
            )
    return None


def _spent(receipts: Iterable[Receipt]) -> Decimal:
    return usd(sum((each.spent_usd for each in receipts), Decimal(0)))


def _expected(receipts: Iterable[Receipt]) -> Decimal:
    return usd(sum((each.est_usd for each in receipts), Decimal(0)))


def _ratio(spent_usd: Decimal, expected_usd: Decimal) -> Decimal:
    return spent_usd / expected_usd if expected_usd > 0 else Decimal(0)
