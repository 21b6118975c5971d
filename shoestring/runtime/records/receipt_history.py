"""Receipts that the performance model learns from: a bounded number for each stage, so that a router need not
scan all runs.

learned/receipts/STAGE/BUCKET-SLOT.json is a copy of a receipt. Its work and hardware choose the bucket, so
frequent work does not displace rare work. Its run chooses the slot, so a new receipt replaces one at random,
and the copies are a sample that favours newer receipts. A write reads nothing, concurrent writes do no harm,
and the same receipt written twice is the same object.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from shoestring.core import store_layout
from shoestring.core.attempt_id import AttemptId, declared_stage, item_of
from shoestring.core.errors import StoreError
from shoestring.core.interfaces import Store
from shoestring.core.receipt import Receipt
from shoestring.core.record import digest, record_bytes
from shoestring.core.types import StockOut
from shoestring.data.run_records import read_records

BUCKETS, SLOTS = 8, 64
MAX_IMPORTED = 200


@dataclass(frozen=True, slots=True)
class KnownReceipts:
    """The receipts that a question may learn from, and notes on those that cannot be read.

    `migrations` is how often the question's stage was migrated in its run.
    """

    receipts: tuple[Receipt, ...]
    migrations: int
    notes: tuple[str, ...]


def history_key(receipt: Receipt) -> str:
    """Return the key of the receipt's copy."""
    hardware = receipt.hardware.type if receipt.hardware else receipt.pool
    item = item_of(receipt.stage)
    bucket = int(digest(f"{receipt.work} {hardware}".encode()), 16) % BUCKETS
    slot = int(digest(f"{receipt.run_id} {receipt.attempt}{item and f' {item}'}".encode()), 16) % SLOTS
    return store_layout.learned_receipt(declared_stage(receipt.stage), str(bucket), slot)


def write_receipt(store: Store, receipt: Receipt) -> None:
    """Write a receipt, and a copy for the performance model. Raises StoreError, StoreFull: the receipt was
    not written.
    """
    attempt = AttemptId(receipt.run_id, receipt.stage, receipt.attempt)
    store.put(store_layout.receipt(receipt.run_id, attempt), record_bytes(receipt))
    with contextlib.suppress(StoreError):
        add_to_history(store, receipt)


def add_to_history(store: Store, receipt: Receipt) -> None:
    """Write the copy of a receipt that the model can learn from. Raises StoreError."""
    if receipt.is_learnable:
        store.put(history_key(receipt), record_bytes(receipt))


def earlier_receipts(
    store: Store, stages: Sequence[str], until: datetime
) -> tuple[list[Receipt], tuple[str, ...]]:
    """Return the receipts of these stages that the model can learn from, and notes on those that cannot be
    read.

    Receipts after `until`, when the run began, are left out, so the run's estimates stay as they were at
    admission. They change only where a newer receipt has replaced an older one meanwhile.
    """
    notes: tuple[str, ...] = ()
    listed = list(store.list(store_layout.LEARNED_RECEIPTS))
    if not listed:
        notes = _import_receipts(store)
        listed = list(store.list(store_layout.LEARNED_RECEIPTS))
    names = dict.fromkeys(map(declared_stage, stages))
    prefixes = [f"{store_layout.LEARNED_RECEIPTS}{name}/" for name in names]
    keys = [key for prefix in prefixes for key in listed if key.startswith(prefix)]
    receipts, unread = read_records(store, keys, Receipt)
    return [receipt for receipt in receipts if receipt.finished_at <= until], (*notes, *unread)


def known_receipts(store: Store, run_id: str, stages: Sequence[str], since: datetime) -> KnownReceipts:
    """Return what a start of a run that began at `since` may learn from.

    These are receipts of all `stages` from before `since`, and of this run's attempts at the first stage
    after `since`.
    """
    before, unread = earlier_receipts(store, stages, since)
    found, unread_in_run = read_records(
        store, list(store.list(store_layout.receipts(run_id, stages[0]))), Receipt
    )
    in_run = [each for each in found if each.stage == stages[0]]
    return KnownReceipts(
        receipts=(*before, *(each for each in in_run if each.finished_at > since)),
        migrations=sum(each.cause == "migrated" for each in in_run),
        notes=(*unread, *unread_in_run),
    )


def current_stockouts(store: Store, now: datetime) -> tuple[tuple[StockOut, ...], tuple[str, ...]]:
    """Return the stock-outs of node pools that have not expired, and notes on those that cannot be read."""
    found, notes = read_records(store, list(store.list(store_layout.STOCK_OUTS)), StockOut)
    return tuple(each for each in found if each.until > now), notes


def _import_receipts(store: Store) -> tuple[str, ...]:
    """Fill the history of a store that is older than the history: copy its newest receipts, once."""
    keys = [key for key in store.list(store_layout.RUNS) if "/receipts/" in key]
    receipts, notes = read_records(store, keys, Receipt)
    for receipt in sorted(receipts, key=lambda receipt: receipt.finished_at)[-MAX_IMPORTED:]:
        add_to_history(store, receipt)
    return notes
