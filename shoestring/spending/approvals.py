"""A person's yes to spending more than a run may have without one: asked for by admission, given by name, used by an entry that names it.

An approval lies in the folder of its run's account, under the digest of its own bytes: one that was changed, or taken away after it was
used, is found by `verify`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal

from pydantic import AwareDatetime, Field, ValidationError

from shoestring.core.errors import LedgerCorrupt, NotInStore
from shoestring.core.interfaces import Store
from shoestring.core.money import Usd, from_microusd
from shoestring.core.pod_ref import PodRef
from shoestring.core.record import StoredRecord, digest, record_bytes
from shoestring.spending.ledger.entry import Entry

# What ends so soon is over: the entry that uses an approval has to be written before its end, also to a store that is slow.
ENTRY_MARGIN_S = 300
DEFAULT_VALIDITY = timedelta(days=7)


class Approval(StoredRecord):
    """Who allowed which run how much, and until when that counts."""

    run_id: str
    by: str = Field(min_length=1)
    at: AwareDatetime
    amount_usd: Usd = Field(gt=0, description="the most that all starts of the run together may be given")
    expires_at: AwareDatetime
    why: str = ""
    pod: PodRef = Field(description="the process that wrote the approval")


class ApprovalRequest(StoredRecord):
    """What a run waits for, as it was asked for last."""

    run_id: str
    budget_usd: Usd
    deadline_s: float | None
    ceiling_usd: Usd
    campaign: str
    at: AwareDatetime


def approval_key(run_id: str, sha256: str) -> str:
    return f"ledger/{run_id}/approvals/{sha256}.json"


def approval_request_key(run_id: str) -> str:
    return f"runs/{run_id}/awaits.json"


def write_approval(store: Store, approval: Approval) -> str:
    """Write it down; returns the digest by which an entry names it."""
    data = record_bytes(approval)
    store.put(approval_key(approval.run_id, digest(data)), data, if_absent=True)
    return digest(data)


def read_approval(store: Store, key: str) -> Approval:
    """Raises NotInStore, and LedgerCorrupt for one that was changed."""
    folder, _, file = key.rpartition("/approvals/")
    account, data = folder.removeprefix("ledger/"), store.fetch(key).read_bytes()
    try:
        found = Approval.model_validate_json(data)
    except ValidationError:
        found = None
    if found is None or f"{digest(data)}.json" != file or found.run_id != account:
        raise LedgerCorrupt(
            account, 0, f"the approval {file.removesuffix('.json')[:12]}... was changed since it was given"
        )
    return found


def read_approvals(store: Store, run_id: str) -> dict[str, Approval]:
    """All that were given to a run, by digest. Raises LedgerCorrupt."""
    keys = store.list(f"ledger/{run_id}/approvals/")
    return {key.rpartition("/")[2].removesuffix(".json"): read_approval(store, key) for key in keys}


def read_approval_request(store: Store, run_id: str) -> ApprovalRequest | None:
    """What the run asked for, if it has to wait, or had to."""
    try:
        return ApprovalRequest.model_validate_json(store.fetch(approval_request_key(run_id)).read_bytes())
    except NotInStore:
        return None


def valid_approval(found: Mapping[str, Approval], amount_usd: Decimal, now: datetime) -> str | None:
    """The digest of an approval that allows so much now; of several, the last that was given."""
    enough = [
        (approval.at, sha256)
        for sha256, approval in found.items()
        if approval.amount_usd >= amount_usd and now + timedelta(seconds=ENTRY_MARGIN_S) < approval.expires_at
    ]
    return max(enough)[1] if enough else None


def why_insufficient(found: Mapping[str, Approval], amount_usd: Decimal, now: datetime) -> str:
    """Of the last approval that was given, why it does not do; empty where none was."""
    if not found:
        return ""
    last = max(found.values(), key=lambda approval: approval.at)
    if last.amount_usd < amount_usd:
        return f"{last.by} allowed it ${last.amount_usd}, which is less"
    return f"that of {last.by} is good until {last.expires_at:%Y-%m-%d %H:%M} UTC, and it is {now:%Y-%m-%d %H:%M}"


def check_approval(store: Store, entry: Entry) -> None:
    """Was the cap of this entry allowed by the approval that it names? Raises LedgerCorrupt."""
    assert entry.approval is not None
    run_id = entry.account.partition(".")[0]
    name = f"the approval {entry.approval[:12]}..."
    try:
        approval = read_approval(store, approval_key(run_id, entry.approval))
    except NotInStore:
        raise LedgerCorrupt(entry.account, entry.number, f"names {name}, which is not there") from None
    cap_usd = from_microusd(entry.cap_microusd or 0)
    if approval.amount_usd < cap_usd:
        raise LedgerCorrupt(
            entry.account,
            entry.number,
            f"has a cap of ${cap_usd}, and {name} of {approval.by} is over ${approval.amount_usd}",
        )
    if entry.at >= approval.expires_at:
        raise LedgerCorrupt(
            entry.account, entry.number, f"was written after {name} of {approval.by} had ended"
        )
