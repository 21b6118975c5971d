"""The policies that a question is asked of, whether the one on trial has been rolled back, and what was logged of trials."""

from __future__ import annotations

from typing import Any

from shoestring.config.policy import CandidatePolicy, Policy
from shoestring.core.interfaces import Store
from shoestring.core.receipt import Receipt
from shoestring.core.record import Record, record_bytes
from shoestring.data.run_records import newest_keys, read_record, read_records
from shoestring.routing.analysis.off_policy import LoggedChoice, PolicyComparison, compare_policies
from shoestring.routing.decision import Decision
from shoestring.routing.policy.policy_trial import Rollback, find_rollback
from shoestring.runtime.records.receipts import receipt_key

RECEIPTS_READ = 200
DECISIONS_READ = 5000


class PolicyTrial(Record):
    """What is known of a candidate. `comparison` is None before any run of the trial is over."""

    policy: str
    sha256: str
    comparison: PolicyComparison | None
    rollback: Rollback | None


def policies(store: Store, rules: Policy) -> dict[str, Any]:
    """Fields of a Question. A candidate that find_rollback is rolled back by the first router that sees it."""
    found: dict[str, Any] = {"preferences": rules.preferences, "candidate_policy": rules.candidate}
    if rules.candidate and (over := find_stored_rollback(store, rules.candidate)):
        found["rollback_reason"] = over.reason
    return found


def find_stored_rollback(store: Store, candidate: CandidatePolicy) -> Rollback | None:
    """From what was written down; else, while some run obeys the candidate, from the newest receipts, and written down."""
    if (over := read_rollback(store, candidate.policy.sha256)) or not candidate.share:
        return over
    # One that cannot be read is noted by whoever learns from them.
    receipts, _ = read_records(store, newest_keys(store, "receipts", RECEIPTS_READ), Receipt)
    if (over := find_rollback(candidate, receipts)) is None:
        return None
    store.put(rollback_key(over.sha256), record_bytes(over), if_absent=True)
    return read_rollback(store, over.sha256)


def rollback_key(sha256: str) -> str:
    return f"learned/policies/{sha256}.json"


def read_rollback(store: Store, sha256: str) -> Rollback | None:
    key = rollback_key(sha256)
    return read_record(store, key, Rollback) if any(store.list(key)) else None


def policy_trials(store: Store) -> tuple[tuple[PolicyTrial, ...], tuple[str, ...]]:
    """Every candidate that decisions of this store name, the newest last, and a note where some cannot be read."""
    keys = newest_keys(store, "decisions", DECISIONS_READ)
    decisions, unread = read_records(store, keys, Decision)
    shadowed = [
        each for each in decisions if each.shadow and each.applied_policy and each.choice and not each.choice.cached
    ]
    holds = [receipt_key(each.question.run_id, str(each.question.attempt_id)) for each in shadowed]
    receipts, lost = read_records(store, holds, Receipt)
    took = {(each.run_id, each.stage, each.attempt): each for each in receipts}
    found: dict[tuple[str, str], list[LoggedChoice]] = {}
    for decision in shadowed:
        question = decision.question
        receipt = took.get((question.run_id, question.stage, question.attempt))
        named = found.setdefault(candidate_policy(decision), [])
        if receipt is not None and (each := logged_choice(decision, receipt)):
            named.append(each)
    return tuple(
        PolicyTrial(policy=title, sha256=sha256, comparison=compare_policies(of_it), rollback=read_rollback(store, sha256))
        for (title, sha256), of_it in found.items()
    ), (*unread, *lost)


def candidate_policy(decision: Decision) -> tuple[str, str]:
    """Title and digest of the candidate, whichever of the two was obeyed."""
    both = (decision.applied_policy, decision.shadow)
    found = next(each for each in both if each and each.arm == "candidate")
    return f"{found.name} {found.version}", found.sha256


def logged_choice(decision: Decision, receipt: Receipt) -> LoggedChoice | None:
    """One choice of a trial, with what it cost; None where one of the two policies found no place."""
    obeyed, shadow, choice = decision.applied_policy, decision.shadow, decision.choice
    if obeyed is None or shadow is None or choice is None or shadow.pool is None:
        return None
    is_live = obeyed.arm == "live"
    # An elastic stage is compared at the samples that the policy in force expected.
    elastic = decision.question.needs[0].elastic
    at = choice.samples if is_live else shadow.samples
    done = receipt.outcome.samples if receipt.outcome else 0
    chosen_usd, other_usd, spent_usd = float(choice.est_usd), float(shadow.est_usd), float(receipt.spent_usd)
    if elastic and min(at, choice.samples, shadow.samples):
        chosen_usd, other_usd = chosen_usd * at / choice.samples, other_usd * at / shadow.samples
        spent_usd = spent_usd * at / done if done else spent_usd
    return LoggedChoice(
        run_id=receipt.run_id,
        matches_live=is_live or shadow.same,
        matches_candidate=not is_live or shadow.same,
        candidate_probability=1.0 - obeyed.propensity if is_live else obeyed.propensity,
        live_est_usd=chosen_usd if is_live else other_usd,
        candidate_est_usd=other_usd if is_live else chosen_usd,
        spent_usd=spent_usd,
    )
