"""A policy on trial: which runs obey it, what the other would have chosen, and when it is rolled back. Pure.

A run is given the candidate with the probability `share` (`Candidate.arm_of`). That probability is recorded, so that what the other policy
would have cost can be estimated from what was done (routing/offpolicy.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Literal

from pydantic import AwareDatetime

from shoestring.config.policy import Arm, CandidatePolicy, Preferences
from shoestring.core.money import Usd, usd
from shoestring.core.receipt import Receipt
from shoestring.core.types import Record
from shoestring.routing.decision import Choice, Decision, Obeyed, Question, Shadow


def obeyed_by(question: Question) -> Obeyed:
    """The policy that a question is decided by."""
    found, candidate = question.in_force, question.candidate
    likely = candidate.propensity(question.arm, question.rolled_back) if candidate else 1.0
    return Obeyed(
        name=found.name, version=found.version, sha256=found.sha256, arm=question.arm, propensity=likely
    )


def asked_of_the_other(question: Question, candidate: CandidatePolicy) -> Question:
    """The same question, of the policy that this run does not obey."""
    other = question.preferences if question.arm == "candidate" else candidate.policy
    return question.model_copy(update={"preferences": other, "candidate": None})


def shadow(other: Preferences, arm: Arm, choice: Choice | None, chosen: Choice | None) -> Shadow:
    """What the other policy's choice comes to beside what was chosen."""
    told = {"name": other.name, "version": other.version, "sha256": other.sha256}
    if choice is None:
        return Shadow.model_validate(told | {"arm": arm, "same": chosen is None, "sentence": "nothing fits"})
    placed = ("pool", "market", "format", "storage_class")
    same = chosen is not None and all(getattr(choice, name) == getattr(chosen, name) for name in placed)
    copied = {
        name: getattr(choice, name)
        for name in (*placed, "samples", "est_usd", "p95_usd", "est_s", "sentence")
    }
    return Shadow.model_validate(told | {"arm": arm, "same": same} | copied)


def tried(decision: Decision) -> dict[str, str | Decimal | None]:
    """What a receipt keeps of the policies, as fields of it."""
    obeyed, other, choice, question = decision.obeyed, decision.shadow, decision.choice, decision.question
    if obeyed is None:
        return {}
    found: dict[str, str | Decimal | None] = {"policy_sha256": obeyed.sha256}
    if other is None or question.candidate is None or question.rolled_back or not question.candidate.share:
        return found
    found["candidate_sha256"] = other.sha256 if obeyed.arm == "live" else obeyed.sha256
    if obeyed.arm == "live":
        return found | {"live_policy_est_usd": choice.est_usd if choice else None}
    return found | {"live_policy_est_usd": other.est_usd if other.pool else None}


class Rollback(Record):
    """Why a candidate is obeyed no more: kept under its digest, so that a new version is a new trial."""

    schema_version: Literal[1] = 1
    name: str
    version: int
    sha256: str
    at: AwareDatetime
    runs: int
    spent_usd: Usd
    expected_usd: Usd
    why: str


def overspent(candidate: CandidatePolicy, receipts: Iterable[Receipt]) -> Rollback | None:
    """Whether a candidate's runs cost more than `max_overspend` allows, from receipts alone; None: not, or not enough of them.

    Compared are what its runs spent with what it expected, and with what the policy in force expected of the same stages (those that it
    would have had a place for). Where the runs of the policy in force cost more than expected, too, the estimates are to blame: the
    limit is raised by that.
    """
    policy = candidate.policy
    trial = [each for each in receipts if each.candidate_sha256 == policy.sha256 and not each.cache_hit]
    mine = [each for each in trial if each.policy_sha256 == policy.sha256]
    theirs = [each for each in trial if each.policy_sha256 != policy.sha256]
    runs = len({each.run_id for each in mine})
    if runs < candidate.min_runs:
        return None
    usual = Decimal(1)
    if len({each.run_id for each in theirs}) >= candidate.min_runs:
        usual = max(usual, _ratio(_spent(theirs), _expected(theirs)))
    limit, paired = (
        Decimal(str(candidate.max_overspend)) * usual,
        [each for each in mine if each.live_policy_est_usd is not None],
    )
    live_usd = sum((each.live_policy_est_usd or Decimal(0) for each in paired), Decimal(0))
    compared = [
        (_spent(mine), _expected(mine), "it expected"),
        (_spent(paired), live_usd, "the policy in force expected of the same stages"),
    ]
    for spent_usd, expected_usd, whose in compared:
        if (times := _ratio(spent_usd, expected_usd)) > limit:
            return Rollback(
                name=policy.name,
                version=policy.version,
                sha256=policy.sha256,
                at=max(each.finished_at for each in mine),
                runs=runs,
                spent_usd=spent_usd,
                expected_usd=expected_usd,
                why=f"{runs} runs under policy {policy.title} spent ${spent_usd}, {times:.2f} times the ${expected_usd} that {whose}; "
                f"{limit:.2f} times are allowed",
            )
    return None


def _spent(receipts: Iterable[Receipt]) -> Decimal:
    return usd(sum((each.spent_usd for each in receipts), Decimal(0)))


def _expected(receipts: Iterable[Receipt]) -> Decimal:
    return usd(sum((each.est_usd for each in receipts), Decimal(0)))


def _ratio(spent_usd: Decimal, expected_usd: Decimal) -> Decimal:
    return spent_usd / expected_usd if expected_usd > 0 else Decimal(0)
