"""Receipts that teach, where a router finds them without a look at every run: a bounded number of them for each stage.

learned/receipts/STAGE/BUCKET-SLOT.json is a copy of a receipt. The bucket is named by its work and hardware, so that what is run often does
not crowd out what is run seldom; the slot by its run, so that a new receipt takes the place of one at random: what stays is a sample that
favours the newer. A write reads nothing, two at once hurt nobody, and the same receipt again is the same object.

learned/stockouts/NODE_POOL-MARKET.json is what a sweeper remembers of a pool that took no pod in time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import datetime

from shoestring.core.errors import StoreError
from shoestring.core.interfaces import Store
from shoestring.core.receipt import Receipt
from shoestring.core.record import digest, record_bytes
from shoestring.core.types import StockOut
from shoestring.data.run_records import read_records
from shoestring.runtime.records.receipts import receipt_key

HISTORY, STOCKOUTS = "learned/receipts/", "learned/stockouts/"
BUCKETS, SLOTS = 8, 64
MAX_IMPORTED = 200


def history_key(receipt: Receipt) -> str:
    """Where its copy lies."""
    kind = receipt.hardware.type if receipt.hardware else receipt.pool
    bucket = int(digest(f"{receipt.work} {kind}".encode()), 16) % BUCKETS
    slot = int(digest(f"{receipt.run_id} {receipt.attempt}".encode()), 16) % SLOTS
    return f"{HISTORY}{receipt.stage}/{bucket}-{slot:02d}.json"


def write_receipt(store: Store, hold: str, receipt: Receipt) -> None:
    """Write a receipt, and teach with it if it can. Raises StoreError, StoreFull: the receipt itself could not be written."""
    store.put(receipt_key(receipt.run_id, hold), record_bytes(receipt))
    with contextlib.suppress(StoreError):
        add_to_history(store, receipt)


def add_to_history(store: Store, receipt: Receipt) -> None:
    """Raises StoreError."""
    if receipt.teaches:
        store.put(history_key(receipt), record_bytes(receipt))


def earlier_receipts(store: Store, stages: Sequence[str], until: datetime) -> tuple[list[Receipt], tuple[str, ...]]:
    """What can teach about these stages, and a note where one cannot be read.

    What ended after `until`, when the run began, is left out: so its estimates stay as they were admitted, but for receipts whose
    place a newer one took meanwhile.
    """
    notes: tuple[str, ...] = ()
    if not any(store.list(HISTORY)):
        notes = _import(store)
    receipts, unread = read_records(
        store, [key for stage in stages for key in store.list(f"{HISTORY}{stage}/")], Receipt
    )
    return [receipt for receipt in receipts if receipt.finished_at <= until], (*notes, *unread)


def run_receipts(
    store: Store, run_id: str, stage: str, since: datetime
) -> tuple[list[Receipt], int, tuple[str, ...]]:
    """Receipts of a run's attempts at a stage that ended after `since`, so that `earlier_receipts` leaves them out; how often it was moved in this
    run; a note where one cannot be read."""
    found, notes = read_records(store, list(store.list(f"runs/{run_id}/receipts/{stage}-")), Receipt)
    own = [each for each in found if each.stage == stage]
    return (
        [each for each in own if each.finished_at > since],
        sum(each.cause == "migrated" for each in own),
        notes,
    )


def known_receipts(
    store: Store, run_id: str, stages: Sequence[str], since: datetime
) -> tuple[list[Receipt], int, tuple[str, ...]]:
    """What can teach the first of these stages, and those after it, in a start of a run that began at `since`: receipts of before that, and
    of the first one's attempts since then; how often that was moved in this run; notes where one cannot be read."""
    before, unread = earlier_receipts(store, stages, since)
    own, moves, unread_own = run_receipts(store, run_id, stages[0], since)
    return [*before, *own], moves, (*unread, *unread_own)


def current_stockouts(store: Store, now: datetime) -> tuple[tuple[StockOut, ...], tuple[str, ...]]:
    """What is still remembered of node pools that took no pod in time, and a note where that cannot be read."""
    found, notes = read_records(store, list(store.list(STOCKOUTS)), StockOut)
    return tuple(each for each in found if each.until > now), notes


def _import(store: Store) -> tuple[str, ...]:
    """A store that was there before this folder was: teach with what receipts it has, once."""
    keys = [key for key in store.list("runs/") if "/receipts/" in key]
    receipts, notes = read_records(store, keys, Receipt)
    for receipt in sorted(receipts, key=lambda receipt: receipt.finished_at)[-MAX_IMPORTED:]:
        add_to_history(store, receipt)
    return notes
