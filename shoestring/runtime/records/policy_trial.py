"""The policies that a question is asked of, whether the one on trial has been rolled back, and what was logged of trials."""

from __future__ import annotations

from typing import Any

from shoestring.config.policy import CandidatePolicy, Policy
from shoestring.core.interfaces import Store
from shoestring.core.receipt import Receipt
from shoestring.core.types import Record, record_bytes
from shoestring.data.run_records import newest, read, readable
from shoestring.routing.analysis.off_policy import Comparison, Logged, compare
from shoestring.routing.decision import Decision
from shoestring.routing.policy.trials import Rollback, overspent
from shoestring.runtime.records.receipts import receipt_key

RECEIPTS_READ = 200
DECISIONS_READ = 5000


class Trial(Record):
    """What is known of a candidate. `comparison` is None before any run of the trial is over."""

    policy: str
    sha256: str
    comparison: Comparison | None
    rollback: Rollback | None


def policies(store: Store, rules: Policy) -> dict[str, Any]:
    """Fields of a Question. A candidate that overspent is rolled back by the first router that sees it."""
    found: dict[str, Any] = {"preferences": rules.preferences, "candidate": rules.candidate}
    if rules.candidate and (over := rolled_back(store, rules.candidate)):
        found["rolled_back"] = over.why
    return found


def rolled_back(store: Store, candidate: CandidatePolicy) -> Rollback | None:
    """From what was written down; else, while some run obeys the candidate, from the newest receipts, and written down."""
    if (over := written(store, candidate.policy.sha256)) or not candidate.share:
        return over
    # One that cannot be read is noted by whoever learns from them.
    receipts, _ = readable(store, newest(store, "receipts", RECEIPTS_READ), Receipt)
    if (over := overspent(candidate, receipts)) is None:
        return None
    store.put(rollback_key(over.sha256), record_bytes(over), if_absent=True)
    return written(store, over.sha256)


def rollback_key(sha256: str) -> str:
    return f"learned/policies/{sha256}.json"


def written(store: Store, sha256: str) -> Rollback | None:
    key = rollback_key(sha256)
    return read(store, key, Rollback) if any(store.list(key)) else None


def trials(store: Store) -> tuple[tuple[Trial, ...], tuple[str, ...]]:
    """Every candidate that decisions of this store name, the newest last, and a note where some cannot be read."""
    keys = newest(store, "decisions", DECISIONS_READ)
    decisions, unread = readable(store, keys, Decision)
    shadowed = [
        each for each in decisions if each.shadow and each.obeyed and each.choice and not each.choice.cached
    ]
    holds = [receipt_key(each.question.run_id, each.question.hold) for each in shadowed]
    receipts, lost = readable(store, holds, Receipt)
    took = {(each.run_id, each.stage, each.attempt): each for each in receipts}
    found: dict[tuple[str, str], list[Logged]] = {}
    for decision in shadowed:
        question = decision.question
        receipt = took.get((question.run_id, question.stage, question.attempt))
        named = found.setdefault(candidate_of(decision), [])
        if receipt is not None and (each := logged(decision, receipt)):
            named.append(each)
    return tuple(
        Trial(policy=title, sha256=sha256, comparison=compare(of_it), rollback=written(store, sha256))
        for (title, sha256), of_it in found.items()
    ), (*unread, *lost)


def candidate_of(decision: Decision) -> tuple[str, str]:
    """Title and digest of the candidate, whichever of the two was obeyed."""
    both = (decision.obeyed, decision.shadow)
    found = next(each for each in both if each and each.arm == "candidate")
    return f"{found.name} {found.version}", found.sha256


def logged(decision: Decision, receipt: Receipt) -> Logged | None:
    """One choice of a trial, with what it cost; None where one of the two policies found no place."""
    obeyed, shadow, choice = decision.obeyed, decision.shadow, decision.choice
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
    return Logged(
        run_id=receipt.run_id,
        took_live=is_live or shadow.same,
        took_candidate=not is_live or shadow.same,
        p_candidate=1.0 - obeyed.propensity if is_live else obeyed.propensity,
        live_usd=chosen_usd if is_live else other_usd,
        candidate_usd=other_usd if is_live else chosen_usd,
        spent_usd=spent_usd,
    )
