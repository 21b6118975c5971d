"""Policies on trial as the store knows them: whether a candidate was rolled back, and what its runs have
cost.
"""

from __future__ import annotations

from shoestring.config.preferences import CandidatePolicy
from shoestring.core import store_layout
from shoestring.core.interfaces import Store
from shoestring.core.receipt import Receipt
from shoestring.core.record import Record, record_bytes
from shoestring.data.run_records import newest_keys, read_record, read_records
from shoestring.routing.analysis.off_policy import LoggedChoice, PolicyComparison, compare_policies
from shoestring.routing.decision import Decision
from shoestring.routing.policy.policy_trial import Rollback, find_rollback

# How many of the newest receipts and decisions are read.
MAX_RECEIPTS = 200
MAX_DECISIONS = 5000


class PolicyTrial(Record):
    """The results of a candidate's trial so far. `comparison` is None until one of its runs has ended."""

    policy: str
    sha256: str
    comparison: PolicyComparison | None
    rollback: Rollback | None


def rollback_of(store: Store, candidate: CandidatePolicy | None) -> Rollback | None:
    """Return the rollback of a candidate; None: it has not overspent, or there is no candidate.

    The first router that finds in the newest receipts that a candidate has overspent writes the rollback. A
    candidate that no run obeys (share 0) is not checked.
    """
    if candidate is None:
        return None
    if (stored := read_rollback(store, candidate.policy.sha256)) or not candidate.share:
        return stored
    # Unreadable receipts are skipped here; the learning model reports them.
    receipts, _ = read_records(store, newest_keys(store, "receipts", MAX_RECEIPTS), Receipt)
    if (found := find_rollback(candidate, receipts)) is None:
        return None
    store.put(store_layout.rollback(found.sha256), record_bytes(found), if_absent=True)
    return read_rollback(store, found.sha256)


def rollback_reason(store: Store, candidate: CandidatePolicy | None) -> str:
    """Return why no run uses the candidate any more; empty: it was not rolled back."""
    rollback = rollback_of(store, candidate)
    return rollback.reason if rollback else ""


def read_rollback(store: Store, sha256: str) -> Rollback | None:
    """Return the stored rollback of the policy with this digest; None: there is none."""
    key = store_layout.rollback(sha256)
    return read_record(store, key, Rollback) if any(store.list(key)) else None


def policy_trials(store: Store) -> tuple[tuple[PolicyTrial, ...], tuple[str, ...]]:
    """Return the trial of each candidate that the store's decisions name, the newest last; and notes on
    unreadable records.
    """
    decisions, unread = read_records(store, newest_keys(store, "decisions", MAX_DECISIONS), Decision)
    shadowed = [
        each
        for each in decisions
        if each.shadow and each.applied_policy and each.choice and not each.choice.cached
    ]
    keys = [store_layout.receipt(each.question.run_id, each.question.attempt_id) for each in shadowed]
    receipts, unread_receipts = read_records(store, keys, Receipt)
    receipt_of = {(each.run_id, each.stage, each.attempt): each for each in receipts}
    choices: dict[tuple[str, str], list[LoggedChoice]] = {}
    for decision in shadowed:
        question = decision.question
        receipt = receipt_of.get((question.run_id, question.stage, question.attempt))
        candidate_choices = choices.setdefault(candidate_of(decision), [])
        if receipt is not None and (logged := logged_choice(decision, receipt)):
            candidate_choices.append(logged)
    trials = tuple(
        PolicyTrial(
            policy=title,
            sha256=sha256,
            comparison=compare_policies(logged),
            rollback=read_rollback(store, sha256),
        )
        for (title, sha256), logged in choices.items()
    )
    return trials, (*unread, *unread_receipts)


def candidate_of(decision: Decision) -> tuple[str, str]:
    """Return the title and the digest of the candidate, whichever of the two policies the run obeyed."""
    both = (decision.applied_policy, decision.shadow)
    found = next(each for each in both if each and each.arm == "candidate")
    return f"{found.name} {found.version}", found.sha256


def logged_choice(decision: Decision, receipt: Receipt) -> LoggedChoice | None:
    """Return one choice of a trial with its cost; None where one of the two policies found no offer that
    fits.
    """
    applied, shadow, choice = decision.applied_policy, decision.shadow, decision.choice
    if applied is None or shadow is None or choice is None or shadow.pool is None:
        return None
    is_live = applied.arm == "live"
    # An elastic stage is compared at the samples that the policy in force expected.
    elastic = decision.question.needs[0].elastic
    samples = choice.samples if is_live else shadow.samples
    done = receipt.outcome.samples if receipt.outcome else 0
    applied_usd, shadow_usd = float(choice.est_usd), float(shadow.est_usd)
    spent_usd = float(receipt.spent_usd)
    if elastic and min(samples, choice.samples, shadow.samples):
        applied_usd, shadow_usd = (
            applied_usd * samples / choice.samples,
            shadow_usd * samples / shadow.samples,
        )
        spent_usd = spent_usd * samples / done if done else spent_usd
    return LoggedChoice(
        run_id=receipt.run_id,
        matches_live=is_live or shadow.same,
        matches_candidate=not is_live or shadow.same,
        candidate_probability=1.0 - applied.propensity if is_live else applied.propensity,
        live_est_usd=applied_usd if is_live else shadow_usd,
        candidate_est_usd=shadow_usd if is_live else applied_usd,
        spent_usd=spent_usd,
    )
