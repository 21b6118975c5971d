"""Pending entries of concurrent writers, for the tests of group commit."""

from __future__ import annotations

from decimal import Decimal

from shoestring.backends.local import WallClock
from shoestring.core import store_layout
from shoestring.core.interfaces import Store
from shoestring.core.record import record_bytes
from shoestring.spending.ledger.chain_writer import ChainWriter
from shoestring.spending.ledger.entry import NO_ENTRY, Entry, StoredObject
from shoestring.spending.ledger.group_commit import PendingEntry, next_entry
from shoestring.spending.ledger.ledger import Ledger


def pending_entry(account: str, hold: str, microusd: int = 10_000, keep: int = 0) -> PendingEntry:
    about = {
        "kind": "reserve",
        "id": f"reserve/{hold}",
        "reservation": hold,
        "stage": "work",
        "attempt": 1,
        "amount_microusd": microusd,
    }
    draft = Entry.model_validate(
        {"account": account, "number": 1, "prev": NO_ENTRY, "at": WallClock().now(), "writer": hold} | about
    )
    return PendingEntry(draft=draft, min_left_microusd=keep)


def write_pending(store: Store, number: int, *entries: PendingEntry) -> None:
    for entry in entries:
        store.put(
            f"{store_layout.pending_entries('run', number)}{entry.draft.reservation}.json",
            record_bytes(entry),
        )


def contended_ledger(store: Store, cap_usd: Decimal = Decimal(1)) -> Ledger:
    """A ledger with an account whose last entry, number 2, was contended."""
    Ledger(store, WallClock()).open("run", cap_usd, parent=None)
    account = ChainWriter(store, WallClock()).latest("run")
    written = StoredObject(
        next_entry(account, pending_entry("run", "first", 0).draft, WallClock(), 2)[:1], contended=True
    )
    store.put(store_layout.ledger_entry("run", 2), written.data, if_absent=True)
    return Ledger(store, WallClock(), "me")
