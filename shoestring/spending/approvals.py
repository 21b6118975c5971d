"""Approvals: a person allows a run to spend more than its policy allows without one.

Admission asks for an approval, a person gives it by name, and the ledger entry that uses it names its digest.
The store keeps an approval next to the chain of its run's account, under the digest of its bytes. So `verify`
finds an approval that was changed, or removed after it was used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal

from pydantic import AwareDatetime, Field, ValidationError

from shoestring.core import store_layout
from shoestring.core.errors import LedgerCorrupt, NotInStore
from shoestring.core.interfaces import Store
from shoestring.core.money import Usd, from_microusd
from shoestring.core.pod_ref import PodRef
from shoestring.core.record import StoredRecord, digest, record_bytes

SHA256 = re.compile(r"[0-9a-f]{64}")
ENTRY_MARGIN_S = 300
"""An approval that expires within this time is not used: the entry that uses it must be written before, also
to a slow store.
"""
DEFAULT_VALIDITY = timedelta(days=7)


class Approval(StoredRecord):
    """Who allowed which run to spend how much, and until when."""

    run_id: str
    approved_by: str = Field(min_length=1)
    approved_at: AwareDatetime
    amount_usd: Usd = Field(gt=0, description="the most that all starts of the run together may get")
    expires_at: AwareDatetime
    reason: str = ""
    pod: PodRef = Field(description="the process that wrote the approval")


class ApprovalRequest(StoredRecord):
    """The last request of a run that waits for an approval."""

    run_id: str
    budget_usd: Usd
    deadline_s: float | None
    approve_above_usd: Usd
    campaign: str
    requested_at: AwareDatetime


def write_approval(store: Store, approval: Approval) -> str:
    """Write an approval to the store. Returns the digest by which an entry names it."""
    data = record_bytes(approval)
    store.put(store_layout.approvals(approval.run_id, digest(data)), data, if_absent=True)
    return digest(data)


def read_approval(store: Store, key: str) -> Approval:
    """Return an approval.

    Raises:
        NotInStore: there is none under this key.
        LedgerCorrupt: it was changed after it was given.
    """
    folder, _, file = key.rpartition("/approvals/")
    account, data = folder.removeprefix(store_layout.LEDGER), store.fetch(key).read_bytes()
    try:
        found = Approval.model_validate_json(data)
    except ValidationError:
        found = None
    if found is None or f"{digest(data)}.json" != file or found.run_id != account:
        short = file.removesuffix(".json")[:12]
        raise LedgerCorrupt(account, 0, f"the approval {short}... was changed after it was given")
    return found


def read_approvals(store: Store, run_id: str) -> dict[str, Approval]:
    """Return all approvals of a run, by digest. Raises LedgerCorrupt."""
    keys = store.list(store_layout.approvals(run_id))
    return {key.rpartition("/")[2].removesuffix(".json"): read_approval(store, key) for key in keys}


def read_approval_request(store: Store, run_id: str) -> ApprovalRequest | None:
    """Return the run's last request for an approval, or None if it never needed one."""
    try:
        data = store.fetch(store_layout.approval_request(run_id)).read_bytes()
        return ApprovalRequest.model_validate_json(data)
    except NotInStore:
        return None


def valid_approval(found: Mapping[str, Approval], amount_usd: Decimal, now: datetime) -> str | None:
    """Return the digest of the newest approval that allows `amount_usd` now, or None."""
    enough = [
        (approval.approved_at, sha256)
        for sha256, approval in found.items()
        if approval.amount_usd >= amount_usd and now + timedelta(seconds=ENTRY_MARGIN_S) < approval.expires_at
    ]
    return max(enough)[1] if enough else None


def insufficiency_reason(found: Mapping[str, Approval], amount_usd: Decimal, now: datetime) -> str:
    """Return why the newest approval does not allow `amount_usd` now; an empty string if there is no
    approval.
    """
    if not found:
        return ""
    last = max(found.values(), key=lambda approval: approval.approved_at)
    if last.amount_usd < amount_usd:
        return f"{last.approved_by} approved ${last.amount_usd}, which is less"
    return (
        f"the approval of {last.approved_by} expires at {last.expires_at:%Y-%m-%d %H:%M} UTC, "
        f"and it is {now:%Y-%m-%d %H:%M}"
    )


def approval_fault(store: Store, account: str, sha256: str, cap_microusd: int, at: datetime) -> str:
    """Return why an approval does not allow an account a cap from a moment on; an empty string: it does.

    Raises LedgerCorrupt: it was changed after it was given.
    """
    name, cap_usd = f"the approval {sha256[:12]}...", from_microusd(cap_microusd)
    missing = f"names {name}, which does not exist"
    if not SHA256.fullmatch(sha256):
        return missing
    try:
        approval = read_approval(store, store_layout.approvals(account.partition(".")[0], sha256))
    except NotInStore:
        return missing
    if approval.amount_usd < cap_usd:
        return f"has a cap of ${cap_usd}, but {name} of {approval.approved_by} allows ${approval.amount_usd}"
    if at >= approval.expires_at:
        return f"was written after {name} of {approval.approved_by} had expired"
    return ""
