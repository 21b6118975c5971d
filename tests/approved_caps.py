"""Approvals that allow a run any cap, so that tests can raise it."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from shoestring.core.interfaces import Store
from shoestring.core.pod_ref import PodRef
from shoestring.core.record import digest, record_bytes
from shoestring.spending.approvals import Approval, write_approval


def any_cap(run: str = "run") -> Approval:
    return Approval(
        run_id=run,
        approved_by="ann",
        approved_at=datetime(2026, 11, 1, tzinfo=UTC),
        amount_usd=Decimal(10**6),
        expires_at=datetime(2999, 1, 1, tzinfo=UTC),
        pod=PodRef.parse("host.1.2"),
    )


def approved(run: str = "run") -> str:
    """Return the digest of the approval that allows a run any cap."""
    return digest(record_bytes(any_cap(run)))


def approve(store: Store, *runs: str) -> None:
    """Write the approvals of these runs, which the ledger and `verify` look for."""
    for run in runs or ("run",):
        write_approval(store, any_cap(run))
